"""The pages without a browser: who sees what, forms that only they can send, nothing that breaks out of its place."""

import html
import io
import re
import zipfile

import pytest
from sqlalchemy import update

from tests.audits import made_audit
from tests.serve.person import HOSTILE, PAGES, Person, words
from tests.serve.test_service import state_of, work
from tests.serve.web import Web
from unweave.serve import database, queue
from unweave.serve.page.frame import HEADERS
from unweave.serve.page.plots import plot
from unweave.serve.page.submission import read_document
from unweave.serve.papers import keep
from unweave.serve.policy import Policy
from unweave.serve.registry import set_policy
from unweave.serve.service import Service
from unweave.serve.tables import documents, requests
from unweave.serve.worker import Worker

MARK = "\u202e"


@pytest.fixture
def url() -> None:
    """SQLite is enough for pages."""


def test_every_page_has_strict_headers_and_one_heading(shop: Service) -> None:
    ada = Person(shop).sign_in()
    request = ada.submit(subjects="person-3")
    for path in (*PAGES, request, "/nowhere", "/models/nothing", "/ledger/export", "/static/page.css"):
        answer = ada.get(path)
        for name, value in HEADERS.items():
            if (path, name) != ("/static/page.css", "Cache-Control"):
                assert answer.headers[name] == value, path
        if answer.headers["content-type"].startswith("text/html"):
            assert answer.text.count("<h1>") == 1
            assert not re.search(r"<script|style=|\son\w+=|https?://", answer.text), path
    assert ada.get(request).headers["refresh"] == "3"
    assert "refresh" not in ada.get(f"{request}?still=1").headers
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_what_was_typed_is_kept_and_unknown_ids_are_told(shop: Service) -> None:
    ada = Person(shop).sign_in()
    note = f"called {MARK}twice {HOSTILE}"
    answer = ada.post("/requests/new", model="shop", subjects=f"person-1\n{HOSTILE}", labels="nobody", note=note)
    assert answer.status_code == 422
    assert "<script" not in answer.text
    assert "2 of 3 ids were never in the table" in words(answer)
    assert f"<code>{html.escape(HOSTILE).replace('&#x27;', '&#39;').replace('&quot;', '&#34;')}</code>" in answer.text
    assert answer.text.count(MARK) == 1  # in the field where it was typed
    assert answer.text.count('aria-invalid="true"') == 2
    assert "person-1\n" in answer.text
    assert "nobody</textarea>" in answer.text
    columns = ada.post("/requests/new", model="shop", features="person-1: column 1, age")
    assert "<code>age</code>" in columns.text
    for field, text in {"edges": "person-1", "features": "person-1", "model": ""}.items():
        assert ada.post("/requests/new", **{"model": "shop", field: text}).status_code == 422
    assert ada.post("/requests/new", model="nothing", subjects="person-1").status_code == 404
    assert "1 to 10000 things" in words(ada.post("/requests/new", model="shop"))


def test_lines_are_read_as_people_write_them() -> None:
    typed = {
        "subjects": " a \n\nb,c\n",
        "edges": 'a, b\n"x, y",z\n',
        "features": 'user:17: age, "home, city"\nb:all',
        "labels": "",
        "note": " ",
    }
    assert read_document(typed) == {
        "subjects": ["a", "b,c"],
        "edges": [["a", "b"], ["x, y", "z"]],
        "features": {"user:17": ["age", "home, city"], "b": "all"},
        "labels": [],
        "note": None,
    }


def test_a_double_click_submits_once(shop: Service) -> None:
    ada = Person(shop).sign_in()
    key = re.search(r'name="key" value="([^"]+)"', ada.get("/requests/new").text)
    assert key is not None
    assert ada.submit(subjects="person-3", key=key[1]) == ada.submit(subjects="person-3", key=key[1])
    other = ada.post("/requests/new", model="shop", subjects="person-4", key=key[1])
    assert other.status_code == 422
    assert "submit it once more" in words(other)
    assert f'value="{key[1]}"' not in other.text


def test_who_asked_is_seen_by_operators_alone_until_it_is_erased(shop: Service) -> None:
    ada, reader = Person(shop).sign_in(), Person(shop, "read").sign_in()
    one = ada.submit(subjects="person-3", features="person-5: all", note=f"{HOSTILE}{MARK}\nby mail", key="a")
    answer = ada.get(one)
    assert "<script" not in answer.text
    assert MARK not in answer.text
    assert "alert(1)" in words(answer)
    for word in ("person-3", "person-5", "by mail", "Submitted with the token"):
        assert word in words(answer)
        assert word not in words(reader.get(one))
    work(shop)
    done = ada.get(one)
    for word in (
        "is done",
        "Data removed from the graph: yes",
        "Who asked was erased",
        "no longer known",
        "Details for",
    ):
        assert word in words(done)
    assert "person-" not in done.text
    content = ada.get(f"{one}/evidence")
    assert content.headers["content-type"] == "application/zip"
    assert content.headers["content-disposition"].startswith("attachment")
    assert "manifest.json" in zipfile.ZipFile(io.BytesIO(content.content)).namelist()
    assert reader.get(f"{one}/evidence").status_code == 403


def test_a_request_that_waits_is_approved_refused_or_tried_again(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    monkeypatch.setattr(Worker, "_look", lambda *_: {"flagged": True, "statement": "far from random"})
    ada = Person(shop).sign_in()
    first, second = (ada.submit(subjects=f"person-{n}", key=f"{n}") for n in (3, 4))
    work(shop)
    assert "Flagged: Far from random." in words(ada.get(first))
    assert ada.post(f"{first}/retry").status_code == 409
    assert ada.post(f"{first}/approve").status_code == 303
    assert "Approved" in words(ada.get(first))
    assert "By Ada" in words(ada.get(first))
    assert ada.post(f"{second}/refuse", reason=" ").status_code == 422
    assert ada.post(f"{second}/refuse", reason=f"a{MARK}b").status_code == 422
    assert ada.post(f"{second}/refuse", reason=HOSTILE).status_code == 303
    assert "<script" not in ada.get(second).text
    again = ada.post(f"{second}/refuse", reason="once more")
    assert again.status_code == 409
    assert ada.get(f"{second}/refuse").status_code == 409
    work(shop)
    assert [state_of(shop, each.rpartition("/")[2]) for each in (first, second)] == ["done", "refused"]


def test_the_queue_marks_what_is_late_filters_and_turns_pages(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = Person(shop).sign_in()
    monkeypatch.setattr("unweave.serve.page.requests.AT_ONCE", 2)
    paths = [ada.submit(subjects=f"person-{n}", key=f"{n}") for n in range(5)]
    names = [path.rpartition("/")[2] for path in paths]
    with database.writing(shop.engine) as connection:
        connection.execute(update(requests).where(requests.c.id == names[4]).values(at=requests.c.at - 32 * 86400))
    first = ada.get("/")
    assert "Late : late by 2 days; it is 32 days old" in words(first)
    assert "30 days left" in words(first)
    seen, path = list[str](), "/"
    while path:
        page = ada.get(path)
        seen += re.findall(r'href="/requests/([0-9a-f]{32})"', page.text)
        onward = re.search(r'href="([^"]+before=\d+)"', page.text)
        path = html.unescape(onward[1]) if onward else ""
    assert seen == names[::-1]
    assert ada.get("/?state=done").text.count('scope="row"') == 0
    for path, status in {"/?state=odd": 404, "/?model=none": 404, "/?before=x": 422, f"/?before={10**12}": 422}.items():
        assert ada.get(path).status_code == status


def test_a_model_shows_its_versions_and_its_policy(shop: Service) -> None:
    ada = Person(shop).sign_in()
    for number in (3, 4):
        ada.submit(subjects=f"person-{number}", key=f"{number}")
        work(shop)
    said = words(ada.get("/models/shop"))
    for word in ("purged: its files are gone", "1 request by gif", "by the method gif", "within 30 days", "training"):
        assert word in said
    assert "is not estimated here" in said
    text = ""
    with database.writing(shop.engine) as connection:
        text = '{"ladder":{"estimate":{"closed":0.8,"low":0.6,"high":0.9}}}'
        keep(connection, "receipt", "shop", 3, text)
    assert "0.80 (0.60 to 0.90)" in words(ada.get("/models/shop"))


def test_a_plot_of_one_value_and_of_equal_ones() -> None:
    assert plot("nothing", []) is None
    for values in ([(1, 0.5, None, None)], [(1, 0.5, None, None), (2, 0.5, 0.4, 0.6)]):
        found = plot("some", values)
        assert found is not None
        assert all(0 < mark.x < found.wide and 0 < mark.y < found.high for mark in found.marks)


def test_the_ledger_is_shown_checked_and_exported(shop: Service) -> None:
    ada = Person(shop).sign_in()
    one = ada.submit(subjects="person-3")
    shown = ada.get("/ledger")
    assert one in shown.text
    assert "checkpoint" in shown.text
    assert ada.get("/ledger/export").text.count("\n") > 3
    assert "All" in words(ada.post("/ledger"))
    assert "are in order" in words(ada.post("/ledger"))
    with database.writing(shop.engine) as connection:
        connection.exec_driver_sql("UPDATE entries SET kind = 'x' WHERE sequence = 2")
    assert "Something was changed. The row of entry 2" in words(ada.post("/ledger"))


def test_a_report_of_an_audit_and_receipts_of_other_versions(shop: Service) -> None:
    ada, found = Person(shop).sign_in(), made_audit("gone")
    one = ada.submit(subjects="person-3")
    work(shop)
    with database.writing(shop.engine) as connection:
        digest = keep(connection, "audit", "shop", 2, found.to_json())
        old = keep(connection, "receipt", "shop", 2, '{"verdict":"Done <b>long</b> ago","grade":"retrained"}')
        row = queue.one(connection, one.rpartition("/")[2])
        shop.tell(connection, row.id, "request audited", {"outcome": found.headline, "report": digest})
        shop.tell(connection, row.id, "request applied", {"version": 2, "receipts": [old], "grade": "retrained"})
    page = ada.get(one)
    assert f"/audits/{digest}" in page.text
    assert "Done <b>long</b> ago" in words(page)
    report = words(ada.get(f"/audits/{digest}"))
    assert found.headline in report
    assert "membership, likelihood ratio" in report
    for name in ("0" * 64, old, "x"):
        assert ada.get(f"/audits/{name}").status_code == 404
    with database.writing(shop.engine) as connection:
        connection.execute(update(documents).values(text="{}"))
    assert ada.get(f"/audits/{digest}").status_code == 500


def test_what_goes_wrong_is_a_page_without_its_innards(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = Person(shop).sign_in()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the secret word")

    monkeypatch.setattr(queue, "oldest", fails)
    answer = ada.get("/models")
    assert answer.status_code == 500
    assert "secret word" not in answer.text
    assert "Something went wrong" in answer.text
    monkeypatch.undo()
    with database.writing(shop.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE models RENAME TO gone")
    assert ada.get("/models").status_code == 503


def test_pages_and_programs_have_addresses_of_their_own(shop: Service) -> None:
    web = Web(shop)
    html, json = "text/html; charset=utf-8", "application/problem+json"
    for method, path, status, kind in (
        ("GET", "/nowhere", 404, html),
        ("GET", "/nowhere/api/v1", 404, html),
        ("GET", "/requests/none/approve", 404, html),
        ("GET", "/api/v1/nowhere", 404, json),
        ("GET", "/api/v1/ledger/verify", 405, json),
        ("GET", "/health", 200, "application/json"),
        ("GET", "/signin", 200, html),
    ):
        answer = web(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, kind), path
    assert not any(path in web.get("/api/v1/openapi.json")["paths"] for path in ("/", "/signin", "/tokens"))


def test_a_done_request_that_is_in_doubt_says_so(shop: Service) -> None:
    ada = Person(shop).sign_in()
    one = ada.submit(subjects="person-3")
    work(shop)
    with database.writing(shop.engine) as connection:
        connection.execute(update(requests).values(reason="the audit says: it remembers"))
    assert "But look at this: The audit says: it remembers." in words(ada.get(one))
    assert "done, with a doubt" in words(ada.get("/?state=all"))

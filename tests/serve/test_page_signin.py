"""Who may open which page, and whose forms are taken."""

import re
from typing import Any

import pytest

from tests.serve.person import HOSTILE, PAGES, Person
from unweave.serve import database, queue, tokens
from unweave.serve.service import Service


@pytest.fixture
def url() -> None:
    """SQLite is enough for pages."""


def test_who_is_not_signed_in_is_asked_for_a_token_and_sent_on(shop: Service) -> None:
    ada = Person(shop)
    for path in PAGES:
        answer = ada.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/signin?to=")
    assert ada.get("/nowhere").status_code == 404
    ada.get("/signin?to=%2Fmodels%2Fshop")
    assert ada.post("/signin", token="unweave_wrong", to="/models/shop").status_code == 403
    assert ada.post("/signin", token=ada.token, to="/models/shop").headers["location"] == "/models/shop"
    assert ada.get("/signin").headers["location"] == "/"
    for elsewhere in ("//evil.test", "https://evil.test", "/\\evil.test", "/%0d%0aSet-Cookie", "javascript:1", "/a\nb"):
        person = Person(shop)
        person.get("/signin")
        where = person.post("/signin", token=person.token, to=elsewhere).headers["location"]
        assert re.fullmatch(r"/[\w%-]*", where), where
    assert "go on to the page" in Person(shop).get("/signin?to=%2Fmodels", **{"Sec-Fetch-Site": "cross-site"}).text


def test_the_cookie_is_strict_and_secure_over_tls(shop: Service) -> None:
    def cookie(**settings: Any) -> str:
        ada = Person(shop, **settings)
        ada.get("/signin")
        return str(ada.post("/signin", token=ada.token).headers["set-cookie"])

    plain, behind = cookie(), cookie(behind_proxy=True)
    for each in (plain, behind):
        assert "HttpOnly" in each
        assert "SameSite=strict" in each
        assert "Path=/" in each
        assert "Domain" not in each
    assert "Secure" not in plain
    assert behind.startswith("__Host-")
    assert "Secure" in behind


def test_a_token_that_was_revoked_serves_no_more_at_once_and_one_signs_out(shop: Service) -> None:
    ada, other = Person(shop).sign_in(), Person(shop).sign_in()
    assert ada.get("/models").status_code == 200
    tokens.revoke(shop, ada.id)
    assert ada.get("/models").status_code == 303
    assert ada.post("/requests/new", model="shop", subjects="person-3").headers["location"] == "/signin"
    assert other.post("/signout").status_code == 303
    assert other.get("/models").status_code == 303


def test_only_forms_of_our_own_pages_are_taken(shop: Service) -> None:
    ada, eve = Person(shop).sign_in(), Person(shop).sign_in()
    for path in ("/requests/new", "/ledger", "/tokens", "/signout", f"/tokens/{eve.id}/revoke"):
        for seal in ("", "0" * 64, eve.seal, "ü"):
            assert ada.post(path, seal=seal, model="shop", subjects="person-3").status_code == 403
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "https://evil.test"},
            {"Origin": "http://service.test:81"},
            {"Origin": "http://[broken"},
            {"Origin": "null"},
            {"Origin": "https://evil.test", "Sec-Fetch-Site": "same-origin"},
        ):
            assert ada.post(path, headers, model="shop", subjects="person-3").status_code == 403, headers
    with database.reading(shop.engine) as connection:
        assert not queue.listed(connection)
    for number, headers in enumerate(
        ({}, {"Origin": "http://service.test"}, {"Origin": "null", "Sec-Fetch-Site": "same-origin"})
    ):
        ada.post("/requests/new", headers, model="shop", subjects="person-3", key=f"{number}")
    with database.reading(shop.engine) as connection:
        assert len(queue.listed(connection)) == 3
    stranger = Person(shop)
    assert stranger.post("/signin", token=ada.token).status_code == 403  # nobody is signed in by another site


def test_a_body_is_a_form_and_not_too_long(shop: Service) -> None:
    ada = Person(shop).sign_in()
    assert ada.ask("POST", "/tokens", json={"seal": ada.seal}).status_code == 415
    assert ada.post("/requests/new", subjects="x" * (1 << 21)).status_code == 413
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"\xff\xfe", b"a=%ff", b"&".join([b"a=1"] * 3000)):
        assert ada.ask("POST", "/requests/new", content=body, headers=kind).status_code == 422


def test_each_scope_opens_its_own_pages(shop: Service) -> None:
    one = Person(shop).sign_in().submit(subjects="person-3")
    opened = {
        "submit": {"/", "/requests/new"},
        "read": {"/", "/models", "/models/shop", "/ledger", one},
        "operate": {f"{one}/refuse"},
        "administer": {"/tokens"},
    }
    for scope, pages in opened.items():
        person = Person(shop, scope)
        person.get("/signin")
        person.post("/signin", token=person.token)
        for path in (*PAGES, one, f"{one}/refuse"):
            answer = person.get(path)
            assert (answer.status_code == 200) == (path in pages), (scope, path, answer.status_code)
    submitter = Person(shop, "submit").sign_in()
    own = submitter.submit(subjects="person-4")
    assert own.rpartition("/")[2][:8] in submitter.get("/?state=all").text
    assert one.rpartition("/")[2][:8] not in submitter.get("/?state=all").text
    assert submitter.get(own).status_code == 200
    for path in (
        f"{own}/approve",
        f"{own}/refuse",
        f"{own}/retry",
        "/ledger",
        "/tokens",
        f"/tokens/{submitter.id}/revoke",
    ):
        assert submitter.post(path, reason="x").status_code == 403


def test_models_out_of_reach_look_as_if_they_were_not_there(shop: Service) -> None:
    with database.reading(shop.engine) as connection:
        assert queue.counts(connection) == {}
    one = Person(shop).sign_in().submit(subjects="person-3")
    ada = Person(shop, "read", "submit", "operate", models=["shop"])
    with database.writing(shop.engine) as connection:  # there is a second model in its place
        connection.exec_driver_sql("UPDATE tokens SET models = '[\"other\"]' WHERE id = ?", (ada.id,))
    ada.sign_in()
    for path in ("/models/shop", one, f"{one}/evidence", f"{one}/refuse", "/?model=shop"):
        there, nowhere = ada.get(path), ada.get(path.replace("shop", "none").replace(one, "/requests/" + "0" * 32))
        assert there.status_code == nowhere.status_code == 404
        assert len(there.text) == len(nowhere.text)
    assert ada.post("/requests/new", model="shop", subjects="person-3").status_code == 404
    for action in ("approve", "retry"):
        assert ada.post(f"{one}/{action}").status_code == 404
    assert ada.get("/ledger").status_code == 403
    for path in ("/", "/models", "/requests/new"):
        assert "shop" not in ada.get(path).text


def test_tokens_are_made_shown_once_and_revoked(shop: Service) -> None:
    ada = Person(shop).sign_in()
    made = ada.post("/tokens", name=HOSTILE[:40], scopes=["read", "submit"], models=["shop"], days="7")
    token = re.search(r'value="(unweave_[\w-]+)"', made.text)
    assert token is not None
    bearer = tokens.bearer_of(shop, token[1])
    assert bearer is not None
    assert (bearer.scopes, bearer.models) == ({"read", "submit"}, {"shop"})
    again = ada.get("/tokens")
    assert token[1] not in again.text
    assert "<script" not in made.text + again.text
    for fields in ({"name": "x"}, {"name": "", "scopes": "read"}, {"name": "x", "scopes": "read", "days": "soon"}):
        assert ada.post("/tokens", **fields).status_code == 422
    assert ada.post(f"/tokens/{bearer.id}/revoke").status_code == 303
    assert tokens.bearer_of(shop, token[1]) is None
    for name in (bearer.id, "%00", "none"):
        assert ada.post(f"/tokens/{name}/revoke").status_code == 404

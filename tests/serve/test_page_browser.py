"""The pages in a real browser, with a real server and a real worker: a request from sign-in to its evidence."""

import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.auditing.test_browser import LOOK
from tests.serve.person import app_of
from tests.serve.test_service import work
from unweave.serve import queue, tokens
from unweave.serve.evidence import verify_package
from unweave.serve.policy import Policy
from unweave.serve.registry import set_policy
from unweave.serve.service import Service
from unweave.serve.worker import Worker

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")

SHAPE = """() => {
  const problems = [], heads = [...document.querySelectorAll("h1, h2, h3, h4")].map((h) => Number(h.tagName[1]));
  if (heads.filter((level) => level === 1).length !== 1 || heads[0] !== 1) problems.push(`headings ${heads}`);
  heads.forEach((level, i) => { if (i && level > heads[i - 1] + 1) problems.push(`headings ${heads}`); });
  if (document.documentElement.lang !== "en" || !document.title) problems.push("no language or title");
  for (const each of document.querySelectorAll("input:not([type=hidden], [hidden]), select, textarea")) {
    if (![...each.labels].some((label) => label.textContent.trim())) problems.push(`no label: ${each.outerHTML}`);
  }
  for (const each of document.querySelectorAll("button, a[href], summary")) {
    if (!each.textContent.trim()) problems.push(`no name: ${each.outerHTML}`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption || table.querySelector("th:not([scope])")) problems.push("a table without caption or scope");
    const around = table.closest("[role=region][tabindex='0'][aria-label]");
    if (!around) problems.push("a table that cannot be scrolled by keys");
  }
  for (const each of document.querySelectorAll("[style], script")) problems.push(each.outerHTML);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) problems.push("an id twice");
  return problems;
}"""
"""What is wrong with how a page is built."""


@pytest.fixture
def url() -> None:
    """SQLite is enough for a browser."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (unweave[dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with api.sync_playwright() as driver:
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", nowhere])
        yield found
        found.close()


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The address of a server of our own."""
    config = uvicorn.Config(app_of(service), port=0, lifespan="off", ws="none", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def working(service: Service) -> Iterator[None]:
    """A worker beside the server."""
    stop = threading.Event()
    thread = threading.Thread(target=Worker(service).work, args=(stop,), kwargs={"every": 0.1})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def address(shop: Service) -> Iterator[str]:
    with served(shop) as found:
        yield found


def opened(browser: Any, address: str, token: str, width: int = 1280, scheme: str = "light") -> tuple[Any, list[str]]:
    """A window of somebody who has signed in, and a list of what it should not have said or asked for."""
    context = browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme)
    page, strange = context.new_page(), list[str]()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: strange.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: strange.append(f"error: {error}"))
    page.on("request", lambda request: None if request.url.startswith(f"{address}/") else strange.append(request.url))
    page.goto(address)
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Requests").wait_for()
    return page, strange


def look(page: Any) -> list[str]:
    """Everything that is wrong with a page as it is built and shown."""
    found = [*page.evaluate(SHAPE), *page.evaluate(LOOK, 12)["problems"]]
    page.evaluate(AXE)
    for each in page.evaluate("() => axe.run().then((found) => found.violations)"):
        found += [f"{each['id']}: {each['help']}: {node['html']}" for node in each["nodes"]]
    return found


def submit(page: Any, *subjects: str) -> None:
    page.get_by_role("link", name="New request").click()
    page.get_by_label("Everything of these people or things").fill("\n".join(subjects))
    page.get_by_role("button", name="Submit the request").click()


def test_a_request_from_sign_in_to_its_evidence(browser: Any, shop: Service, address: str, tmp_path: Path) -> None:
    page, strange = opened(browser, address, tokens.new_token(shop, "Ada", list(tokens.SCOPES))[1])
    submit(page, "person-3", "nobody")
    page.get_by_role("heading", name="Nothing was submitted yet").wait_for()
    assert len(strange) == 1
    assert "a status of 422" in strange[0]
    strange.clear()
    field = page.get_by_label("Everything of these people or things")
    assert field.input_value() == "person-3\nnobody"
    field.fill("person-3")
    page.get_by_role("button", name="Submit the request").dblclick()
    page.get_by_text("waits to be screened").wait_for()
    where = page.url
    with working(shop):
        page.get_by_text("This request is done.").wait_for()  # the page looks again by itself
    assert page.url == where
    page.get_by_text("Data removed from the graph: yes").first.wait_for()
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download the evidence").click()
    coming.value.save_as(tmp_path / "evidence.zip")
    found = verify_package(tmp_path / "evidence.zip")
    assert where.endswith(found.request)
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_role("link", name=re.compile("1 done")).click()
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    page.goto(where)
    assert "/signin" in page.url
    assert strange == []
    page.context.close()


def test_a_flagged_request_is_approved_and_another_one_refused(
    browser: Any, shop: Service, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    monkeypatch.setattr(Worker, "_look", lambda *_: {"flagged": True, "statement": "far from random"})
    page, strange = opened(browser, address, tokens.new_token(shop, "Ada", list(tokens.SCOPES))[1], 360)
    with working(shop):
        submit(page, "person-3")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("This request is done.").wait_for()
        submit(page, "person-4")
        page.get_by_text("waits for an approval").wait_for()
        page.get_by_role("link", name="Refuse with a reason").click()
        page.get_by_label("Reason").fill("it was an attack")
        page.get_by_role("button", name="Refuse for good").click()
        page.get_by_text("This request was refused.").wait_for()
    assert "It was an attack." in page.locator(".timeline").inner_text()
    assert strange == []
    page.context.close()


@pytest.fixture
def busy(shop: Service) -> Service:
    """Requests in many states."""
    for number in (3, 4):
        queue.submit(shop, "shop", {"subjects": [f"person-{number}"]})
        work(shop)
    set_policy(shop, "shop", Policy(method="gif", screen=False, within=3600.0, deadline=1e-3))
    queue.submit(shop, "shop", {"subjects": ["person-5"], "edges": [["person-6", "person-7"]], "note": "by mail"})
    work(shop)
    long = "x" * 255
    queue.refuse(shop, queue.submit(shop, "shop", {"subjects": ["person-8"]}).row.id, by="somebody", reason=long)
    return shop


def look_at(page: Any, screens: Sequence[tuple[int, str]]) -> list[str]:
    """What is wrong with a page on one screen after another."""
    found = []
    for width, scheme in screens:
        page.set_viewport_size({"width": width, "height": 740})
        page.emulate_media(color_scheme=scheme)
        found += [f"{width} {scheme}: {each}" for each in look(page)]
    return found


@pytest.mark.parametrize(
    "screens",
    [
        pytest.param(((360, "dark"), (1280, "light")), id="corners"),
        pytest.param(((360, "light"), (1280, "dark")), id="others", marks=pytest.mark.slow),
    ],
)
def test_every_page_is_legible_and_has_names_for_all_it_has(
    browser: Any, busy: Service, screens: Sequence[tuple[int, str]]
) -> None:
    with served(busy) as address:
        page, strange = opened(browser, address, tokens.new_token(busy, "Ada", list(tokens.SCOPES))[1])
        page.goto(f"{address}/?state=all")
        links = page.locator("tbody th a").evaluate_all("(all) => all.map((each) => each.getAttribute('href'))")
        assert len(links) == 4
        paths = ["/?state=all", "/requests/new", "/models", "/models/shop", "/ledger", "/tokens", *links]
        for path in [*paths, f"{links[1]}/refuse"]:
            page.goto(f"{address}{path}{'?still=1' if path in links else ''}")
            page.evaluate("() => document.querySelectorAll('details').forEach((each) => each.open = true)")
            assert look_at(page, screens) == [], path
        assert strange == []
        for path in ("/nowhere", "/signin"):
            page.context.clear_cookies()
            page.goto(f"{address}{path}")
            assert look_at(page, screens) == [], path
        page.context.close()


def test_pages_are_used_by_keys_alone(browser: Any, busy: Service) -> None:
    with served(busy) as address:
        page, _ = opened(browser, address, tokens.new_token(busy, "Ada", list(tokens.SCOPES))[1])
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
        box = page.locator(".skip").bounding_box()
        assert box["width"] > 50
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        assert page.locator("nav [aria-current=page]").inner_text() == "Requests"
        page.context.close()

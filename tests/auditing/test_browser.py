"""The report in a real browser: quiet, alone, as wide as the screen and legible, on a phone, a desk and paper."""

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.audits import VERDICTS, made_audit
from tests.cases import pairwise
from unweave.auditing import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

LOOK = """(least) => {
  const problems = [];
  const page = document.documentElement, wide = page.clientWidth;
  if (page.scrollWidth > wide) problems.push(`the page is ${page.scrollWidth} wide`);
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const straight = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * straight(c[i] / 255), 0.05);
  const contrast = (a, b) => Math.max(light(a), light(b)) / Math.min(light(a), light(b));
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const words = walker.currentNode.textContent.trim();
    if (!words || element.closest("title") || !element.checkVisibility()) continue;
    texts += 1;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    if (parseFloat(style.fontSize) < least) problems.push(`${style.fontSize}: ${words}`);
    const ink = parse(drawn ? style.fill : style.color);
    const grounds = [behind(element)];
    const band = drawn && element.ownerSVGElement.querySelector(".band");
    if (band) grounds.push(parse(getComputedStyle(band).fill));
    for (const ground of grounds) {
      if (contrast(ink, ground) < 4.5) problems.push(`contrast ${contrast(ink, ground).toFixed(2)}: ${words}`);
    }
    const box = element.getBoundingClientRect();
    const free = element.closest(".scroll, thead");
    if (!free && (box.right > wide + 1 || box.left < -1)) problems.push(`outside of the page: ${words}`);
  }
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > wide && matchMedia("print").matches) problems.push("a table is cut off");
  }
  const figures = [...document.querySelectorAll("svg[role=img]")];
  for (const figure of figures) {
    const box = figure.getBoundingClientRect(), marks = [...figure.querySelectorAll("circle, path, line")];
    if (box.width < 60 || box.height < 20) problems.push(`a figure of ${box.width} x ${box.height}`);
    if (!figure.querySelector("title")?.textContent) problems.push("a figure without words");
    if (!marks.some((mark) => { const b = mark.getBoundingClientRect(); return b.width + b.height > 0; })) {
      problems.push("an empty figure");
    }
  }
  return { problems, texts, figures: figures.length };
}"""
"""Everything that is wrong with a page as it is shown, and how much was looked at."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (unweave[dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with api.sync_playwright() as driver:
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND"
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", nowhere])
        yield found
        found.close()


def opened(browser: Any, path: Path, width: int, scheme: str = "light") -> tuple[Any, list[str]]:
    """A page in a window of that width, and a list that everything it says or asks for is put into."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("request", lambda request: heard.append(request.url))
    page.route("**/*", lambda route: route.continue_() if route.request.url == path.as_uri() else route.abort())
    page.goto(path.as_uri())
    return page, heard


SETTINGS = [
    {"width": width, "scheme": scheme, "verdict": verdict}
    for width, scheme, verdict in product((360, 1280), ("light", "dark"), VERDICTS)
]


@pytest.mark.parametrize(
    ("width", "scheme", "verdict"),
    [
        pytest.param(*settings.values(), marks=[] if needed else [pytest.mark.slow])
        for settings, needed in zip(SETTINGS, pairwise(SETTINGS), strict=True)
    ],
)
def test_on_a_screen(browser: Any, tmp_path: Path, width: int, scheme: str, verdict: str) -> None:
    found = made_audit(verdict)
    path = write_report(found, tmp_path / "audit.html", models="audit.models", command="unweave audit a b --json")
    page, heard = opened(browser, path, width, scheme)
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => each.open = true)")
    seen = page.evaluate(LOOK, 12)
    assert seen["problems"] == []
    assert seen["texts"] > 150
    assert seen["figures"] == 2 * len(found.evidence) + 1
    assert heard == [path.as_uri()]
    page.close()


def test_on_paper(browser: Any, tmp_path: Path) -> None:
    """On A4 nothing is cut off, letters are at least 7 points high, and the receipt is printed though it is closed."""
    path = write_report(made_audit(), tmp_path / "audit.html")
    page, heard = opened(browser, path, 688, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    seen = page.evaluate(LOOK, 7 * 96 / 72)
    assert seen["problems"] == []
    assert page.locator(".printed dd").first.bounding_box()["height"] > 0
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert heard == [path.as_uri()]
    page.close()


def test_what_is_wrong_is_noticed(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<p style='width: 900px; font-size: 9px; color: #aaa'>small and pale</p><img src='http://example.org/x.png'>"
        "<svg role='img' width='300' height='100'></svg><script>console.log('here')</script>"
    )
    page, heard = opened(browser, path, 360)
    found = " ".join(page.evaluate(LOOK, 12)["problems"])
    for problem in ("wide", "9px", "contrast", "outside", "without words", "an empty figure"):
        assert problem in found
    assert "console: here" in heard
    assert "http://example.org/x.png" in heard
    page.close()

"""The report of a repair, and the command that writes it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import unweave as uw
from tests.auditing.test_browser import CHROMIUM, LOOK
from tests.auditing.test_report import Page
from tests.cli.test_cli import refused, unweave
from tests.repairing.planted import Planted
from unweave.datasets.own import read_graph
from unweave.repairing import write_report
from unweave.repairing.report.page import render_report


def truth_of(graph: Planted) -> uw.Request:
    return uw.Request(labels=graph.nodes.tolist(), edges=[(u, v) for u, v in graph.edges.tolist()])


def test_the_page_says_what_was_found_and_done(repaired: uw.Repair, graph: Planted) -> None:
    page = Page(render_report(repaired, truth=truth_of(graph)))
    done = len(repaired.done)
    assert f"Better without {done} suspects" in page.text
    for kind in ("labels", "edges"):
        first = repaired.of(kind)[0]
        assert first.name in page.text
        assert first.why in page.text
    assert "are known to be wrong" in page.text
    assert page.documents[0] == json.loads(json.dumps(repaired.to_dict()))
    assert not any(value.startswith(("http", "//")) for value in page.values("href") + page.values("src"))
    classes = repaired.by_class()
    assert sum(count for count, _, _ in classes.values()) == len(repaired.deciding)
    assert "known to be wrong" not in render_report(repaired)


def test_a_repair_that_kept_nothing_says_so(repaired: uw.Repair) -> None:
    left = tuple(replace(suspect, action="left", round=0) for suspect in repaired.suspects)
    none = replace(repaired, run=repaired.before, suspects=left, held_out=(repaired.held_out[0],) * 2)
    page = Page(render_report(none))
    assert "Nothing was kept" in page.text
    assert "as it was" in page.text


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_opens_in_a_browser(repaired: uw.Repair, graph: Planted, tmp_path: Path, width: int) -> None:
    api: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (unweave[dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    file = write_report(repaired, tmp_path / "repair.html", truth=truth_of(graph))
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800})
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        found = page.evaluate(LOOK, 11)
        browser.close()
    assert found["problems"] == []
    assert found["figures"] >= 12
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_the_command_writes_run_graph_and_report(
    graph: Planted, run: uw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(graph.data.to_dict(), "graph.pt")
    run.save("a")
    how = ("--report", "b.html", "--rounds", 1, "--kinds", "labels", "--json")
    done = unweave("repair", "a", "--data", "graph.pt", "--out", "b", *how)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["held_out"]["after"]["loss"] < told["held_out"]["before"]["loss"]
    assert "Better without" in Path("b.html").read_text(encoding="utf-8")
    data = read_graph("b.pt") if told["graph"] else graph.data
    assert len(uw.Run.open("b", data=data).receipts) > 0
    assert len(uw.Run.open("a", data=graph.data).receipts) == 0
    refused(unweave("repair", "a", "--data", "graph.pt", "--out", "b"), "exists already")
    kept = {name: Path(name).read_bytes() for name in ("graph.pt", "b.html")}
    Path("d.pt").write_bytes(b"another's")
    refused(unweave("repair", "a", "--data", "graph.pt", "--out", "d"), "d.pt exists already")
    refused(unweave("repair", "a", "--data", "graph.pt", "--out", "e", "--graph", "b.html"), "exists already")
    same = ("--data", "graph.pt", "--out", "e", "--graph", "graph.pt", "--overwrite")
    refused(unweave("repair", "a", *same), "the graph of the run")
    refused(unweave("repair", "a", "--data", "graph.pt", "--out", "a", "--overwrite"), "the run that is repaired")
    assert {name: Path(name).read_bytes() for name in kept} == kept
    assert Path("d.pt").read_bytes() == b"another's"
    assert unweave("repair", "a", "--out", "c", "--report", "c.txt").exit_code == 2

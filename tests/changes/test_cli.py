"""``unweave update``: a change from a file, a new run and the graph as it is then."""

import json
from pathlib import Path

import pytest

import unweave as uw
from tests.cli.test_cli import refused, unweave
from unweave.datasets.own import read_graph


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert unweave("train", "--data", "demo", "--model", "sgc", "--epochs", 20, "--out", "a").exit_code == 0
    node = {"features": [1.0] + [0.0] * 599, "label": 1, "edges": [3, 4]}
    change = {"add": {"nodes": [node]}, "correct": {"labels": {"5": 1}}, "forget": {"nodes": [9]}, "id": "day 1"}
    Path("change.json").write_text(json.dumps(change))
    return tmp_path


def test_a_run_follows_a_file(home: Path) -> None:
    told = unweave("update", "a", "--change", "change.json", "--dry-run")
    assert told.exit_code == 0, told.stderr
    assert "To add     1 node and 2 edges" in told.stdout
    assert not Path("b").exists()
    done = unweave("update", "a", "--change", "change.json", "--out", "b", "--graph", "b.pt")
    assert done.exit_code == 0, done.stderr
    assert "day 1: 1 node and 2 edges to add" in done.stdout
    assert "1 of data that was added or corrected" in unweave("show", "b").stdout
    assert unweave("verify", "b", "--data", "b.pt").exit_code == 0
    refused(unweave("verify", "b"), "pass as data= (--data)")
    again = unweave("forget", "b", "--forget", "edges:0.01", "--data", "b.pt", "--out", "c", "--json")
    assert again.exit_code == 0, again.stderr
    assert uw.Run.open("c", data=uw.Run.open("b", data=read_graph("b.pt")).data).data.num_nodes == 2001


def test_what_cannot_be_done_is_said_first(home: Path) -> None:
    assert "--graph FILE.pt" in unweave("update", "a", "--change", "change.json", "--out", "b").stderr
    Path("bad.json").write_text('{"correct": {"labels": {"5": 99}}}')
    refused(unweave("update", "a", "--change", "bad.json", "--out", "b", "--graph", "b.pt"), "classes 0 … 5")
    assert not Path("b").exists()
    assert unweave("update", "--help").exit_code == 0

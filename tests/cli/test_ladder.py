"""The ladder on the command line: calibrate, forget by it, and streams of requests."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_cli import refused, unweave
from tests.scripts import small_demo


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph is all of it."""
    with small_demo():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    options = ("--data", "demo", "--model", "sgc", "--epochs", 20, "--checkpoints", "0.1,0.5", "--out", path / "a")
    assert unweave("train", *options).exit_code == 0
    done = unweave("calibrate", path / "a", "--deletions", 13)
    assert done.exit_code == 0, done.stderr
    assert "calibrating: 13 of 13" in done.stderr
    for words in (
        "13 of 13 simulated deletions",
        "replay(share=0.5)",
        "times a retraining",
        "Gain",
        "0 as if nothing was done",
    ):
        assert words in done.stdout
    assert "intervals held in" in done.stdout
    return path


def test_calibrate_goes_on_and_prints_json(folder: Path) -> None:
    done = unweave("calibrate", folder / "a", "--deletions", 13, "--json")
    assert done.stderr == "", "nothing is measured twice"
    found = json.loads(done.stdout)
    assert found["deletions"] == 13
    assert 0 <= found["held_back"]["coverage"] <= 1
    figures = found["rungs"]["replay(share=0.5)"]
    assert figures["cost"] > found["rungs"]["gif"]["cost"]
    assert figures["closed"]["edges:0.1"]["low"] <= figures["closed"]["edges:0.1"]["estimate"]


def test_forget_by_a_budget_and_by_a_wish(folder: Path) -> None:
    done = unweave(
        "forget", folder / "a", "--forget", "edges:0.05", "--method", "auto", "--budget", "90%", "--out", folder / "b"
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Verdict    Data removed from the graph: yes. Model: believed to have come")
    assert "Asked for at most 0.9 of a retraining" in done.stdout
    assert "13 simulated deletions" in done.stdout
    options = ("--forget", "nodes:0.02", "--method", "auto", "--at-least", 0.999, "--out", folder / "c", "--json")
    done = unweave("forget", folder / "b", *options)
    receipt = json.loads(done.stdout)["receipt"]
    assert receipt["ladder"]["asked"] == {"budget": None, "at_least": 0.999}
    assert receipt["verdict"].startswith("Data removed from the graph: yes.")
    shown = unweave("show", folder / "b")
    assert "Calibrated 13 simulated deletions" in shown.stdout
    assert "Standing   1 since training, believed closed" in shown.stdout


def test_budgets_that_make_no_sense_are_refused(folder: Path, tmp_path: Path) -> None:
    given = ("forget", folder / "a", "--forget", "edges:0.05", "--out", tmp_path / "b")
    refused(unweave(*given, "--method", "auto", "--budget", "5"), "budget must be a share")
    refused(unweave(*given, "--method", "auto", "--budget", "0.1%"), "the cheapest rung")
    refused(unweave(*given, "--budget", "0.1%"), "the cheapest rung")
    refused(unweave(*given, "--batch"), "--batch goes with --request FILE.jsonl", code=2)
    assert not (tmp_path / "b").exists()


def test_a_stream_of_requests(folder: Path, tmp_path: Path) -> None:
    stream = tmp_path / "requests.jsonl"
    stream.write_text('{"edges": [[2, 146]]}\n{"nodes": [12]}\n{"labels": [12]}\n{"nodes": [12, 13]}\n')
    given = ("forget", folder / "a", "--request", stream, "--method", "gif")
    done = unweave(*given, "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("Request    ") == 4
    assert "Nothing to do: earlier requests had taken 1 label" in done.stdout
    assert "Nothing is pending" in unweave("verify", tmp_path / "b").stdout
    done = unweave(*given, "--batch", "--out", tmp_path / "c", "--json")
    (receipt,) = json.loads(done.stdout)["receipts"]
    assert receipt["request"] == {"edges": [[2, 146]], "labels": [12], "nodes": [12, 13]}
    again = unweave("forget", tmp_path / "b", *given[2:], "--out", tmp_path / "b", "--overwrite", "--json")
    assert {receipt["status"] for receipt in json.loads(again.stdout)["receipts"]} == {"nothing to do"}
    refused(unweave(*given, "--out", tmp_path / "b"), "exists already")

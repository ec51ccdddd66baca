"""The ladder on the command line: calibrate, forget by it, and streams of requests."""

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import unweave


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    options = ("--data", "demo", "--model", "sgc", "--epochs", 20, "--checkpoints", "0.1,0.5", "--out", path / "a")
    assert unweave("train", *options).exit_code == 0
    done = unweave("calibrate", path / "a", "--deletions", 13)
    assert done.exit_code == 0, done.stderr
    assert "calibrating: 13 of 13" in done.stderr
    for words in ("13 of 13 simulated deletions", "replay(share=0.5)", "times a retraining", "Gain"):
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

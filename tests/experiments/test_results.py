"""Result files: what goes in comes out, nothing is measured twice, and nothing that does not belong is kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import unweave as uw
from unweave.experiments.paper.results import Cell, Measured, Results, commit

CELL = Cell("demo", "gcn", "edges:0.05", (("a", "a"), ("b", "b(x=1)")))
HERE = {"device_name": "one", "torch": "2"}


def trial(**f1: float) -> Measured:
    return Measured({method: {"f1": value, "cost": 0.5} for method, value in f1.items()})


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    results = Results(tmp_path, "x")
    results.add(
        CELL, 1, Measured({"a": {"f1": 0.25, "cost": None}, "none": {"f1": 0.123456789}}, {"b": "no"}), HERE, "c1"
    )
    results.add(CELL, 0, trial(a=0.75, b=0.5), HERE, "c2")
    for found in (results, Results(tmp_path, "x")):
        assert list(found) == ["gcn demo edges:0.05"]
        name = CELL.name
        assert found.values(name, "a", "f1") == [0.75, 0.25]
        assert found.mean(name, "a", "f1") == 0.5
        assert found.std(name, "a", "f1") == pytest.approx(0.35355, abs=1e-5)
        assert found.values(name, "a", "cost") == [0.5]
        assert found.values(name, "none", "f1") == [0.12346]
        assert found.failures(name, "b") == {1: "no"}
        assert found.seeds(name, "b") == [0, 1]
        assert found.mean(name, "absent", "f1") is None
        assert found.methods(name) == ["a", "none", "b"]
        assert found.commits() == ["c1", "c2"]
        assert found.environments() == [HERE]
        assert found.trials(name) == 2
        assert found.config(name) == CELL.config
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("demo,gcn,edges:0.05,False,0.0001,a,2,0,0.5,")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    results = Results(tmp_path, "x")
    assert results.missing(CELL, 0) == CELL.methods
    results.add(CELL, 0, Measured({"a": {"f1": 1.0}}, {"b": "diverged"}), HERE, "c")
    assert results.missing(CELL, 0) == ()
    assert results.missing(CELL, 1) == CELL.methods
    assert results.measured(CELL, 0)
    assert not results.measured(CELL, 1)
    more = replace(CELL, methods=(*CELL.methods, ("new", "new")))
    assert results.missing(more, 0) == (("new", "new"),)
    other = replace(CELL, methods=(("b", "b(x=2)"),))
    assert results.missing(other, 0) == other.methods
    assert results.missing(replace(CELL, epochs=7), 0) == CELL.methods


def test_a_figure_measured_first_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path, "x")
    results.add(CELL, 0, trial(a=0.25, none=0.5), HERE, "c")
    results.add(CELL, 0, trial(b=0.75, none=0.9), HERE, "c")
    assert results.values(CELL.name, "none", "f1") == [0.5]
    assert results.values(CELL.name, "b", "f1") == [0.75]


def test_other_settings_replace_a_cell_or_a_method(tmp_path: Path) -> None:
    results = Results(tmp_path, "x")
    results.add(CELL, 0, trial(a=0.25, b=0.5), HERE, "c")
    results.add(replace(CELL, methods=(("b", "b(x=2)"),)), 1, trial(b=0.75), HERE, "c")
    assert results.values(CELL.name, "b", "f1") == [0.75]
    assert results.values(CELL.name, "a", "f1") == [0.25]
    results.add(replace(CELL, epochs=3), 0, trial(a=0.125), HERE, "c")
    assert results.methods(CELL.name) == ["a"]
    assert results.values(CELL.name, "a", "f1") == [0.125]


def test_a_row_comes_from_one_device(tmp_path: Path) -> None:
    results, there = Results(tmp_path, "x"), HERE | {"device_name": "two"}
    results.add(CELL, 0, trial(a=0.25), HERE, "c")
    results.add(CELL, 1, trial(b=0.75), there, "c")
    results.add(CELL, 2, trial(b=0.25), there, "d")
    with pytest.raises(uw.UnweaveError, match="from one with torch 2, and this is two"):
        results.add(CELL, 1, trial(a=0.5), there, "c")
    for found in (results, Results(tmp_path, "x")):
        assert found.values(CELL.name, "b", "f1") == [0.75, 0.25]
        assert found.elsewhere(CELL.name, "b") == "two"
        assert found.elsewhere(CELL.name, "a") is None
        assert found.environments() == [HERE, there]
    rows = {row["method"]: row for row in json.loads((tmp_path / "x.json").read_text())["cells"][0]["rows"]}
    assert rows["b"]["commits"] == ["c", "d"]
    assert rows["a"]["commits"] == ["c"]


def test_a_row_with_new_options_may_move_to_another_device(tmp_path: Path) -> None:
    results, there = Results(tmp_path, "x"), HERE | {"device_name": "two"}
    results.add(CELL, 0, trial(a=0.25), HERE, "c")
    results.add(CELL, 0, trial(b=0.75), there, "c")
    again = replace(CELL, methods=(("b", "b(x=2)"),))
    for seed in range(2):
        results.add(again, seed, trial(b=0.5), HERE, "d")
    assert results.values(CELL.name, "b", "f1") == [0.5, 0.5]
    assert results.elsewhere(CELL.name, "b") is None


def test_files_that_are_none_of_ours_are_refused(tmp_path: Path) -> None:
    for text in ("", "[]", json.dumps({"format": "other", "cells": []}), json.dumps({"format": "unweave-results-1"})):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(uw.RunError, match="does not hold results of this version"):
            Results(tmp_path, "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(uw.UnweaveError, match="cannot write"):
        Results(tmp_path / "file", "x").add(CELL, 0, trial(a=1.0), HERE, "c")


def test_the_commit_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit()
    monkeypatch.setenv("UNWEAVE_COMMIT", "abc")
    assert commit() == "abc"

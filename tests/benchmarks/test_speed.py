"""The benchmark of speed: cells go on where they stopped, graphs of any size."""

import json
import sys
from pathlib import Path
from typing import Any

import generated
import pytest
import speed
import speed_large
import speed_rows
import torch
from pages.parts import Page

import unweave as uw
from unweave.testing import small_graph


def test_a_generated_graph_is_what_was_asked_for() -> None:
    data = generated.planted(3000, 30_000, features=16, classes=5, seed=3)
    again = generated.planted(3000, 30_000, features=16, classes=5, seed=3)
    assert torch.equal(data.edge_index, again.edge_index)
    assert torch.equal(data.x, again.x)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert data.is_coalesced() or data.coalesce().num_edges == data.num_edges
    assert 29_000 < data.num_edges <= 30_000
    same = (data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).double().mean()
    assert 0.8 < same < 0.88  # 0.8 on purpose, and a fifth of the others by chance
    run = uw.train(uw.models.SGC(16, 5), data, epochs=30)
    assert 0.6 < run.metrics["test_f1"] < 0.999


def test_cells_are_written_as_they_are_done_and_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def measure(cell: str, device: str) -> dict[str, Any]:
        done.append(cell)
        if cell == "bad":
            raise uw.UnweaveError("it cannot be")
        return {"nodes": int(cell), "train_seconds": 1.0}

    cells = speed.Measurement(measure, ("1", "bad", "2"))
    monkeypatch.setattr(speed, "MEASUREMENTS", {"edge": cells, "products": speed.Measurement(measure, ("3",), "cuda")})
    arguments = ["speed.py", "--out", str(tmp_path)]
    for expected in (["1", "bad", "2"], ["bad"]):
        done.clear()
        monkeypatch.setattr(sys, "argv", arguments)
        if expected == ["bad"]:
            (tmp_path / "README.md").unlink()
        monkeypatch.setattr(speed, "PAGE", Page("Speed", lambda out: None, lambda found: []))
        speed.main()
        assert done == expected
    found = json.loads((tmp_path / "cpu.json").read_text())
    assert found["edge"]["bad"]["error"] == "UnweaveError: it cannot be"
    assert found["edge"]["1"]["command"] == "python benchmarks/speed.py --device cpu --only edge"
    assert "torch" in found["edge"]["1"]["environment"]
    assert (tmp_path / "README.md").exists()
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_are_measured_on_a_small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_large, "EPOCHS", 10)
    monkeypatch.setattr(speed_large, "REPEATS", 1)
    monkeypatch.setattr(speed_rows, "SEEDS", 1)
    monkeypatch.setattr(speed_rows, "graph_of", lambda name, seed, device: small_graph(seed=seed))
    found = speed_large.edge("1000", "cpu")
    assert found["whole"]["passes"] > 0
    assert ("seconds" in found["deferred"]) != ("failure" in found["deferred"])
    large = speed_large.products("500 5e3", "cpu")
    assert large["whole"]["cost"] > 0
    assert large["whole"]["gap_closed"] <= 1
    rows = speed_rows.ordinary("sgc small", "cpu")["seeds"]
    assert rows[0]["converged"]["gap_closed"] > 0
    path = speed_rows.forgettable("sgc small", "cpu")["seeds"][0]["path"]
    assert path[-1]["gap_closed"] >= 0.95
    assert path[-1]["passes"] >= path[0]["passes"]


@pytest.mark.slow
def test_a_process_of_its_own_is_watched() -> None:
    found = speed_large.million("500 5e3", "cpu")
    assert found["peak_gib"] > 0.05
    assert found["passes"] > 0

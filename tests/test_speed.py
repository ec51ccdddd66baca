"""The benchmark of speed: cells go on where they stopped, the page comes from the files, graphs of any size."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import unweave as uw
from unweave.testing import small_graph

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
import generated
import speed
import speed_large
import speed_page
import speed_rows


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
        monkeypatch.setattr(speed, "page", lambda results: "page")
        speed.main()
        assert done == expected
    found = json.loads((tmp_path / "cpu.json").read_text())
    assert found["edge"]["bad"]["error"] == "UnweaveError: it cannot be"
    assert found["edge"]["1"]["command"] == "python benchmarks/speed.py --device cpu --only edge"
    assert "torch" in found["edge"]["1"]["environment"]
    assert (tmp_path / "README.md").exists()
    assert "FAILED" in capsys.readouterr().out


def bench_cell(**figures: float) -> dict[str, Any]:
    own = {"method": "gif, prepared", "seconds": 0.004, "cost": 0.02, "faster_than_published": 40.0, "passes": 9}
    own["faster_than_sped_up"] = 12.0
    others = [{"method": name, "gap_closed": 0.1, "peak_mib": 2048.0} for name in ("gif", "finetune", "gif-published")]
    return {
        "rows": [own | {"peak_mib": 100.0, "gap_closed": 0.9, "times_the_floor": 30.0} | figures, *others],
        "once": {"prepare_of_training": 0.5, "polish_of_adam": 2.5, "stationarity": 1e-5},
        "environment": {"device_name": "here", "threads": 1, "torch": "2", "torch_geometric": "2"},
        "command": "python benchmarks/speed.py",
        "commit": "abc",
    }


def reached(page: str, what: str) -> list[str]:
    return [line.split("|")[-2].strip() for line in page.splitlines() if line.startswith("| ") and what in line]


def test_the_page_says_what_is_reached_and_what_is_not() -> None:
    good = {cell: bench_cell() for cell in speed.MEASUREMENTS["request"].cells}
    slow = good | {"ordinary gcn cora": bench_cell(cost=0.4, seconds=0.007)}
    page = speed_page.page({"gpu": {"request": good}, "other": {"request": slow}})
    assert reached(page, "GCN and SGC") == ["yes", "no"]
    assert reached(page, "GAT and GIN") == ["yes", "yes"]
    assert reached(page, "absolute") == ["yes", "no"]
    assert reached(page, "one edge") == ["–"]
    assert "ordinary gcn cora (40%)" in page
    part = speed_page.page({"gpu": {"request": {"ordinary gcn cora": bench_cell()}}})
    assert reached(part, "GCN and SGC") == ["31 cells are not measured"]
    assert {name: len(m.cells) for name, m in speed.MEASUREMENTS.items()} == speed_page.WHOLE
    assert "Nothing has been measured" in speed_page.page({})
    broken = speed_page.page({"cpu": {"edge": {"10000": bench_cell() | {"error": "it broke"}}}})
    assert "Error: it broke" in broken
    assert reached(broken, "one edge") == ["no"]


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


def test_the_committed_page_is_made_from_the_committed_files() -> None:
    results = speed.read(speed.RESULTS)
    if results:
        assert (speed.RESULTS / "README.md").read_text(encoding="utf-8") == speed_page.page(results)

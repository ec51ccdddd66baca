"""The matrix of the ladder: one training of it, whole, and what its page says of lines made up for it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import ladder_matrix
import ladder_matrix_page


def asked(out: Path, **given: Any) -> argparse.Namespace:
    usual = {"data": "demo", "models": "sgc", "ways": "ordinary", "forget": "edges:0.05,flipped:0.2", "device": "cpu"}
    return argparse.Namespace(**usual | {"seeds": 2, "deletions": 1, "out": out} | given)


def line(closed: dict[str, float], cost: dict[str, float], seed: int = 0) -> dict[str, Any]:
    figures = {m: {"gap_closed": closed[m], "cost": cost[m]} for m in closed}
    return {
        "way": "ordinary",
        "device": "cpu",
        "data": "cora",
        "model": "gcn",
        "forget": "edges:0.05",
        "split": seed,
        "seed": seed,
        "calibration": {"deletions": 3},
        "believed": {"gif": {"closed": 0.5, "low": 0.4, "high": 0.6, "cost": 0.06}},
        "methods": figures,
        "auto": {m: {"rung": "gif"} for m in closed if m.startswith("auto")},
        "commit": "0" * 40,
        "environment": {"device_name": "x", "torch": "2"},
    }


def test_trainings_are_shared_and_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    tasks = list(ladder_matrix.wanted(asked(tmp_path)))
    assert [(t.forget, t.split, t.seed) for t in tasks] == [
        ((forget,), split, seed) for split, seed in ((0, 0), (1, 1), (0, 1)) for forget in ("edges:0.05", "flipped:0.2")
    ]
    task, lines, calibration = ladder_matrix.measure(tasks[0])
    assert calibration["calibration"]["deletions"]
    (found,) = lines
    assert {"none", "finetune", "retrain", "retrain (other seed)", "replay(share=0.2)"} <= set(found["methods"])
    assert set(found["believed"]) <= set(found["methods"])
    assert set(found["auto"]) == {f"auto(budget={b:g})" for b in ladder_matrix.BUDGETS}
    assert all("refused" in told or told["rung"] in found["believed"] for told in found["auto"].values())
    ladder_matrix.write(tmp_path, {ladder_matrix.key_of(found): found}, {"ordinary"}, "cpu")
    done = ladder_matrix.read(tmp_path)
    assert ladder_matrix.left(task, 2, done) is None
    task.outputs("edges:0.05").unlink()
    assert ladder_matrix.left(task, 2, done) == task  # its predictions are not averaged yet
    json.dumps(found, allow_nan=False)


def test_a_better_rung_at_the_same_cost_is_counted() -> None:
    closed = {"gif": 0.7, "replay(share=0.1)": 0.8, "auto(budget=0.1)": 0.4, "auto(budget=0.2)": 0.78, "retrain": 1.0}
    cost = {"gif": 0.06, "replay(share=0.1)": 0.15, "auto(budget=0.1)": 0.07, "auto(budget=0.2)": 0.16, "retrain": 1.0}
    (cell,) = ladder_matrix_page.cells_of([line(closed, cost)])
    assert cell.best_fixed(0.1, within=False) == ("gif", pytest.approx(0.7))
    assert cell.best_fixed(0.2, within=True) == ("replay(share=0.1)", pytest.approx(0.8))
    text = ladder_matrix_page.page([line(closed, cost), line(closed, cost, seed=1)])
    assert "closes 0.05 more (cell × budget) | 1 | 2 | 50% | 90%" in text
    assert "20 %: gap closed ≥ 0.5 | 1 | 1 | 100% | 80%" in text
    assert "the rung that `auto` chose | 0 | 2 | 0%" in text

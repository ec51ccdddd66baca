"""The matrix of the ladder: one training of it, whole."""

import argparse
from pathlib import Path

import ladder_matrix
import pytest
from pages.ladder_matrix import BUDGETS, auto, key_of, read
from shared import write_lines


def asked(out: Path) -> argparse.Namespace:
    usual = {"data": ("demo",), "models": ("sgc",), "ways": ("ordinary",), "forget": ("edges:0.05", "flipped:0.2")}
    return argparse.Namespace(**usual, device="cpu", seeds=2, deletions=1, out=out)


@pytest.mark.usefixtures("embedded")
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
    assert set(found["auto"]) == set(map(auto, BUDGETS))
    assert all("refused" in told or told["rung"] in found["believed"] for told in found["auto"].values())
    write_lines(tmp_path / "ordinary-cpu.jsonl", [found])
    done = read(tmp_path)
    assert done == {key_of(found): found}
    assert ladder_matrix.left(task, 2, done) is None
    task.outputs("edges:0.05").unlink()
    assert ladder_matrix.left(task, 2, done) == task  # its predictions are not averaged yet

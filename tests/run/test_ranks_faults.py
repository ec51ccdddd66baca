"""A rank that fails or is killed: all end, with words, and nothing on disk is half done."""

import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unweave as uw
from tests.run.test_ranks import DECAY, FEW, graph
from tests.spread import spread
from unweave._core import ranks
from unweave._core.tuning import tuned
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import Blocks

EPOCHS = 12


def fresh() -> torch.nn.Module:
    return uw.models.GCN(5, 3, hidden=4, dropout=0.5).double()


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def after(calls: int, what: Callable[[], None]) -> None:
    """Do something on the second rank when it has evaluated so many blocks."""
    usual, left = Blocks._do, [calls]

    def counting(self: Blocks, *args: Any) -> Any:
        left[0] -= 1
        if not left[0] and ranks.rank() == 1:
            what()
        return usual(self, *args)

    Blocks._do = counting  # type: ignore[method-assign]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise uw.DataError("this rank cannot go on")


def crash() -> None:
    raise ZeroDivisionError("this rank cannot go on")


def trained(folder: Path, calls: int = 0, what: Callable[[], None] = die) -> None:
    if calls:
        after(calls, what)
    uw.train(fresh(), graph("plain"), epochs=EPOCHS, weight_decay=DECAY).save(folder / "new")


def prepared(folder: Path, calls: int, what: Callable[[], None] = die) -> None:
    after(calls, what)
    with tuned(spectrum=FEW):
        uw.Run.open(folder / "run", data=graph("plain")).prepare().save(folder / "run", overwrite=True)


def forgot(folder: Path, calls: int, what: Callable[[], None] = die) -> None:
    after(calls, what)
    run = uw.Run.open(folder / "run", data=graph("plain"))
    run.forget(uw.Request(nodes=[40]), "gif", out=folder / "run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run."""
    (tmp_path / "runs").mkdir()
    uw.train(fresh(), graph("plain"), epochs=3, weight_decay=DECAY).save(tmp_path / "runs" / "run")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("work", "calls"), [(trained, 9), pytest.param(prepared, 7, marks=pytest.mark.slow), (forgot, 12)]
)
def test_a_rank_that_is_killed_ends_all_and_leaves_every_file_as_it_was(
    work: Callable[..., None], calls: int, folder: Path, warm: ForkServerContext, tmp_path: Path
) -> None:
    before = bytes_in(folder)
    first, second = spread(warm, 2, tmp_path, work, folder, calls)
    assert second == {"gone": -signal.SIGKILL}
    assert first["error"] == "RankError"
    assert "another of the 2 ranks ended" in first["says"]
    assert bytes_in(folder) == before


@pytest.mark.parametrize(
    ("what", "name", "says"),
    [
        (fail, "DataError", "this rank cannot go on"),
        (crash, "RankError", "rank 1 of 3 failed (ZeroDivisionError: this"),
    ],
)
def test_the_error_of_one_rank_is_that_of_all(
    what: Callable[[], None], name: str, says: str, folder: Path, warm: ForkServerContext, tmp_path: Path
) -> None:
    before = bytes_in(folder)
    answers = spread(warm, 3, tmp_path, forgot, folder, 5, what)
    assert answers.pop(1)["says"] == "this rank cannot go on"
    for answer in answers:
        assert answer["error"] == name
        assert says in answer["says"]
    assert bytes_in(folder) == before


def apart(folder: Path) -> None:
    """The second rank refuses before the others meet it, and the first alone writes."""
    if ranks.rank() == 1:
        raise uw.RequestError("refused before anything is evaluated")
    trained(folder)


def written(folder: Path) -> str:
    def write() -> str:
        if ranks.rank():
            raise AssertionError("only the first writes")
        if (folder / "refuse").exists():
            raise uw.RunError("cannot write there")
        (folder / "file").write_text("whole")
        return "done"

    return ranks.first(write)


def lost(folder: Path) -> None:
    """One rank is somewhere else in the program."""
    with ranks.together("here" if ranks.rank() else "there"):
        pass


def test_errors_outside_of_the_shared_work_reach_the_others(
    folder: Path, warm: ForkServerContext, tmp_path: Path
) -> None:
    for answer in spread(warm, 2, tmp_path, apart, folder):
        assert answer == {"error": "RequestError", "says": "refused before anything is evaluated"}
    assert spread(warm, 2, tmp_path, written, folder) == [{"found": "done"}] * 2
    (folder / "refuse").touch()
    assert spread(warm, 2, tmp_path, written, folder) == [{"error": "RunError", "says": "cannot write there"}] * 2
    for answer in spread(warm, 2, tmp_path, lost, folder):
        assert answer["error"] == "RankError"
        assert "not at the same place" in answer["says"]


def resumed(folder: Path, calls: int = 0) -> tuple[Tensor, int]:
    """The parameters after a training that keeps states, and how many epochs it took to get there."""
    count, usual = [0], Blocks.backward
    if calls:
        after(calls, die)

    def counting(self: Blocks, model: torch.nn.Module) -> Tensor:
        count[0] += 1
        return usual(self, model)

    Blocks.backward = counting  # type: ignore[method-assign]
    how: dict[str, Any] = {"epochs": EPOCHS, "checkpoints": (0.75, 0.25), "weight_decay": DECAY}
    run = uw.train(fresh(), graph("plain"), resume=folder / "states", **how)
    return flatten(run.model), count[0]


def test_a_training_that_was_killed_goes_on_from_the_last_state(
    folder: Path, warm: ForkServerContext, tmp_path: Path
) -> None:
    whole = spread(warm, 2, tmp_path, resumed, folder)
    assert [answer["found"][1] for answer in whole] == [EPOCHS] * 2
    assert not (folder / "states").exists()
    killed = spread(warm, 2, tmp_path, resumed, folder, EPOCHS - 1)
    assert killed[0]["error"] == "RankError"
    assert (folder / "states").exists()
    again = spread(warm, 2, tmp_path, resumed, folder)
    assert [answer["found"][1] for answer in again] == [3] * 2, "the last quarter"
    for one, other in zip(whole, again, strict=True):
        assert torch.equal(one["found"][0], other["found"][0])
    assert not (folder / "states").exists()


def test_resuming_needs_states_to_resume_from(folder: Path) -> None:
    with pytest.raises(uw.ModelError, match="say which with checkpoints"):
        uw.train(fresh(), graph("plain"), epochs=2, resume=folder / "states")

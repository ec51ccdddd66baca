"""Killed at any point, a process leaves a run that opens and verifies, and nothing that the next one does not clear."""

import contextlib
import json
import random
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import unweave as uw
from tests.killing import MANY, SIZE, graph
from tests.scripts import small_demo
from tests.victims import carry_out
from unweave.cli.app import app
from unweave.objective.parameters import flatten
from unweave.run import folder
from unweave.testing import small_graph

KILLED = -9
COMMAND = ["forget", "run", "--forget", "nodes:0.02", "--purge", "--overwrite", "--out"]


@dataclass(frozen=True)
class Scene:
    """A run with all that a run can keep, the same after it forgot, and what became of those that were killed."""

    old: Path
    new: Path
    ends: dict[str, Any]
    place: Path
    known: dict[str, torch.Tensor]
    """The parameters of either."""
    begun: uw.Run
    """As it was before the stream whose workers are killed."""

    def left(self, what: str) -> list[tuple[int, Path]]:
        """How each victim ended, and the run it worked on."""
        return [(end, self.place / what / f"{n}" / "run") for n, end in enumerate(self.ends[what], start=1)]


def opened(path: Path) -> uw.Run:
    return uw.Run.open(path, data=small_graph())


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph is all of it, here and for the victims."""
    with small_demo(SIZE):
        yield


@pytest.fixture(scope="module")
def scene(part: None, warm: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Everybody is killed by one process, which has to import torch only once."""
    place = tmp_path_factory.mktemp("deaths")
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, seed=1, epochs=10, checkpoints=(0.5,)).prepare()
    old, new = run.save(place / "old"), run.forget(uw.draw("nodes:0.1", data)).save(place / "new")
    demo = uw.load("demo", seed=1)
    model = uw.models.SGC(demo.num_features, demo.num_classes)
    fresh = uw.train(model, demo, seed=1, epochs=10, checkpoints=(0.5,)).prepare().save(place / "fresh")
    chance = random.Random(0)
    plan: dict[str, dict[str, Any]] = {
        "in place": {"save": str(new), "over": str(old), "exchange": True},
        "without exchange": {"save": str(new), "over": str(old), "exchange": False},
        "anew": {"save": str(new), "over": None, "exchange": True},
        **{
            f"forget {out}": {
                "arguments": [*COMMAND, out],
                "fresh": str(fresh),
                "after": [1.1 * (part + chance.random()) / parts for part in range(parts)],
            }
            for out, parts in (("run", 5), ("out", 3))  # a run that is not written to has less to lose
        },
    }
    plan["together"] = {"together": 2, "fresh": str(fresh)}
    at_work = {"calibrate": {"epochs": 5, "checkpoints": (0.4,)}, "stream": {"epochs": 20}}
    for work, how in at_work.items():
        begun = uw.train(uw.models.SGC(8, 3), graph(), **how)  # type: ignore[arg-type]
        begun = begun.prepare() if work == "stream" else begun
        plan[work] = {"work": work, "kills": 5, "fresh": str(begun.save(place / f"fresh {work}"))}
    known = {path.name: flatten(opened(path).model) for path in (old, new)}
    return Scene(old, new, carried_out(plan, place, warm), place, known, begun)


def carried_out(plan: dict[str, dict[str, Any]], place: Path, warm: ForkServerContext) -> dict[str, Any]:
    """How those ended who were to be killed, or to work at once; what a run held after each who worked on it."""
    for name, death in plan.items():
        death["under"] = str(place / name)
    told, said = place / "told.json", place / "said.txt"
    process = warm.Process(target=carry_out, args=(list(plan.values()), told, said))
    process.start()
    process.join(600)
    assert process.exitcode == 0, said.read_text()
    ends: dict[str, Any] = dict(zip(plan, json.loads(told.read_text()), strict=True))
    killed = [end for name, found in ends.items() if "work" not in plan[name] for end in found]
    assert set(killed) <= {0, KILLED}, said.read_text()
    return ends


def whole(path: Path, scene: Scene) -> str:
    """Which of the two runs is there, whole; who opens it changes nothing, who writes next clears what was left."""
    beside = sorted(p.name for p in path.parent.iterdir())
    found = flatten(opened(path).verify().model)
    assert sorted(p.name for p in path.parent.iterdir()) == beside
    folder.recover_folder(path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert torch.equal(flatten(opened(path).model), found)
    (name,) = [name for name, theta in scene.known.items() if torch.equal(theta, found)]
    return name


@pytest.mark.parametrize("how", ["in place", "without exchange"])
def test_killed_at_every_point_of_a_write_in_place(scene: Scene, how: str) -> None:
    ends, paths = zip(*scene.left(how), strict=True)
    assert len(ends) > 40, "there are more points than files to write and to delete"
    absent = [not path.exists() for path in paths]
    left = [whole(path, scene) for path in paths]
    switch = left.index("new")
    assert set(left[:switch]) == {"old"}
    assert set(left[switch:]) == {"new"}
    assert ends[switch] == KILLED, "the last thing done is to delete the old run"
    assert sum(absent) == (how == "without exchange"), "no run in place: hit, or there is no such moment"


def test_killed_at_every_point_of_a_first_write(scene: Scene) -> None:
    found = scene.left("anew")
    assert len(found) > 15
    for end, path in found:
        if end == 0 or path.exists():
            assert whole(path, scene) == "new"
            continue
        with pytest.raises(uw.RunError, match="is not a run"):
            opened(path)
        folder.recover_folder(path)
        assert not list(path.parent.iterdir()), "what was left is gone"


@pytest.mark.parametrize("out", ["run", "out"])
def test_the_command_killed_at_random_times(scene: Scene, out: str) -> None:
    left = scene.left(f"forget {out}")
    assert KILLED in [end for end, _ in left]
    for end, path in left:
        run = uw.Run.open(path)
        run.verify()
        assert asked(run) <= (out == "run")
        if (there := path.with_name("out")).exists() or (out == "out" and end == 0):
            assert asked(uw.Run.open(there).verify()) == 1


def asked(run: uw.Run) -> int:
    """How many requests a run has carried out; a purge has a receipt of its own."""
    return sum(receipt.kind == "request" for receipt in run.receipts)


def both_were_forgotten(path: Path) -> None:
    run = uw.Run.open(path).verify()
    assert sorted(node for receipt in run.receipts for node in receipt.request["nodes"]) == [3, 7]
    assert {p.name for p in path.parent.iterdir()} == {"run", "3.json", "7.json"}


def test_two_processes_that_forget_in_one_place_both_do(scene: Scene) -> None:
    assert scene.ends["together"] == [0] * 4
    for number in (1, 2):
        both_were_forgotten(scene.place / "together" / f"{number}" / "run")


@pytest.mark.slow
def test_thirty_pairs_of_processes_that_forget_in_one_place(
    scene: Scene, warm: ForkServerContext, tmp_path: Path
) -> None:
    plan: dict[str, dict[str, Any]] = {"together": {"together": 30, "fresh": str(scene.place / "fresh")}}
    assert carried_out(plan, tmp_path, warm) == {"together": [0] * 60}
    for number in range(1, 31):
        both_were_forgotten(tmp_path / "together" / f"{number}" / "run")


def test_a_calibration_killed_at_any_point_opens_and_goes_on(scene: Scene) -> None:
    states = [state["deletions"] for state in scene.ends["calibrate"]]
    assert states == sorted(states)
    assert states[-1] > 0
    finished = uw.Run.open(scene.place / "calibrate" / "run", data=graph()).calibrate(states[-1] + 1).calibration
    assert finished is not None
    assert len(finished.deletions) == states[-1] + 1


def test_a_stream_killed_at_any_point_opens_verifies_and_goes_on(scene: Scene) -> None:
    states = [state["receipts"] for state in scene.ends["stream"]]
    assert states == sorted(states)
    assert states[-1] > 0
    path = scene.place / "stream" / "run"
    whole = scene.begun.forget(MANY, "gif")
    resumed = uw.Run.open(path, data=graph()).forget(MANY, "gif", out=path)
    assert [r.request for r in resumed.receipts if r.carried_out] == [r.request for r in whole.receipts]
    assert torch.equal(flatten(resumed.model), flatten(whole.model)), "to the bit"


def test_a_killed_command_can_be_given_again(scene: Scene) -> None:
    """The last victim, whenever it was killed."""
    _, path = scene.left("forget out")[-1]
    with contextlib.chdir(path.parent):
        done = CliRunner().invoke(app, [*COMMAND, "out"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in path.parent.iterdir()} == {"run", "out"}


def test_what_a_living_process_writes_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(scene.old, path)
    work = tmp_path / ".run.unweave-12345678"
    run = opened(path)
    other = threading.Thread(target=lambda: run.save(path, overwrite=True))
    with folder.locked(path):
        work.mkdir()
        other.start()
        opened(path)
        other.join(0.1)
        assert other.is_alive(), "it waits"
        assert work.exists(), "its writer is at work"
    other.join()
    assert [p.name for p in tmp_path.iterdir()] == ["run"], "its writer is gone, and the next one has cleared up"


def test_other_folders_beside_a_run_are_left_alone(scene: Scene, tmp_path: Path) -> None:
    old = scene.old
    path = tmp_path / "run"
    shutil.copytree(old, path)
    others = [".run.settings", ".run.unweave-notes", ".run.b.unweave-12345678", ".other.unweave-12345678"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".run.unweave-12345678").write_text("a file of that name")
    opened(path).save(path, overwrite=True)
    assert {p.name for p in tmp_path.iterdir()} == {"run", *others, ".run.unweave-12345678"}


def test_a_run_that_was_deleted_does_not_come_back(scene: Scene, tmp_path: Path) -> None:
    """Killed while the old run was deleted, and the new one deleted by hand: what is left of the old is no run."""
    old = scene.old
    shutil.copytree(old, tmp_path / ".run.unweave-12345678" / "old")
    with pytest.raises(uw.RunError, match="not a run"):
        opened(tmp_path / "run")
    folder.recover_folder(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_link_stays_a_link(scene: Scene, tmp_path: Path) -> None:
    old, new = scene.old, scene.new
    shutil.copytree(old, tmp_path / "there")
    (tmp_path / "link").symlink_to("there")
    opened(new).save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert torch.equal(flatten(opened(tmp_path / "there").model), flatten(opened(new).model))
    assert len(list(tmp_path.iterdir())) == 2


def test_an_old_run_that_cannot_be_deleted_is_told_of(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = scene.old, scene.new
    shutil.copytree(old, tmp_path / "run")

    def refuse(path: Path) -> None:
        raise OSError("not allowed")

    monkeypatch.setattr(folder.shutil, "rmtree", refuse)
    with pytest.raises(uw.RunError, match=r"was written, but .* delete .*\.run\.unweave-"):
        opened(new).save(tmp_path / "run", overwrite=True)


def test_a_move_that_fails_puts_the_old_run_back(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = scene.old, scene.new
    path, rename = tmp_path / "run", Path.rename
    shutil.copytree(old, path)
    run = opened(new)

    def fails(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("not today")
        return rename(self, target)

    monkeypatch.setattr(folder, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(uw.RunError, match="not today"):
        run.save(path, overwrite=True)
    assert whole(path, scene) == "old"

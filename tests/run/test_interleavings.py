"""Two processes on one run, in whatever order they do what they do: no deletion is lost, and none is done twice."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interleaving import Turns, taking_turns
from unweave._core.document import canonical_json
from unweave.errors import RunError
from unweave.run import folder
from unweave.run.folder import ANYTHING, Opened, locked, read_folder, recover_folder, write_folder
from unweave.run.log import Log

__all__ = ["taking_turns"]

REST = {"config.json": b"{}", "split.json": b"{}", "metrics.json": b"{}"}


def files(done: list[str]) -> dict[str, bytes]:
    """The weights stand for a model that has forgotten: they say what."""
    return {"weights.safetensors": json.dumps(done).encode(), **REST}


def done_in(opened: Opened) -> list[str]:
    """What a run has forgotten; its receipts say the same, each names the one before."""
    done: list[str] = json.loads(opened.files["weights.safetensors"])
    receipts = [json.loads(opened.receipts.line(n)) for n in range(len(opened.receipts))]
    assert [receipt["name"] for receipt in receipts] == done
    before = [None, *(opened.receipts.digest(n) for n in range(len(receipts)))]
    assert [receipt["previous"] for receipt in receipts] == before[:-1]
    assert [took["nodes"] for took, _ in opened.receipts.took()] == [[name] for name in done]
    return done


def forget(opened: Opened, name: str) -> bool:
    """Forget one thing more in the place of what was opened; whether it was still there."""
    done, log = done_in(opened), opened.receipts
    if name in done:
        return False
    receipt = {"name": name, "previous": log.digest(len(log) - 1) if len(log) else None}
    log = log.plus(canonical_json(receipt).encode(), {"nodes": [name]}, undirected=False)
    write_folder(opened.path, files([*done, name]), log, opened.digest)
    return True


def carefully(path: Path, name: str) -> bool:
    """As the command line does: nobody else writes from before it is opened until it is saved."""
    with locked(path):
        return forget(read_folder(path), name)


def hopefully(path: Path, name: str) -> bool:
    """As in Python: open, forget, save in place; where somebody else was faster, again."""
    while True:
        try:
            return forget(read_folder(path), name)
        except RunError as error:
            if "has changed since it was last opened" not in str(error):
                raise


class Person:
    """Somebody with requests, and what came of them."""

    def __init__(self, path: Path, names: list[str], way: Callable[[Path, str], bool]) -> None:
        self.path, self.names, self.way = path, names, way
        self.own: list[str] = []
        self.settled: list[str] = []

    def __call__(self) -> None:
        for name in self.names:
            if self.way(self.path, name):
                self.own.append(name)
            self.settled.append(name)


def watch(path: Path) -> Callable[[], None]:
    def look() -> None:
        seen: list[str] = []
        for _ in range(4):
            now = done_in(read_folder(path))
            assert now[: len(seen)] == seen, "what was done stays done"
            seen = now

    return look


def one(place: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """Two people, perhaps somebody who looks on, perhaps a death; how many turns they took, and whether one died."""
    chance = random.Random(seed)
    path = place / "run"
    start = ["first"] * chance.randrange(2)
    begin(path, start)
    with monkeypatch.context() as patch:
        if chance.random() < 0.3:
            patch.setattr(folder, "_exchange", lambda one, other: False)
        turns = Turns(chance, often=chance.choice([0.02, 0.1, 0.3, 0.6]))
        people = [Person(path, [*names, "both"], chance.choice([carefully, hopefully])) for names in (["a"], ["b"])]
        for person in people:
            chance.shuffle(person.names)
        workers = [turns.add(person, chance.randrange(1, 150) if chance.random() < 0.15 else None) for person in people]
        if chance.random() < 0.5:
            workers.append(turns.add(watch(path)))
        turns.run()
    for worker in workers:
        assert worker.error is None or worker.killed, repr(worker.error)
    done = done_in(read_folder(path))
    assert len(set(done)) == len(done), "none is done twice"
    assert done[: len(start)] == start
    claimed = [name for person in people for name in person.own]
    assert len(set(claimed)) == len(claimed), "nobody else claims to have done it"
    for person, worker in zip(people, workers, strict=False):
        assert set(person.settled) <= set(done), "no deletion is lost"
        assert worker.killed or person.settled == person.names
    assert len(set(done) - set(start) - set(claimed)) <= sum(worker.killed for worker in workers)
    recover_folder(path)
    left = {found.name for found in place.iterdir()} - {"run"}
    assert left <= ({".run.unweave-lock"} if any(worker.killed for worker in workers) else set())
    assert done_in(read_folder(path)) == done
    return sum(worker.steps for worker in workers), any(worker.killed for worker in workers)


def begin(path: Path, start: list[str]) -> None:
    log = Log()
    for name in start:
        log = log.plus(canonical_json({"name": name, "previous": None}).encode(), {"nodes": [name]}, undirected=False)
    write_folder(path, files(start), log, ANYTHING)


def many(place: Path, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for seed in seeds:
        (place / str(seed)).mkdir()
        found.append(one(place / str(seed), seed, monkeypatch))
    assert sum(died for _, died in found) > len(seeds) / 20, "some died"
    assert sum(steps for steps, _ in found) > 100 * len(seeds), "there were many places to take turns at"


@pytest.mark.usefixtures("taking_turns")
def test_two_processes_on_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path, range(100), monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("taking_turns")
def test_two_processes_on_one_run_in_ten_thousand_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path, range(1000, 11_000), monkeypatch)


@pytest.mark.usefixtures("taking_turns")
def test_the_turns_would_find_a_lost_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison, and without the lock: the same orders then lose deletions."""
    monkeypatch.setattr(folder, "_compare", lambda *_: None)
    with pytest.raises(AssertionError, match=r"lost|twice|claims"):
        many(tmp_path, range(200), monkeypatch)

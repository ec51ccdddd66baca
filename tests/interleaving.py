"""Let several workers take turns at everything they do to files, in an order that is drawn; some are killed on the way.

Only one of them runs at a time. Python tells of each thing that is done to files before it is done (PEP 578), and there
the turn may pass on. A worker that is killed does nothing to files any more, not even to clear up; what the system does
for the dead is done for it: its files are closed and its locks are free.
"""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unweave.run import folder, lock, manifest

SEEN = ("open", "os.", "shutil.", "tempfile.", "fcntl.")


class Killed(BaseException):
    """What a worker that is killed dies of."""


class Worker(threading.Thread):
    """Somebody who does something, and how that ended."""

    def __init__(self, turns: "Turns", work: Callable[[], None], dies_at: int | None) -> None:
        super().__init__(daemon=True)
        self.turns, self.work, self.dies_at = turns, work, dies_at
        self.turn = threading.Lock()
        self.turn.acquire()
        self.steps, self.ended = 0, False
        self.error: BaseException | None = None

    @property
    def killed(self) -> bool:
        return isinstance(self.error, Killed)

    def run(self) -> None:
        self.turn.acquire()
        try:
            self.work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.turns.ended()


class Turns:
    """Who is at work, and when the turn passes on."""

    def __init__(self, chance: random.Random, often: float) -> None:
        self.chance, self.often = chance, often
        self.workers: list[Worker] = []
        self.over = threading.Lock()
        self.over.acquire()

    def add(self, work: Callable[[], None], dies_at: int | None = None) -> Worker:
        self.workers.append(Worker(self, work, dies_at))
        return self.workers[-1]

    def run(self) -> None:
        """Let all of them work until they have ended."""
        global _turns  # noqa: PLW0603
        _turns = self
        for worker in self.workers:
            worker.start()
        self.chance.choice(self.workers).turn.release()
        assert self.over.acquire(timeout=60), "they wait for each other"
        _turns = None

    def step(self, *, wait: bool = False) -> None:
        """Something is about to be done to files, or, to wait, cannot be done before another has had a turn."""
        me = threading.current_thread()
        if not isinstance(me, Worker) or me.turns is not self:
            return
        if me.ended:
            return
        me.steps += 1
        if me.dies_at is not None and me.steps >= me.dies_at:
            raise Killed
        if wait or self.chance.random() < self.often:
            others = [worker for worker in self.workers if not (worker.ended or worker is me)]
            if others:
                self.chance.choice(others).turn.release()
                me.turn.acquire()

    def ended(self) -> None:
        """Somebody has ended: who is left goes on."""
        living = [worker for worker in self.workers if not worker.ended]
        (self.chance.choice(living).turn if living else self.over).release()


_turns: Turns | None = None


def step(*, wait: bool = False) -> None:
    if _turns is not None:
        _turns.step(wait=wait)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _turns is not None and event.startswith(SEEN):
        _turns.step()


class Own(threading.local):
    """What each worker knows by itself: threads stand for processes here."""

    def __init__(self) -> None:
        self.known: dict[Path, set[str | None]] = {}

    def get(self, path: Path, default: Any) -> Any:
        return self.known.get(path, default)

    def __contains__(self, path: object) -> bool:
        return path in self.known

    def __setitem__(self, path: Path, digests: set[str | None]) -> None:
        self.known[path] = digests


@pytest.fixture(scope="module")
def taking_turns() -> Iterator[None]:
    """Workers take turns at what they do to files."""
    sys.addaudithook(_hook)  # for good; it does nothing unless there are turns
    real_lock, real_append = lock._lock, folder._append

    def in_turn(handle: int, *, wait: bool) -> bool:
        while not (free := real_lock(handle, wait=False)) and wait:
            step(wait=True)
        return free

    def torn(path: Path, at: int, content: Iterable[bytes], *, new: bool = False) -> None:
        def pieces() -> Iterator[bytes]:
            for line in content:
                yield line[: len(line) // 2]
                step()
                yield line[len(line) // 2 :]

        real_append(path, at, pieces(), new=new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "_lock", in_turn)
        patch.setattr(folder, "_append", torn)
        patch.setattr(folder, "_known", Own())
        patch.setattr(os, "fsync", lambda _: step())
        patch.setattr(manifest.time, "sleep", lambda seconds: step(wait=True) if seconds else None)
        yield

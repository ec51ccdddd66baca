"""Kill work on a run again and again, at random moments; after each kill the run is opened and verified.

The process that asks for it forks the workers, so that what is killed is the work and not the imports before it.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torch_geometric.data import Data

import unweave as uw
from unweave.testing import small_graph

GONE = (12, 20, 30)
"""Nodes that are asked for."""


SIZE = 300
"""Nodes of the embedded graph that commands are killed on."""


def graph() -> Data:
    """What the runs are about."""
    return small_graph(nodes=90)


def opened(path: Path) -> uw.Run:
    """A run on it."""
    return uw.Run.open(path, data=graph())


EDGES = [(u, v) for u, v in graph().edge_index.t().tolist() if u < v and not {u, v} & set(GONE)]
REQUESTS = [
    uw.Request(edges=EDGES[:1]),
    uw.Request(nodes=GONE[:1]),
    uw.Request(features={7: "all"}),
    uw.Request(labels=[3]),
    uw.Request(nodes=GONE[1:]),
    uw.Request(labels=[40]),
]
MANY = [*REQUESTS, *(uw.Request(edges=[edge]) for edge in EDGES[1:9])]
"""As many as are not all carried out before the first worker is killed."""


def calibrate(path: Path) -> None:
    """Twenty simulated deletions, saved one by one."""
    opened(path).calibrate(20, keep=lambda run: run.save(path, overwrite=True))


def stream(path: Path) -> None:
    """Many requests, one after another, saved one by one."""
    opened(path).forget(MANY, "gif", out=path)


def kill_often(work: Callable[[Path], None], path: Path, kills: int) -> list[dict[str, int]]:
    """What the run holds after each kill; every other worker may save something first."""
    chance = random.Random(0)
    moments = [chance.uniform(0.02, 0.25) for _ in range(kills)]
    return [killed(work, path, moment, patient=bool(n % 2)) for n, moment in enumerate(moments)]


def killed(work: Callable[[Path], None], path: Path, seconds: float, *, patient: bool) -> dict[str, int]:
    """What the run holds after a worker was killed: so long after it began, or after it first saved something."""
    before, ended = path.stat().st_ino, False
    child = os.fork()
    if child == 0:
        work(path)
        os._exit(0)
    while patient and not ended and _inode(path) in (before, None):
        time.sleep(0.01)
        ended = os.waitpid(child, os.WNOHANG) != (0, 0)
    time.sleep(seconds)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run = opened(path).verify()
    return {
        "deletions": 0 if run.calibration is None else len(run.calibration.deletions),
        "receipts": len(run.receipts),
    }


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:  # between two renames
        return None

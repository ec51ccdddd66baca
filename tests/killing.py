"""Kill work on a run again and again, at random moments: ``python -m tests.killing WORK RUN KILLS``.

One process forks the workers, so that what is killed is the work and not the imports before it. After each kill the run
is opened and verified; what it holds then is printed as JSON.
"""

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import unweave as uw

REQUESTS = [
    uw.Request(edges=[(2, 146)]),
    uw.Request(nodes=[12]),
    uw.Request(features={7: "all"}),
    uw.Request(labels=[3]),
    uw.Request(nodes=[20, 30]),
    uw.Request(labels=[40]),
]


def calibrate(path: Path) -> None:
    """Twelve simulated deletions, saved one by one."""
    uw.Run.open(path).calibrate(12, keep=lambda run: run.save(path, overwrite=True))


def stream(path: Path) -> None:
    """Six requests, one after another, saved one by one."""
    uw.Run.open(path).forget(REQUESTS, "gif", out=path)


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
    run = uw.Run.open(path).verify()
    return {
        "deletions": 0 if run.calibration is None else len(run.calibration.deletions),
        "receipts": len(run.receipts),
    }


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:  # between two renames
        return None


def kill_often(work: str, path: Path, kills: int) -> list[dict[str, int]]:
    """The same in a process of its own, once for each kill."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # threads do not survive a fork
    command = [sys.executable, "-m", "tests.killing", work, str(path), str(kills)]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, env=environment, cwd=Path(__file__).parents[1]
    )
    states: list[dict[str, int]] = json.loads(found.stdout)
    return states


if __name__ == "__main__":
    for name in ("calibrate", "run"):
        importlib.import_module(f"unweave.run.{name}")  # so that no worker has to
    chance = random.Random(0)
    work = {"calibrate": calibrate, "stream": stream}[sys.argv[1]]
    moments = [chance.uniform(0.02, 0.5) for _ in range(int(sys.argv[3]))]
    path = Path(sys.argv[2])
    print(json.dumps([killed(work, path, moment, patient=bool(n % 2)) for n, moment in enumerate(moments)]))

"""Kill processes while they write runs; every victim is a fork of a process that has imported torch.

:func:`carry_out` takes a list of deaths and writes how the victims of each ended, as JSON::

    {"save": RUN, "over": RUN or null, "under": FOLDER, "exchange": false}
    {"arguments": [...], "after": [share, ...], "fresh": RUN, "under": FOLDER}
    {"together": TIMES, "fresh": RUN, "under": FOLDER}
    {"work": NAME, "kills": TIMES, "fresh": RUN, "under": FOLDER}

The first saves a run as ``FOLDER/n/run``, perhaps over a copy of another, killed before the n-th thing it does to
files, for n = 1, 2, … until one comes to its end; ``exchange`` says whether two folders can change places in one step.
The second is the command line in ``FOLDER/n``, with a copy of ``fresh`` as ``run`` in it. The first victim may come to
its end, the others are killed after a share of the time that took. The third kills nobody: two processes forget in
the place of ``FOLDER/n/run`` at once, one by the command line and one in Python, or both in the same way.
The last kills work on one run, a copy of ``fresh`` as ``FOLDER/run``, at random moments (:mod:`tests.killing`), and
tells what that run held after each kill.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import unweave.run.folder
from tests.killing import SIZE, calibrate, kill_often, stream
from tests.scripts import small_demo
from unweave import datasets
from unweave.cli import main
from unweave.errors import RunError
from unweave.request import Request
from unweave.run.run import Run
from unweave.testing import small_graph


def kill_at(count: int) -> None:
    """Have this process killed before the ``count``-th thing it does to files. Python tells of each (PEP 578)."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += event.startswith(("open", "os.", "shutil.", "tempfile.", "fcntl."))
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def begun(become: Callable[[], object]) -> int:
    """Fork, and let the child become something."""
    child = os.fork()
    if not child:
        try:
            become()
        except SystemExit as error:
            os._exit(int(error.code or 0))
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(3)
        os._exit(0)
    return child


def end_of(become: Callable[[], object], after: float | None = None) -> int:
    """The same, killed after a while; how it ended."""
    child = begun(become)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def deaths_of_save(death: dict[str, Any]) -> list[int]:
    run, ends = Run.open(death["save"], data=small_graph()), []
    while not ends or ends[-1]:
        to = Path(death["under"]) / str(len(ends) + 1) / "run"
        if death["over"]:
            shutil.copytree(death["over"], to)
        else:
            to.parent.mkdir(parents=True)

        def save(to: Path = to, at: int = len(ends) + 1) -> None:
            os.fsync = lambda _: None  # slow, and nothing to a process that is killed
            if not death["exchange"]:
                unweave.run.folder._exchange = lambda one, other: False
            kill_at(at)
            run.save(to, overwrite=True)

        ends.append(end_of(save))
    return ends


def command(here: Path, arguments: list[str]) -> None:
    """Be the command line in a folder."""
    os.chdir(here)
    sys.argv = ["unweave", *arguments]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        main()


def in_python(path: Path, node: int) -> None:
    """Open, forget and save in place; where somebody else was faster, once more."""
    while True:
        try:
            Run.open(path).forget(Request(nodes=[node]), "none").save(path, overwrite=True)
            return
        except RunError as error:
            if "has changed since" not in str(error):
                raise


def pairs(plan: dict[str, Any]) -> list[int]:
    ends, chance = [], random.Random(0)
    for number in range(plan["together"]):
        here = Path(plan["under"]) / str(number + 1)
        shutil.copytree(plan["fresh"], here / "run")
        children = []
        for node in (3, 7):
            (here / f"{node}.json").write_text(f'{{"nodes": [{node}]}}')
            asked = ["forget", "run", "--request", f"{node}.json", "--method", "none", "--out", "run", "--overwrite"]
            ways: list[Callable[[], None]] = [partial(command, here, asked), partial(in_python, here / "run", node)]
            children.append(begun(chance.choice(ways)))
            time.sleep(chance.choice([0.0, 0.02, 0.1]))
        ends += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return ends


def deaths_of_command(death: dict[str, Any]) -> list[int]:
    ends, whole = [], 0.0
    for number, share in enumerate([None, *death["after"]], start=1):
        here = Path(death["under"]) / str(number)
        shutil.copytree(death["fresh"], here / "run")

        start = time.perf_counter()
        work = partial(command, here, death["arguments"])
        ends.append(end_of(work, None if share is None else share * whole))
        whole = whole or time.perf_counter() - start
    return ends


def deaths_at_work(death: dict[str, Any]) -> list[dict[str, int]]:
    path = Path(death["under"]) / "run"
    shutil.copytree(death["fresh"], path)
    return kill_often({"calibrate": calibrate, "stream": stream}[death["work"]], path, death["kills"])


def carry_out(plan: list[dict[str, Any]], told: Path, said: Path) -> None:
    """Be the process that they are forks of; what they say goes to a file of its own."""
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    torch.set_num_threads(1)  # nothing may run beside a process that forks
    kinds = {"save": deaths_of_save, "arguments": deaths_of_command, "together": pairs, "work": deaths_at_work}
    with small_demo(SIZE):
        datasets.load("demo")
        ends = [next(do for kind, do in kinds.items() if kind in death)(death) for death in plan]
    told.write_text(json.dumps(ends), encoding="utf-8")

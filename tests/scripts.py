"""Run scripts, each in a process of its own that need not import torch again: ``python tests/scripts.py [NODES]``.

This process imports what all of them need, once. It reads ``{"command": [script, …], "cwd": …, "to": …}`` from its
input, a line for each, forks a child that becomes the script, and answers how that ended; what the script prints goes
to the file ``to``. With a number of nodes, so many of the embedded graph are all of it.
"""

import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from unweave._core.tuning import TUNING
from unweave.datasets import loading
from unweave.datasets.demo import demo_graph
from unweave.experiments.trial import Setting
from unweave.training import fit

SETTINGS = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}


NEEDED = (
    "matplotlib.figure",
    "networkx",
    "torch_geometric.nn",
    "unweave.experiments.compare",
    "unweave.experiments.plots",
    "unweave.run.run",
    "unweave.testing",
)
"""What the scripts import; unweave alone would import little before it is used."""


WARM_UP = Setting.warm_up
"""What runs every method once before any is measured; only who reads how long one took has to wait for it."""


PART = 700
"""Nodes of the embedded graph that are enough for who only shows how something is done."""


def part_of_demo(nodes: int) -> Data:
    """The first nodes of the embedded graph, and the edges between them."""
    data = demo_graph()
    return data.subgraph(torch.arange(data.num_nodes) < nodes)


@contextmanager
def small_demo(nodes: int | None = PART) -> Iterator[None]:
    """So many nodes of the embedded graph are all of it; without a number it is what it is."""
    before = loading.demo_graph
    loading.demo_graph = demo_graph if nodes is None else partial(part_of_demo, nodes)
    try:
        yield
    finally:
        loading.demo_graph = before


class Scripts:
    """The process, from outside."""

    def __init__(self, nodes: int | None = None) -> None:
        command = [sys.executable, __file__, *([] if nodes is None else [str(nodes)])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | SETTINGS
        )

    def run(self, script: Path, *arguments: str, cwd: Path) -> str:
        """What a script prints; it must not fail."""
        to = cwd / "printed.txt"
        asked = {"command": [str(script), *arguments], "cwd": str(cwd), "to": str(to)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        code = json.loads(self.process.stdout.readline())
        text = to.read_text(encoding="utf-8")
        to.unlink()
        assert code == 0, text
        return text

    def close(self) -> None:
        """Let it end."""
        self.process.communicate("")


def become(asked: dict[str, Any]) -> None:
    """Be a script, as if Python had been started with it."""
    printed = os.open(asked["to"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.chdir(asked["cwd"])
    sys.argv = asked["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    for name in NEEDED:
        importlib.import_module(name)
    fit._chosen_decays = lambda *_: [1e-2]  # as the fixture brief
    fit.FIRST_PHASE = 30
    fit.agreement_of = lambda *_, **__: None  # as in conftest.py
    Setting.warm_up = lambda self: None  # type: ignore[method-assign]
    object.__setattr__(TUNING, "polish", replace(TUNING.polish, evaluations=30, usual=30))
    object.__setattr__(TUNING, "ending", replace(TUNING.ending, most=150))
    if sys.argv[1:]:
        loading.demo_graph = partial(part_of_demo, int(sys.argv[1]))
    torch.set_num_threads(1)  # nothing may run beside a process that forks
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                become(json.loads(line))
                code = 0
            except SystemExit as error:
                code = int(error.code or 0)
            except BaseException:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)

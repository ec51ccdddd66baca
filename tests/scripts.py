"""Run scripts, each in a process of its own that need not import torch again (see the fixture warm in fixtures.py)."""

import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch
from torch_geometric.data import Data

from unweave._core.tuning import TUNING
from unweave.datasets import loading
from unweave.datasets.demo import demo_graph
from unweave.experiments.trial import Setting
from unweave.training import agreement, fit

WARM_UP = Setting.warm_up
"""What runs every method once before any is measured; only who reads how long one took has to wait for it."""


PART = 700
"""Nodes of the embedded graph that are enough for most."""

SHOWN = 540
"""And for who only shows how something is done; of fewer, too few are outside of training for an audit."""


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


@dataclass(frozen=True)
class Scripts:
    """Whoever runs them, on so many nodes of the embedded graph."""

    warm: ForkServerContext
    nodes: int | None = None

    def run(self, script: Path, *arguments: str, cwd: Path) -> str:
        """What a script prints; it must not fail."""
        to = cwd / "printed.txt"
        process = self.warm.Process(target=become, args=([str(script), *arguments], cwd, to, self.nodes))
        process.start()
        process.join()
        text = to.read_text(encoding="utf-8")
        to.unlink()
        assert process.exitcode == 0, text
        return text


def become(command: list[str], cwd: Path, to: Path, nodes: int | None) -> None:
    """Be a script, as if Python had been started with it."""
    printed = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.chdir(cwd)
    os.environ["MPLBACKEND"] = "agg"
    warnings.resetwarnings()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.set_num_threads(1)
    fit._chosen_decays = lambda *_: [1e-2]  # as the fixture brief
    fit.FIRST_PHASE = 30
    agreement.another, agreement.agreement_of = lambda objective, **_: objective, lambda *_: None  # as in fixtures.py
    Setting.warm_up = lambda self: None  # type: ignore[method-assign]
    object.__setattr__(TUNING, "polish", replace(TUNING.polish, evaluations=30, usual=30))
    object.__setattr__(TUNING, "ending", replace(TUNING.ending, most=50))
    object.__setattr__(TUNING, "inspection", replace(TUNING.inspection, samples=8))
    sys.argv = command
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    with small_demo(nodes):
        runpy.run_path(sys.argv[0], run_name="__main__")

"""What the process imports, once, that others are forks of (see the fixture warm in fixtures.py).

A part of the embedded graph is all of it there, and nothing is warmed up, as in fixtures.py.
"""

import gc
import importlib
from functools import partial

from tests.scripts import PART, part_of_demo
from unweave.datasets import loading
from unweave.experiments.trial import Setting

NEEDED = (
    "matplotlib.figure",
    "networkx",
    "tests.victims",
    "torch_geometric.nn",
    "unweave.auditing.population",
    "unweave.cli.app",
    "unweave.cli.forget",
    "unweave.experiments.compare",
    "unweave.experiments.paper.reproduce",
    "unweave.experiments.plots",
    "unweave.run.calibrate",
    "unweave.run.run",
    "unweave.serve.running",
    "unweave.testing",
)
"""What workers, victims and scripts use; unweave alone would import little before it is used."""

for name in NEEDED:
    importlib.import_module(name)

loading.demo_graph = partial(part_of_demo, PART)
Setting.warm_up = lambda self: None  # type: ignore[method-assign]

gc.freeze()  # what is here stays: a fork that looks through it for garbage would only copy it

"""What training and forgetting on a graph will take, from its sizes alone: memory, passes, time, bytes over a network.

Nothing of a graph is opened. How fast a model is and how much a node holds is measured here, in about a second, on rows
or on a small graph of the same width and mean degree drawn at random; how many passes there are comes from a run that
was made before, or from the limits that this version keeps to, and the forecast says which.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.mapped import GATHERED, WINDOW
from unweave._core.memory import MIB, TensorBytes
from unweave._core.tuning import TUNING
from unweave.datasets.edges import PART
from unweave.datasets.folder import read_sizes
from unweave.errors import DataError
from unweave.models.propagation import Propagation, by_rows, propagation_of
from unweave.models.reach import find_reach
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.parts.propagated import HELD
from unweave.objective.parts.propagating import EDGES, ROWS
from unweave.run.peek import peek
from unweave.training.agreement import FIRST_PHASE

__all__ = ["Forecast", "Passes", "Sizes", "forecast", "passes_of"]

TRIED = 2048
"""Nodes that a model is timed on, at most."""

ENOUGH = 0.3
"""Seconds that it is timed for."""

LOOKED, TAKEN = 80, 56
"""Bytes of an edge while a folder is checked (its ends, their order, ten numbers), and while messages are added up."""

NODE = {"normalised": 40, "mean": 16}
"""Bytes of a node that an index and what messages are divided by take: numbers of 8 bytes each."""

LISTED = 18
"""Bytes of a node for labels, masks, and masks of what is left; twice, as there is a graph before and one after."""

OUTPUTS = 3
"""Outputs of all nodes that are there at a time: before, after, and of the answer; only pages that have nodes of a mask
take memory."""

PRODUCT = 4
"""Passes of a product with the curvature in blocks: two for the point that it is taken at, two for itself."""


@dataclass(frozen=True)
class Sizes:
    """What is known of a graph before it is opened.

    Attributes:
        nodes: How many.
        edges: Stored edges.
        features: Of a node.
        classes: How many.
        training: Training nodes.
        held: Nodes of the other masks.
        item: Bytes of a number.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    training: int
    held: int
    item: int = 4

    def __post_init__(self) -> None:
        least = {"nodes": 1, "edges": 0, "features": 1, "classes": 1, "training": 1, "held": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise DataError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.training + self.held > self.nodes:
            raise DataError(f"{self.training + self.held} nodes in masks are more than the {self.nodes} there are")

    @classmethod
    def of_folder(cls, path: str | Path) -> "Sizes":
        """Those of a graph in a folder, by its ``graph.json`` alone."""
        found = read_sizes(path)
        masks: dict[str, int] = found["masks"]
        training = masks["train_mask"]
        item = 8 if found["files"]["x.npy"]["type"] == "float64" else 4
        sizes = {key: found[key] for key in ("nodes", "edges", "features", "classes")}
        return cls(**sizes, training=training, held=sum(masks.values()) - training, item=item)


@dataclass(frozen=True)
class Passes:
    """Sweeps over the training nodes, at least and at most.

    Attributes:
        training: Of the training.
        preparing: Of computing what requests need.
        request: Of a request that is not deferred.
        source: How this is known.
    """

    training: tuple[float, float]
    preparing: tuple[float, float]
    request: tuple[float, float]
    source: str


def passes_of(classes: int, run: str | Path | None = None, *, forgettable: bool = True) -> Passes:
    """How many passes there are: those that a run took, or the limits that are kept to."""
    if run is not None:
        known = peek(Path(run))
        recipe, prepared = known.training.recipe, known.prepared
        if recipe is None or prepared is None:
            raise DataError(
                f"{run} does not say how many passes training and preparing took; prepare that run first, or leave "
                "--like out"
            )
        took = prepared.whole or 2.0 * recipe.epochs
        asked = [r.passes for r in known.receipts if r.kind == "request" and r.status == "done"]
        most = 2.0 * TUNING.step.steps
        request = (min(asked), max(asked)) if asked else (4.0, most)
        return Passes((took, took), (prepared.passes, prepared.passes), request, f"what {run} took")
    rank = max(TUNING.spectrum.rank, math.ceil(TUNING.spectrum.per_class * classes)) + TUNING.spectrum.spare
    low, high = 2.0 * FIRST_PHASE, 2.0 * TUNING.ending.most
    if forgettable:
        most = TUNING.polish.evaluations
        low, high = low + rank * PRODUCT, low + 2 * most + math.ceil(most / TUNING.polish.refresh) * rank * PRODUCT
    once = 2.0 + (rank + TUNING.spectrum.bend_products) * PRODUCT
    return Passes((low, high), (once, once), (4.0, 2.0 * TUNING.step.steps), "the least and the most of this version")


@dataclass(frozen=True)
class Forecast:
    """What it will take. ``str(forecast)`` is for people, ``to_dict`` for machines.

    Attributes:
        sizes: Those of the graph.
        parameters: Of the model.
        by_rows: Whether the model takes rows of PᵏX alone.
        ranks: Processes that share the work.
        memory_mib: MiB that each of them has at most, by phase.
        disk_mib: MiB of the folder, and of what is propagated beside it.
        network_mib: MiB that each sends for a pass: a vector as long as θ is reduced in double precision.
        seconds_per_pass: On each of them.
        sweeps: Nodes that a pass looks at, as a multiple of those there are; rows of training nodes where that is all.
        passes: How many there are.
        seconds: Of training, preparing and a request, at least and at most.
        measured: What was measured here: nanoseconds and bytes for a node.
    """

    sizes: Sizes
    parameters: int
    by_rows: bool
    ranks: int
    memory_mib: dict[str, float]
    disk_mib: dict[str, float]
    network_mib: float
    seconds_per_pass: float
    sweeps: float
    passes: Passes
    measured: dict[str, float]
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The forecast as a JSON document."""
        return {"format": "unweave-forecast-1", **asdict(self)}

    def __str__(self) -> str:
        size, some = self.sizes, "rows of training nodes" if self.by_rows else "times the graph, in blocks"
        looked = f"{size.training:,} {some}" if self.by_rows else f"{self.sweeps:.3g} {some}; hubs make it more"
        held = ", ".join(f"{name} {mib / 1024:.2f}" for name, mib in self.memory_mib.items())
        disk = ", ".join(f"{name} {mib / 1024:.2f}" for name, mib in self.disk_mib.items())
        lines = [
            ("Graph", f"{size.nodes:,} nodes, {size.edges:,} stored edges, {size.features:,} features"),
            ("Model", f"{self.parameters:,} parameters; a pass looks at {looked}"),
            ("Memory", f"GiB for each of {self.ranks} process{'es' * (self.ranks > 1)}: {held}"),
            ("Disk", f"GiB: {disk}"),
            ("Network", f"{self.network_mib:.3g} MiB a pass from each process" if self.ranks > 1 else "none"),
            ("Passes", f"training {_range(self.passes.training)}, preparing {_range(self.passes.preparing)}, a request "
             f"{_range(self.passes.request)} ({self.passes.source})"),
            ("Time", "; ".join(f"{name} {_range(ends)} s" for name, ends in self.seconds.items())
             + f" ({self.seconds_per_pass:.3g} s a pass, by a model timed here)"),
        ]  # fmt: skip
        return "\n".join(f"{title:<11}{text}" for title, text in lines)


def _range(ends: tuple[float, float]) -> str:
    low, high = (f"{end:,.0f}" if end >= 10 else f"{end:.2g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def forecast(sizes: Sizes, model: nn.Module, passes: Passes, *, memory_mib: float, ranks: int = 1) -> Forecast:
    """What training a model on a graph in a folder, and forgetting, will take.

    Args:
        sizes: Of the graph.
        model: The module, called as ``model(x, edge_index)``.
        passes: How many there are.
        memory_mib: What evaluating the model may hold at a time.
        ranks: Processes that share the work.
    """
    if ranks < 1:
        raise DataError(f"ranks must be at least 1, got {ranks}")
    what, theta = propagation_of(model), flatten(model)
    seconds, held, steps = _measured(model, sizes)
    x = sizes.nodes * sizes.features * sizes.item
    folder = x + 16 * sizes.edges + 8 * sizes.nodes + (8 + 3) * sizes.nodes
    if what is not None:
        sweeps, share = sizes.training / sizes.nodes, sizes.training / ranks
        derived = what.steps * x
    else:
        sweeps, share = _sweeps(sizes, steps, held, memory_mib * MIB), 0.0
        derived = 0
    looked = sizes.training if what is not None else sweeps * sizes.nodes
    a_pass = seconds * looked / ranks
    ends = {"training": passes.training, "preparing": passes.preparing, "a request": passes.request}
    return Forecast(
        sizes=sizes,
        parameters=theta.numel(),
        by_rows=what is not None,
        ranks=ranks,
        memory_mib=_memory(sizes, what, share * held, theta, memory_mib),
        disk_mib={"the folder": folder / MIB} | ({"propagated": derived / MIB} if derived else {}),
        network_mib=2 * (ranks - 1) / ranks * 8 * theta.numel() / MIB,
        seconds_per_pass=a_pass,
        sweeps=sweeps,
        passes=passes,
        measured={"nanoseconds_a_node": 1e9 * seconds, "bytes_a_node": held},
        seconds={name: (low * a_pass, high * a_pass) for name, (low, high) in ends.items()},
    )


def _memory(sizes: Sizes, what: Propagation | None, block: float, theta: Tensor, memory_mib: float) -> dict[str, float]:
    """MiB that a process has at most, by phase: what it is itself, vectors of all nodes, and what the phase holds."""
    nodes, item, threads, budget = sizes.nodes, sizes.item, torch.get_num_threads(), memory_mib * MIB
    opened = 9 * nodes + threads * min(sizes.edges, PART) * LOOKED
    index = 8 * nodes + (NODE[what.matrix] if what is not None else NODE["normalised"]) * nodes
    found: dict[str, float] = {"opening": opened}
    if what is not None:
        columns = min(sizes.features, max(1, budget // (nodes * item)))
        rows = min(nodes, ROWS) * item
        parts = threads * (min(sizes.edges, EDGES) * TAKEN + 2 * rows * sizes.features) + (threads + 1) * rows * columns
        found["propagating"] = max(opened, index + 17 * nodes + nodes * columns * item + parts)
        work = min(budget, block)
    else:
        work = budget
    gathered = min(GATHERED * WINDOW, nodes * sizes.features * item)  # pages around the rows that are read
    line = sizes.classes * item
    share = (sizes.training + sizes.held) / nodes if what is not None else 1.0
    outputs = OUTPUTS * nodes * line * (1 - (1 - share) ** max(1.0, 4096 / line))
    curvature = theta.numel() * theta.element_size() * (TUNING.spectrum.rank + TUNING.spectrum.spare)
    held = index + LISTED * nodes + outputs + gathered + curvature
    found["training"] = max(opened, held + work)
    anew = 3 * min(HELD, nodes * sizes.features * item) if what is not None else 0  # read, put together, normalised
    found["a request"] = max(opened, held + 2 * work + anew)
    found["a request of thousands"] = found["a request"] + _reached(sizes, what)
    return {phase: _resident() + held / MIB for phase, held in found.items()}


def _reached(sizes: Sizes, what: Propagation | None) -> float:
    """Bytes that a request for many items has beside: the pages of all edges, and rows anew that evaluations ask for.

    Pages are the system's, which takes them back where memory is short.
    """
    degree, asked = max(1.0, sizes.edges / sizes.nodes), float(sizes.training + sizes.held)
    steps = what.steps if what is not None else 0
    rows = sum(min(sizes.nodes, asked * degree**k) for k in range(steps))
    return 16 * sizes.edges + rows * sizes.features * sizes.item


def _resident() -> float:
    """MiB that this process has now: torch and what else it took to get here."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):  # another system: what torch takes is not known there
        return 0.0
    return pages * 4096 / MIB


def _sweeps(sizes: Sizes, steps: int, held: float, limit: float) -> float:
    """How many times the graph a pass in blocks looks at, were there no hubs."""
    degree = sizes.edges / sizes.nodes
    near = sum(degree**k for k in range(steps + 1))
    most = max(1.0, limit / held)  # nodes of a halo that fit
    roots = max(1.0, most / near)
    if most >= sizes.nodes:
        return 1.0
    return max(1.0, sizes.training / roots) * min(sizes.nodes, roots * near) / sizes.nodes


def _measured(model: nn.Module, sizes: Sizes) -> tuple[float, float, int]:
    """Seconds of a pass and bytes held for a node, and the message-passing steps of the model."""
    what, generator = propagation_of(model), torch.Generator().manual_seed(0)
    count = min(TRIED, sizes.training if what is not None else sizes.nodes)
    shape = (count, len(what.powers), sizes.features) if what is not None else (count, sizes.features)
    data = Data(x=torch.randn(*shape, generator=generator), train_mask=torch.ones(count, dtype=torch.bool))
    data.y = torch.randint(sizes.classes, (count,), generator=generator)
    data.edge_index = torch.randint(count, (2, round(count * sizes.edges / sizes.nodes)), generator=generator)
    forward = call if what is None else by_rows
    theta, meter = flatten(model), Meter(torch.device("cpu"))
    reach = find_reach(model, lambda: model(torch.zeros(1, sizes.features), data.edge_index[:, :0]))
    if reach.steps is None:
        raise DataError(f"how far messages travel in this model is not known ({reach.source}); no forecast can be made")
    with torch.enable_grad():
        objective = Objective(model.eval(), data, cross_entropy, torch.zeros_like(theta), forward, meter)
        with TensorBytes() as bytes_held:
            objective.look(theta)
        start, taken, meter.passes = perf_counter(), 0.0, 0
        while not meter.passes or taken < ENOUGH:
            objective.look(theta)
            taken = perf_counter() - start
    own = data.x.nbytes / count if what is not None else 0
    return taken / meter.passes / count, bytes_held.peak / count + own, reach.steps

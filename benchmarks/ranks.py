"""How much faster several ranks are: a gradient, a product with the curvature, a request; and a model of the network.

    python benchmarks/ranks.py --nodes 1000000 --ranks 1,2,4,8,16
    python benchmarks/ranks.py --nodes 10000000 --ranks 8,16,4 --parts gradient,product --what measure --repeats 2
    python benchmarks/ranks.py --nodes 10000000 --ranks 8 --parts request --what measure --once

The graph is made, and where requests are measured a GCN is trained for a few epochs and prepared, with all cores. Then
everything has one thread. ``measure`` times one process, which is compared with; for each number of ranks that process
forks as many, so that all read one graph in memory, and they are joined as by ``torchrun``. ``control`` forks as many
that do not know of each other, each of which does what the one process does, side by side: what they lose is the
machine's (memory, shared cores), and no exchange or halo. ``network`` measures what gloo takes to add and to gather.
``predict`` says what 2 to 64 ranks would take (:mod:`ranks_model`), beside what was measured where it was. Every cell
is a line of ``results/ranks/cells.jsonl``, written when it is done.
"""

import argparse
import gc
import multiprocessing
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as the command line does
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the autograd of a process that sees a GPU has threads, and cannot be forked

import torch
from generated import neighbourly, planted
from ranks_model import network_fit, predictions
from shared import RESULTS, Document, append, lines, made, resident_mib
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.tuning import tuned
from unweave.curvature.prepared import Prepared
from unweave.curvature.products import products
from unweave.graph.neighbourhood import halo
from unweave.graph.view import GraphView
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import objective_within
from unweave.objective.parts.localising import find_locality_in_parts

DEGREE, FEATURES, CLASSES, HIDDEN = 10, 64, 10, 32
DECAY = 1e-3
EPOCHS = 5
FAR = 0.001
GRAPHS: dict[str, Callable[[int], Data]] = {
    "near": lambda n: neighbourly(n, DEGREE * n, far=FAR, features=FEATURES, classes=CLASSES),
    "hubs": lambda n: neighbourly(n, DEGREE * n, far=FAR, features=FEATURES, classes=CLASSES, hubs=max(1, n // 10_000)),
    "random": lambda n: planted(n, DEGREE * n, features=FEATURES, classes=CLASSES),
}
"""Neighbourhoods, one edge in a thousand of which leads anywhere; the same with hubs; a random graph, the worst."""

PARTS = ("gradient", "product", "request")
MACHINES = (2, 4, 8, 16, 32, 64)


class Clock:
    """What a rank exchanges with the others, and the seconds that it waits for them and that this takes."""

    def __init__(self) -> None:
        self._start()
        for name in ("_roll", "total", "rows"):
            setattr(ranks, name, partial(self._timed, name, getattr(ranks, name)))

    def _start(self) -> None:
        self.spent, self.sent = {"wait": 0.0, "send": 0.0}, Counter[tuple[str, int]]()

    def _timed(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        found = function(*args)
        self.spent["wait" if name == "_roll" else "send"] += time.perf_counter() - start
        bytes_ = found.nbytes if isinstance(found, Tensor) else 24  # a roll call adds three numbers
        self.sent["gather" if name == "rows" else "add", bytes_] += 1
        return found

    def take(self) -> Document:
        """All of it, and from zero again."""
        found = self.spent | {"sent": [[kind, size, times] for (kind, size), times in sorted(self.sent.items())]}
        self._start()
        return found


def timed(
    work: Callable[[], Any],
    repeats: int,
    clock: Clock | None = None,
    together: Callable[[], object] = lambda: None,
    first: bool = True,
) -> Document:
    """The median of some repetitions after a first one, and of the one that took that long where the time went."""
    if first:
        work()
    found = []
    for _ in range(repeats):
        together()
        if clock is not None:
            clock.take()
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        work()
        took = {"seconds": time.perf_counter() - start} | _processor(before)
        found.append(took | ({} if clock is None else clock.take()))
    middle = median(one["seconds"] for one in found)
    return min(found, key=lambda one: abs(one["seconds"] - middle))


def _processor(before: resource.struct_rusage) -> Document:
    """The processor's time since then, how much of it the system took, and the pages of memory that it gave."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    system = now.ru_stime - before.ru_stime
    return {"cpu": now.ru_utime - before.ru_utime + system, "system": system, "pages": now.ru_minflt - before.ru_minflt}


class Bench:
    """The graph, the model and what is asked of them.

    Args:
        args: The options of the command.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        start = time.perf_counter()
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.data = GRAPHS[args.graph](args.nodes)
        self.view = GraphView.of(self.data)
        _ = self.view.index
        torch.manual_seed(0)
        self.model: nn.Module = uw.models.GCN(FEATURES, CLASSES, hidden=HIDDEN, activation="tanh", dropout=0.0)
        self.ready: Prepared | None = None
        if "request" in args.parts:
            with little():
                run = uw.train(self.model, self.data, epochs=EPOCHS, weight_decay=DECAY, examine=False)
                self.model = run.model
                self.ready = uw.prepare(self.model, self.data, weight_decay=DECAY)
        self.model.eval()
        torch.set_num_threads(1)
        data = self.data
        self.cell: Document = {"graph": args.graph, "nodes": args.nodes, "edges": int(data.edge_index.size(1))}
        self.cell |= {"training": int(data.train_mask.sum()), "parameters": flatten(self.model).numel()}
        self.built = time.perf_counter() - start

    def objective(self) -> Objective:
        """In one process the whole, of a rank its share."""
        meter = Meter(torch.device("cpu"))
        return objective_within(self.model, self.data, DECAY, cross_entropy, call, meter, None)

    def work(self, objective: Objective, parts: tuple[str, ...], clock: Clock | None = None, **how: Any) -> Document:
        """The measurements, in one process or on a rank."""
        theta, found, repeats = flatten(self.model), dict[str, Any](), self.args.repeats
        if "gradient" in parts:
            found["gradient"] = timed(lambda: objective.look(theta).gradient(), repeats, clock, **how)
        if "product" in parts:
            operator, v = products("gauss-newton", objective.at(theta)), torch.ones_like(theta)
            found["product"] = timed(lambda: operator(v), repeats, clock, **how)
            del operator
            gc.collect()
        if "request" in parts:
            request = uw.Request(nodes=[int(self.data.train_mask.nonzero()[17])])
            told: Document = {}

            def forget() -> None:
                done = uw.unlearn(self.model, self.data, request, "gif", prepared=self.ready, weight_decay=DECAY)
                told.update(passes=done.receipt.passes, step=done.receipt.step_norm)

            with little():
                found["request"] = timed(forget, 1, clock, first=not self.args.once, **how) | told
        return found | {"mib": resident_mib()}

    def one(self) -> None:
        """One process."""
        found = self.work(self.objective(), self.args.parts)
        gc.collect()
        keep(self.args, "measure", 0, [found], self.cell | {"built": self.built})

    def ranks(self, count: int) -> None:
        """So many ranks."""

        def work() -> Document:
            clock, begun = Clock(), time.perf_counter()
            objective = self.objective()
            assert isinstance(objective, Blocks)
            objective.look(flatten(self.model)).gradient()
            setup = time.perf_counter() - begun
            held = [part.data for part, _ in objective._parts.values()]
            told = {"setup": setup, "blocks": len(held), "nodes": sum(int(part.num_nodes or 0) for part in held)}
            told["edges"] = sum(part.num_edges for part in held)
            return told | self.work(objective, self.args.parts, clock)

        keep(self.args, "measure", count, forked(count, work), self.cell)

    def control(self, count: int) -> None:
        """So many copies of the one process side by side; a request is mostly gradients, and is left out."""
        barrier = multiprocessing.get_context("fork").Barrier(count)
        parts = tuple(part for part in self.args.parts if part != "request")
        found = forked(count, lambda: self.work(self.objective(), parts, together=barrier.wait), joined=False)
        keep(self.args, "control", count, found, self.cell)

    def predict(self) -> None:
        """What numbers of ranks would take."""
        known = lines(self.args.out / "cells.jsonl")
        same = [c for c in known if all(c.get(name) == self.cell[name] for name in ("graph", "nodes"))]
        nothing = torch.zeros_like(flatten(self.model))
        here = find_locality_in_parts(self.model, self.view, cross_entropy, nothing, call, float("inf"))
        nodes, sizes = torch.arange(self.view.size), dict[int, int]()
        for count in MACHINES:
            part = halo(self.view, nodes.tensor_split(count)[count // 2], here.reach, here.border)
            sizes[count] = part.nodes.numel() + part.edges.numel()
        fit = network_fit([c for c in known if c["part"] == "network"])
        told = predictions(same, fit, sizes, self.args.latency_us, self.args.gbit)
        network = {"network": fit, "latency_us": self.args.latency_us, "gbit": self.args.gbit}
        keep(self.args, "predict", 0, told, self.cell | network)


def keep(args: argparse.Namespace, part: str, count: int, found: list[Document], cell: Document) -> None:
    """Write a cell, and say in a line what it holds."""
    append(args.out / "cells.jsonl", {"part": part} | cell | {"ranks": count, "found": found} | made("cpu"))
    told = {k: max(a[k]["seconds"] for a in found) for k in PARTS if k in found[0]} or found
    print(part, cell.get("graph"), cell.get("nodes"), "ranks", count, told, flush=True)


def _joined(work: Callable[[], Document], rank: int, count: int, port: int) -> Document:
    """Some work as one of several ranks."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with ranks.ranks():
        return work()


def _child(pipe: Any, work: Callable[[], Document]) -> None:
    pipe.send(work())
    pipe.close()
    os._exit(0)


def forked(count: int, work: Callable[[], Document], *, joined: bool = True) -> list[Document]:
    """What some work gives in each of several processes, which share all that this process holds in memory.

    Args:
        count: How many.
        work: What each does.
        joined: Whether they are ranks of one job.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    there = []
    for rank in range(count):
        ours, theirs = context.Pipe(duplex=False)
        own = partial(_joined, work, rank, count, port) if joined else work
        process = context.Process(target=_child, args=(theirs, own))
        process.start()
        theirs.close()
        there.append((process, ours))
    found = [ours.recv() for _, ours in there]
    for process, _ in there:
        process.join()
    return found


@contextmanager
def little() -> Iterator[None]:
    """Few eigenpairs: how long one product takes is what is measured."""
    with tuned(spectrum={"rank": 8, "per_class": 0.0, "spare": 4, "bend_products": 4}):
        yield


SIZES = tuple(4**power for power in range(2, 12))
"""Numbers of doubles that are added, and of floats that are gathered."""


def network(args: argparse.Namespace) -> None:
    """What gloo takes to add and to gather, by bytes and ranks."""

    def work() -> Document:
        found = []
        for size in SIZES:
            vector, some = torch.ones(size, dtype=torch.float64), torch.ones(max(1, size // ranks.size()))
            counts = [some.numel()] * ranks.size()
            for kind, call_it in (
                ("add", lambda v=vector: ranks.total(v)),
                ("gather", lambda s=some, c=counts: ranks.rows(s, c)),
            ):
                with ranks.together("network"):
                    pass
                took = timed(call_it, 9)["seconds"]
                bytes_ = vector.nbytes if kind == "add" else some.nbytes * ranks.size()
                found.append({"kind": kind, "bytes": bytes_, "seconds": took})
        return {"times": found}

    for count in (count for count in args.ranks if count > 1):
        answers = forked(count, work)
        slowest = [max(times, key=lambda t: t["seconds"]) for times in zip(*(a["times"] for a in answers), strict=True)]
        keep(args, "network", count, [{"times": slowest}], {})


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    some = lambda text: tuple(text.split(","))  # noqa: E731
    parser.add_argument("--what", type=some, default=("network", "measure", "control", "predict"))
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--graph", choices=tuple(GRAPHS), default="near")
    parser.add_argument("--ranks", type=lambda text: tuple(map(int, text.split(","))), default=(1, 2, 4, 8, 16))
    parser.add_argument("--parts", type=some, default=PARTS)
    parser.add_argument("--repeats", type=int, default=3, help="of a gradient and a product, after a first one")
    parser.add_argument("--once", action="store_true", help="time a request that is the first: on large graphs")
    parser.add_argument("--latency-us", type=float, default=50.0, help="of the network to predict for")
    parser.add_argument("--gbit", type=float, default=10.0, help="its bandwidth")
    parser.add_argument("--out", type=Path, default=RESULTS / "ranks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "network" in args.what:
        network(args)
    bench = Bench(args)
    if "measure" in args.what:
        bench.one()
    for count in args.ranks:
        if "measure" in args.what:
            bench.ranks(count)
        if "control" in args.what and count > 1:
            bench.control(count)
    if "predict" in args.what:
        bench.predict()


if __name__ == "__main__":
    main()

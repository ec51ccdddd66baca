"""How much faster several ranks are: a gradient, a product with the curvature, a request; and a model of the network.

    python benchmarks/ranks.py measure --nodes 1000000 --graph near --ranks 1,2,4,8,16
    python benchmarks/ranks.py measure --nodes 10000000 --graph near --ranks 1,2,4,8,16 --parts gradient,product
    python benchmarks/ranks.py network --ranks 2,4,8,16
    python benchmarks/ranks.py predict --nodes 1000000 --graph near

``measure`` makes the graph, trains a GCN for a few epochs and prepares it in one process, which is compared with. For
each number of ranks that process then forks as many, of one thread each, so that all read one graph in memory; they are
joined as by ``torchrun``. ``network`` measures what gloo takes to add and to gather. ``predict`` fits latency and
bandwidth to that, seconds for a node and an edge to the ranks that were measured, takes the halos of shares of the
graph for 2 to 64 machines, and says what a gradient would take there, beside what was measured where it was. Every cell
is a line of ``results/ranks/cells.jsonl``, written when it is done.
"""

import argparse
import gc
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the autograd of a process that sees a GPU has threads, and cannot be forked

import torch
from generated import neighbourly, planted
from ranks_model import network_fit, predictions
from shared import RESULTS, Document, append, lines, made, resident_mib
from torch import nn
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
REPEATS = 5
FAR = 0.001
GRAPHS: dict[str, Callable[[int], Data]] = {
    "near": lambda n: neighbourly(n, DEGREE * n, far=FAR, features=FEATURES, classes=CLASSES),
    "hubs": lambda n: neighbourly(n, DEGREE * n, far=FAR, features=FEATURES, classes=CLASSES, hubs=max(1, n // 10_000)),
    "random": lambda n: planted(n, DEGREE * n, features=FEATURES, classes=CLASSES),
}
"""Neighbourhoods, one edge in a thousand of which leads anywhere; the same with hubs; a random graph, the worst."""

PARTS = ("gradient", "product", "request")


def model_for() -> nn.Module:
    """The model that is measured."""
    torch.manual_seed(0)
    return uw.models.GCN(FEATURES, CLASSES, hidden=HIDDEN, activation="tanh", dropout=0.0)


class Clock:
    """Seconds that a rank waits for the others, and that it takes to add and gather, since they were last asked for."""

    def __init__(self) -> None:
        self.spent = {"wait": 0.0, "send": 0.0}
        for name, kind in (("_roll", "wait"), ("total", "send"), ("rows", "send")):
            setattr(ranks, name, self._timed(getattr(ranks, name), kind))

    def _timed(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.spent[kind] += time.perf_counter() - start

        return timed

    def take(self) -> dict[str, float]:
        """Both, and from zero again."""
        found, self.spent = dict(self.spent), {"wait": 0.0, "send": 0.0}
        return found


def timed(work: Callable[[], Any], repeats: int, clock: Clock | None = None) -> Document:
    """The median of some repetitions after a first one, and of the one that took that long where the time went."""
    work()
    found = []
    for _ in range(repeats):
        if clock is not None:
            clock.take()
        start, cpu = time.perf_counter(), time.process_time()
        work()
        took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        found.append(took | ({} if clock is None else clock.take()))
    middle = median(one["seconds"] for one in found)
    return min(found, key=lambda one: abs(one["seconds"] - middle))


def work_on(
    objective: Objective,
    model: nn.Module,
    ready: Prepared | None,
    data: Data,
    parts: tuple[str, ...],
    clock: Clock | None,
) -> Document:
    """The measurements, in one process or on a rank."""
    theta, found = flatten(model), dict[str, Any]()
    if "gradient" in parts:
        found["gradient"] = timed(lambda: objective.look(theta).gradient(), REPEATS, clock)
    if "product" in parts:
        operator, v = products("gauss-newton", objective.at(theta)), torch.ones_like(theta)
        found["product"] = timed(lambda: operator(v), REPEATS, clock)
        del operator
        gc.collect()
    if "request" in parts:
        request = uw.Request(nodes=[int(data.train_mask.nonzero()[17])])
        steps: list[Document] = []

        def forget() -> None:
            done = uw.unlearn(model, data, request, "gif", prepared=ready, weight_decay=DECAY)
            steps[:] = [{"passes": done.receipt.passes, "step": done.receipt.step_norm}]

        found["request"] = timed(forget, 1, clock) | steps[0]
    return found


def _rank(rank: int, count: int, port: int, pipe: Any, work: Callable[[], Document]) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with ranks.ranks():
        found = work()
    pipe.send(found)
    pipe.close()
    os._exit(0)


def forked(count: int, work: Callable[[], Document]) -> list[Document]:
    """What some work gives on each of several ranks, which share all that this process holds in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    there = []
    for rank in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(rank, count, port, theirs, work))
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


def measure(args: argparse.Namespace) -> None:
    """One process, then every number of ranks."""
    start = time.perf_counter()
    data = GRAPHS[args.graph](args.nodes)
    _ = GraphView.of(data).index
    build = time.perf_counter() - start
    model, meter = model_for(), Meter(torch.device("cpu"))
    with little():
        run = uw.train(model, data, epochs=EPOCHS, weight_decay=DECAY)
        start = time.perf_counter()
        ready = uw.prepare(run.model, data, weight_decay=DECAY) if "request" in args.parts else None
        prepare = time.perf_counter() - start
    model = run.model.eval()
    cell = {"part": "measure", "graph": args.graph, "nodes": args.nodes, "edges": int(data.edge_index.size(1))}
    cell |= {"training": int(data.train_mask.sum()), "parameters": flatten(model).numel()}
    one = objective_within(model, data, DECAY, cross_entropy, call, meter, None)
    found = work_on(one, model, ready, data, args.parts, None)
    del one
    gc.collect()
    keep(args, cell | {"ranks": 0, "build": build, "prepare": prepare, "found": [found], "mib": [resident_mib()]})

    def work() -> Document:
        clock, begun = Clock(), time.perf_counter()
        objective = objective_within(model, data, DECAY, cross_entropy, call, Meter(torch.device("cpu")), None)
        assert isinstance(objective, Blocks)
        objective.at(flatten(model)).gradient()
        setup = time.perf_counter() - begun
        part = objective._parts[False][0].data
        told = {
            "setup": setup,
            "nodes": part.num_nodes,
            "edges": part.num_edges,
            "roots": objective.shares.of().mine.numel(),
        }
        return told | work_on(objective, model, ready, data, args.parts, clock) | {"mib": resident_mib()}

    for count in args.ranks:
        with little():
            answers = forked(count, work)
        keep(args, cell | {"ranks": count, "found": answers})


def keep(args: argparse.Namespace, cell: Document) -> None:
    """Write a cell, and say in a line what it holds."""
    append(args.out / "cells.jsonl", cell | made("cpu"))
    told = {k: max(a[k]["seconds"] for a in cell["found"]) for k in PARTS if k in cell["found"][0]}
    print(cell["part"], cell.get("graph"), cell.get("nodes"), "ranks", cell["ranks"], told, flush=True)


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

    for count in args.ranks:
        answers = forked(count, work)
        slowest = [max(times, key=lambda t: t["seconds"]) for times in zip(*(a["times"] for a in answers), strict=True)]
        keep(args, {"part": "network", "ranks": count, "found": [{"times": slowest}]})


MACHINES = (2, 4, 8, 16, 32, 64)
LOOKED_AT = 3
"""Shares whose halos are taken for each number of machines."""


def predict(args: argparse.Namespace) -> None:
    """What a gradient would take on machines that were not measured."""
    data = GRAPHS[args.graph](args.nodes)
    view = GraphView.of(data)
    found = lines(args.out / "cells.jsonl")
    reach, border = _locality(data)
    nodes, sizes = data.train_mask.nonzero().flatten(), dict[int, list[tuple[int, int]]]()
    for count in MACHINES:
        stretches = nodes.tensor_split(count)
        chosen = sorted({0, count // 2, count - 1})[:LOOKED_AT]
        made_ = [halo(view, stretches[n], reach, border) for n in chosen]
        sizes[count] = [(part.nodes.numel(), part.edges.numel()) for part in made_]
    own = [c for c in found if c["part"] == "measure" and (c["graph"], c["nodes"]) == (args.graph, args.nodes)]
    fit = network_fit([c for c in found if c["part"] == "network"])
    cell = {"part": "predict", "graph": args.graph, "nodes": args.nodes, "network": fit}
    for name, told in predictions(own, fit, sizes, args.latency_us, args.gbit).items():
        append(args.out / "cells.jsonl", cell | {"name": name, "found": told} | made("cpu"))
        print(name, *told, sep="\n", flush=True)


def _locality(data: Data) -> tuple[Any, Any]:
    model = model_for().eval()
    with tuned(spectrum={"rank": 1}):
        found = find_locality_in_parts(
            model, GraphView.of(data), cross_entropy, torch.zeros(flatten(model).numel()), call, float("inf")
        )
    return found.reach, found.border


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "network", "predict"))
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--graph", choices=tuple(GRAPHS), default="near")
    parser.add_argument("--ranks", type=lambda text: tuple(map(int, text.split(","))), default=(1, 2, 4, 8, 16))
    parser.add_argument("--parts", type=lambda text: tuple(text.split(",")), default=PARTS)
    parser.add_argument("--latency-us", type=float, default=50.0, help="of the network to predict for")
    parser.add_argument("--gbit", type=float, default=10.0, help="its bandwidth")
    parser.add_argument("--out", type=Path, default=RESULTS / "ranks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"measure": measure, "network": network, "predict": predict}[args.what](args)


if __name__ == "__main__":
    main()

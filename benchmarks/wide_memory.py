"""Wide models on a million nodes in bounded memory, on two cores: what each piece of the work holds at most, and takes.

    taskset -c 0,1 python benchmarks/wide_memory.py --model gcn,sage,sign --memory-mib 12288
    taskset -c 0,1 python benchmarks/wide_memory.py --model gcn --pieces way

A training to a minimum, a prepared state and a request are made of four pieces: an epoch, a gradient in eval mode, a
product with the curvature, and a gradient on the remaining graph. Each is done in a process of its own that holds the
whole graph, all but the epoch twice: the first time the size of the blocks is found, the second has those that were
found, as all that follow. Its peak is the most memory that process ever had. The whole *way*, train, prepare, forget,
is done too, with a few gradients and products where it would take hundreds (:data:`SHORT`): it shows what the work
holds, and ends nowhere near a minimum.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from generated import hard
from large import alone
from pages.wide_memory import PAGE
from shared import Document, append, arguments, made
from torch_geometric.data import Data

import unweave as uw
from unweave._core.tuning import tuned
from unweave.curvature.preparation import checked_objective
from unweave.curvature.products import products
from unweave.models import build
from unweave.objective.decay import as_weight_decay
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten

PIECES = ("graph", "gradient", "request", "product", "epoch", "way")
DECAY = 1e-3
SHORT: dict[str, dict[str, Any]] = {
    "polish": {"evaluations": 2},
    "spectrum": {"rank": 2, "per_class": 0.0, "spare": 1, "bend_products": 1},
    "damping": {"rehearsals": 1},
}


def piece(what: str, model: str, nodes: int, memory_mib: float) -> Document:
    """Draw the graph and do one piece of the work on it; the graph alone where that is the piece."""
    data = hard(nodes, features=64)
    if what == "graph":
        return {}
    how: dict[str, Any] = {"forgettable": True, "nodes": int(data.train_mask.sum())}
    module = build(model, data.num_features, data.num_classes, **how)
    start = perf_counter()
    if what == "way":
        return _way(module, data, memory_mib)
    if what == "epoch":
        run = uw.train(module, data, epochs=1, weight_decay=DECAY, memory_mib=memory_mib)
        return {"work": perf_counter() - start, "test_f1": run.metrics["test_f1"]}
    decay, loss = as_weight_decay(DECAY, module), as_loss(cross_entropy)
    objective = checked_objective(module, data, decay, loss, call, memory_mib)
    theta = flatten(module)
    if what == "request":
        objective = objective.without(uw.draw("nodes:0.05", data))
    work = products("gauss-newton", objective.at(theta)) if what == "product" else lambda at: objective.evaluate(at)[1]
    seconds, passes = [], []
    for _ in range(2):
        start, before = perf_counter(), objective.meter.passes
        assert bool(torch.isfinite(work(theta)).all())
        seconds.append(perf_counter() - start)
        passes.append(objective.meter.passes - before)
    return {"work": seconds[1], "passes": passes[1], "first": {"work": seconds[0], "passes": passes[0]}}


def _way(module: torch.nn.Module, data: Data, memory_mib: float) -> Document:
    """Train a model to a minimum, prepare it and let it forget a thousandth of its nodes, all of it cut short."""
    start = perf_counter()
    with tuned(**SHORT):
        run = uw.train(
            module, data, epochs=1, weight_decay=DECAY, forgettable=True, examine=False, memory_mib=memory_mib
        )
        trained = perf_counter()
        run = run.forget(uw.draw("nodes:0.001", data), memory_mib=memory_mib)
    receipt = run.receipts[-1]
    seconds = {"training and preparing": trained - start, "forgetting": perf_counter() - trained}
    return {"work": sum(seconds.values()), "parts": seconds, "told": receipt.details}


def main() -> None:
    """Measure the pieces."""
    parser = arguments(
        __doc__, "wide_memory", model=("sign", "gcn", "sage"), pieces=PIECES, nodes=1_000_000, memory_mib=12288.0
    )
    asked = parser.parse_args()
    out: Path = asked.out / "cells.jsonl"
    for what in asked.pieces:
        for model in asked.model[: 1 if what == "graph" else None]:
            found = alone(piece, what, model, asked.nodes, asked.memory_mib)
            cell = {"piece": what, "model": model, "nodes": asked.nodes, "memory_mib": asked.memory_mib}
            append(out, cell | found | made("cpu"))
            print(what, model, found, flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

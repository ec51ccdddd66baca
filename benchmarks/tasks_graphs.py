"""Whole graphs and several types of nodes: how good wide models are, whether seeds agree, and what ``gif`` closes.

    python benchmarks/tasks_graphs.py --data mutag,literature
    python benchmarks/tasks_graphs.py --data proteins

A line of ``cells.jsonl`` is a data set, a seed and a way of training, forgettable (a wide model) or ordinary (a small
one): for every request the gap of the outputs of the remaining examples to those of a model retrained the same way,
what ``gif``, ``auto``, a retraining from another seed and fine-tuning (as many passes) close of it, and their passes.
What is there already is not measured again.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pages.tasks_graphs import PAGE
from shared import Document, Gap, arguments, each, lines, made, write_lines
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_mean_pool

import unweave as uw
from unweave.errors import UnweaveError
from unweave.tasks import Graphs, Relations

sys.path.append(str(Path(__file__).parents[1]))
from tests.tasks.literature import WRITES, heterogeneous, literature

Build = Callable[[], nn.Module]
WAYS = ("forgettable", "ordinary")


class GIN(nn.Module):
    """A small ordinary graph classifier."""

    def __init__(self, features: int, classes: int, hidden: int = 32) -> None:
        super().__init__()
        sizes = (features, hidden, hidden)
        self.layers = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden))) for size in sizes
        )
        self.last = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits, ``[graphs, classes]``."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.last(global_mean_pool(x, batch))  # type: ignore[no-any-return]


def graphs_of(name: str, seed: int) -> tuple[Graphs, Build, Build, dict[str, uw.Request]]:
    """A data set of graphs, its wide model, a small ordinary one, and requests."""
    data = uw.load(name, seed=seed)
    assert isinstance(data, Graphs)
    rng = torch.Generator().manual_seed(seed)
    trained = data.graph[data.train_mask].tolist()
    sizes = {graph.number: graph.num_nodes for graph in data.graphs()}
    nodes = [(g, n) for g in trained for n in range(sizes[g] - 1) if float(torch.rand(1, generator=rng)) < 0.05]
    requests = {
        "graphs:0.05": uw.draw("nodes:0.05", data, seed=seed),
        "nodes:0.05": data.request(nodes=nodes),
        "edges:0.05": uw.draw("edges:0.05", data, seed=seed),
    }
    how: dict[str, Any] = {"forgettable": True, "nodes": len(trained)}
    wide = lambda: uw.models.build("pooled-sign", data.num_features, data.num_classes, **how)  # noqa: E731
    return data, wide, lambda: GIN(data.num_features, data.num_classes), requests


def literature_of(seed: int) -> tuple[Relations, Build, Build, dict[str, uw.Request]]:
    """A generated literature of 400 papers, its wide model, a small one, and requests."""
    hetero = literature(400, seed=seed + 3)
    data = Relations.of(hetero)
    requests = {
        "papers:0.05": uw.draw("nodes:0.05", data, seed=seed),
        "authors": data.request(nodes={"author": range(5, 15)}),
        "writes": data.request(edges={WRITES: hetero[WRITES].edge_index[:, :40].t().tolist()}),
        "edges:0.05": uw.draw("edges:0.05", data, seed=seed),
    }
    return data, lambda: heterogeneous(hetero, 128), lambda: heterogeneous(hetero, 16), requests


def measure(task: tuple[str, int, str]) -> Document:
    """A cell."""
    name, seed, way = task
    data, wide, small, requests = literature_of(seed) if name == "literature" else graphs_of(name, seed)
    forgettable = way == "forgettable"
    build = wide if forgettable else small
    torch.manual_seed(seed)
    run = uw.train(build(), data, seed=seed, forgettable=forgettable)
    found: Document = {"data": name, "seed": seed, "way": way, "weight_decay": run.recipe.weight_decay, "requests": {}}
    keys = ("test_f1", "val_f1", "agreement", "stationarity", "polish_passes")
    found["scores"] = {key: run.metrics[key] for key in keys if key in run.metrics}
    for what, request in requests.items():
        found["requests"][what] = _forget(run, request, build, forgettable=forgettable)
        print(name, way, what, found["requests"][what], flush=True)
    return found | made("cpu")


def _forget(run: uw.Run, request: uw.Request, build: Build, *, forgettable: bool) -> Document:
    retrained = run.forget(request, "retrain", allow_class_loss=True)
    left = retrained.data
    kept = torch.zeros_like(left.train_mask)
    for mask in ("train_mask", "val_mask", "test_mask"):
        kept |= left[mask]
    gaps = Gap(retrained.model, left, run.model, kept)
    found: Document = {"gap": gaps.none, "retrain_passes": retrained.receipts[-1].passes}
    try:
        after = run.forget(request, allow_class_loss=True)
    except UnweaveError as error:
        return found | {"refused": str(error)}
    passes = after.receipts[-1].passes
    assert run.recipe is not None
    how: dict[str, Any] = {"weight_decay": run.recipe.weight_decay}
    how |= {"forgettable": True, "examine": False} if forgettable else {"epochs": run.recipe.epochs}
    torch.manual_seed(run.recipe.seed + 1)
    other = uw.train(build(), left, seed=run.recipe.seed + 1, **how)
    tuned = run.forget(request, "finetune", epochs=max(1, round(passes / 2)), lr=0.01, allow_class_loss=True)
    chosen = run.forget(request, "auto", allow_class_loss=True)
    ladder = chosen.receipts[-1].ladder
    assert ladder is not None
    found |= {"auto": gaps.closed(chosen.model), "rung": ladder["rung"]}
    closes = {"gap_closed": after.model, "other_seed": other.model, "finetune": tuned.model}
    return found | {"passes": passes} | {key: gaps.closed(model) for key, model in closes.items()}


def main() -> None:
    """Measure what is asked for."""
    given = arguments(
        __doc__, "tasks_graphs", data=("mutag", "proteins", "literature"), ways=WAYS, seeds=1, jobs=1
    ).parse_args()
    path = given.out / "cells.jsonl"
    done = lines(path)
    known = {(cell["data"], cell["seed"], cell["way"]) for cell in done}
    asked = [(name, seed, way) for name in given.data for seed in range(given.seeds) for way in given.ways]
    for cell in each(measure, [task for task in asked if task not in known], given.jobs):
        done.append(cell)
        write_lines(path, sorted(done, key=lambda cell: (cell["data"], cell["seed"], cell["way"])))
    PAGE.write(given.out)


if __name__ == "__main__":
    main()

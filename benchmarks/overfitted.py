"""Models without weight decay, trained until nothing is left of their loss: is any small request refused, or harmed?

    python benchmarks/overfitted.py
    python benchmarks/overfitted.py --data cora --model sage,gin --seeds 3

A cell is a graph, a model of PyG and a draw of five small requests. Ten models are trained from ten seeds until their
mean training loss is 1e-3, and each forgets the five requests by ``gif``, with a prepared state and without: with two
draws a hundred small requests of each model, ten of each seed. For every request each model is retrained by the same
rule from the same seed. A cell's line in ``cells.jsonl`` has for each request the mean gap over the seeds, and the gap
of the predictions averaged over them first, which is free of the luck of a single training. The graph is a part of a
real one, so that the retrainings are a matter of minutes; ``--nodes 0`` takes all of it. What is there already is not
measured again.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pages.overfitted import PAGE
from shared import Document, arguments, each, lines, made, write_lines
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models import GAT, GIN, EdgeCNN, GraphSAGE
from torch_geometric.utils import k_hop_subgraph, subgraph

import unweave as uw
from unweave.errors import UnweaveError
from unweave.graph.index import distinct_edges
from unweave.objective.scores import closed, gap, log_probabilities

DATA = ("cora",)
MODELS = ("sage", "transformer", "gatv2", "gin", "edgecnn")
KINDS = (("edges", 1), ("edges", 5), ("nodes", 1), ("nodes", 3), ("features", 1))
"""What a request takes, and how much of it."""

LOSS, EPOCHS = 1e-3, 4000
"""Mean training loss at which training ends, and epochs after which it ends all the same."""

RATES = {"edgecnn": 0.003}
"""Adam's learning rate where it is not 0.01, with which not every seed gets there."""

HIDDEN = 64
WORDS = 2
"""Nodes that must have a feature for it to be kept in a part of a graph."""


class Transformer(nn.Module):
    """Two layers of ``TransformerConv``, of which PyG has no model."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = TransformerConv(features, hidden // 4, heads=4)
        self.second = TransformerConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores of all nodes."""
        outputs: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return outputs


@dataclass(frozen=True)
class Task:
    """One cell, and how it is measured."""

    data: str
    model: str
    draw: int
    seeds: int
    nodes: int


def part(name: str, nodes: int) -> Data:
    """The nodes that are met first from one with ten neighbours, and the features that some of them have."""
    whole = uw.load(name, seed=0)
    if not 0 < nodes < whole.num_nodes:
        return whole
    kept = newest = (torch.bincount(whole.edge_index[0]) >= 10).nonzero()[0]
    while newest.numel() and kept.numel() < nodes:
        around = k_hop_subgraph(kept, 1, whole.edge_index)[0]
        newest = around[~torch.isin(around, kept)][: nodes - kept.numel()]
        kept = torch.cat([kept, newest])
    kept = kept.sort().values
    edges, _ = subgraph(kept, whole.edge_index, relabel_nodes=True, num_nodes=whole.num_nodes)
    x = whole.x[kept]
    masks = {key: whole[key][kept] for key in ("train_mask", "val_mask", "test_mask")}
    return Data(
        x=x[:, (x != 0).sum(dim=0) >= WORDS],
        edge_index=edges,
        y=whole.y[kept],
        num_classes=whole.num_classes,
        **masks,
    )


def requests(graph: Data, draw: int) -> dict[str, uw.Request]:
    """Small requests, the same for every model."""
    found = {}
    for number, (kind, count) in enumerate(KINDS):
        rng = np.random.default_rng([draw, count, number])
        among = distinct_edges(graph) if kind == "edges" else graph.train_mask.nonzero().flatten()
        picked = among[torch.from_numpy(rng.choice(among.size(0), count, replace=False))].tolist()
        given: Any = dict.fromkeys(picked, "all") if kind == "features" else picked
        found[f"{kind} {count}"] = uw.Request(**{kind: given})
    return found


def build(name: str, graph: Data) -> nn.Module:
    """An untrained model."""
    features, classes = graph.num_features, int(graph.num_classes)
    makers: dict[str, Callable[[], nn.Module]] = {
        "sage": lambda: GraphSAGE(features, HIDDEN, 2, classes),
        "edgecnn": lambda: EdgeCNN(features, HIDDEN, 2, classes),
        "transformer": lambda: Transformer(features, HIDDEN, classes),
        "gatv2": lambda: GAT(features, HIDDEN, 2, classes, v2=True, heads=4),
        # Sums over hubs kill units of ReLU, and such a training ends nowhere.
        "gin": lambda: GIN(features, HIDDEN, 2, classes, act="leaky_relu"),
    }
    return makers[name]()


def train(name: str, graph: Data, seed: int) -> nn.Module:
    """Adam without weight decay, until nothing is left of the loss."""
    torch.manual_seed(seed)
    model = build(name, graph)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATES.get(name, 0.01))
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(graph.x, graph.edge_index)[graph.train_mask], graph.y[graph.train_mask])
        if float(loss.detach()) <= LOSS:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def measure(task: Task) -> Document:
    """A cell."""
    graph = part(task.data, task.nodes)
    asked = requests(graph, task.draw)
    models = [train(task.model, graph, seed) for seed in range(task.seeds)]
    states = [uw.prepare(model, graph, weight_decay=0.0) for model in models]
    document: Document = {
        "data": task.data,
        "model": task.model,
        "draw": task.draw,
        "seeds": task.seeds,
        "nodes": int(graph.num_nodes),
        "features": graph.num_features,
        "loss": fmean(_loss(model, graph) for model in models),
        "requests": {name: _forget(task.model, graph, request, models, states) for name, request in asked.items()},
    }
    return document | made("cpu")


def _loss(model: nn.Module, graph: Data) -> float:
    found = log_probabilities(model, graph)[graph.train_mask]
    return float(F.nll_loss(found, graph.y[graph.train_mask]))


def _forget(
    name: str, graph: Data, request: uw.Request, models: list[nn.Module], states: list[uw.Prepared]
) -> Document:
    """One request to every model: what is refused, and how far the others are from retraining."""
    left = uw.unlearn(models[0], graph, request, "none", weight_decay=0.0).data
    kept = torch.ones(int(graph.num_nodes), dtype=torch.bool)
    kept[list(request.nodes)] = False
    targets = [log_probabilities(train(name, left, seed), left) for seed in range(len(models))]
    before = [log_probabilities(model, left) for model in models]
    gaps = [gap(target, found, kept) for target, found in zip(targets, before, strict=True)]
    document: Document = {
        "gap": fmean(gaps),
        "mean_gap": gap(_mean(targets), _mean(before), kept),
        "another_seed": closed(
            fmean(gap(target, other, kept) for target, other in zip(targets, targets[1:] + targets[:1], strict=True)),
            fmean(gaps),
        ),
    }
    for how in ("fresh", "prepared"):
        after, refused, told, passes = [], Counter[str](), 0, []
        for model, state, start in zip(models, states, before, strict=True):
            given: Any = {"prepared": state} if how == "prepared" else {}
            try:
                done = uw.unlearn(model, graph, request, "gif", weight_decay=0.0, allow_class_loss=True, **given)
            except UnweaveError as error:
                refused[f"{type(error).__name__}: {error}"] += 1
                after.append(start)  # nothing was done
                continue
            after.append(log_probabilities(done.model, left))
            told += any("cannot be confirmed" in warning for warning in done.receipt.warnings)
            passes.append(done.receipt.passes)
        found = [gap(target, one, kept) for target, one in zip(targets, after, strict=True)]
        document[how] = {
            "closed": closed(fmean(found), document["gap"]),
            "mean_closed": closed(gap(_mean(targets), _mean(after), kept), document["mean_gap"]),
            "each": [closed(*pair) for pair in zip(found, gaps, strict=True)],
            "refused": dict(refused),
            "told": told,
            "passes": fmean(passes) if passes else None,
        }
    return document


def _mean(found: list[Tensor]) -> Tensor:
    """The logarithm of the mean probabilities."""
    return torch.stack(found).double().exp().mean(dim=0).log()


def main() -> None:
    """Measure what is asked for and not there."""
    options: Document = {"data": DATA, "model": MODELS, "draws": (0, 1), "seeds": 10, "nodes": 300, "jobs": 1}
    asked = arguments(__doc__, "overfitted", **options).parse_args()
    path = asked.out / "cells.jsonl"
    done = lines(path)
    known = {(d["data"], d["model"], d["draw"]) for d in done}
    tasks = [
        Task(data, model, draw, asked.seeds, asked.nodes)
        for draw in asked.draws
        for data in asked.data
        for model in asked.model
        if (data, model, draw) not in known
    ]
    for document in each(measure, tasks, asked.jobs):
        done.append(document)
        write_lines(path, sorted(done, key=lambda d: (d["data"], MODELS.index(d["model"]), d["draw"])))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

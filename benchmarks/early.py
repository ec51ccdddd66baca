"""Models whose training was stopped early: does an influence step lead away from a retraining, which stops as early?

    python benchmarks/early.py
    python benchmarks/early.py --data blocks-800 --epochs 15,30 --layers tag,gcn

A cell is a graph, a layer of PyG of which a model has two, a number of epochs of Adam and a seed. It forgets 5 % of the
edges, 5 % of the nodes and one node by ``gif``, with a prepared state and without, as it is and with steps that are not
shortened; its line in ``cells.jsonl`` has what each closes of the gap to a model trained the same way, for as many
epochs and from the same seed, on what remains. What is there already is not measured again.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from generated import hard
from pages.early import PAGE
from shared import Document, Gap, arguments, each, lines, made, write_lines
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, GATConv, GCNConv, SAGEConv, TAGConv
from torch_geometric.utils import stochastic_blockmodel_graph

import unweave as uw
from unweave._core.tuning import tuned

LAYERS: dict[str, Any] = {
    "tag": TAGConv,
    "cheb": partial(ChebConv, K=2),
    "sage": SAGEConv,
    "gcn": GCNConv,
    "gat": GATConv,
}
GRAPHS = ("hard-1k", "blocks-800")
EPOCHS = (15, 30, 100)
HIDDEN, DECAY = 16, 5e-4
WHOLE = {"unfinished": 1e9, "falling": 1e9}
"""With which no step is shortened because training was stopped early."""


@dataclass(frozen=True)
class Task:
    """One cell."""

    data: str
    layer: str
    epochs: int
    seed: int


class Two(nn.Module):
    """Two layers of a kind."""

    def __init__(self, layer: str, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = LAYERS[layer](features, HIDDEN), LAYERS[layer](HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores of all nodes."""
        h = F.dropout(self.first(x, edge_index).relu(), 0.3, self.training)
        outputs: Tensor = self.second(h, edge_index)
        return outputs


def blocks(size: int = 160, classes: int = 5, features: int = 40) -> Data:
    """Classes whose nodes have six neighbours each, three in four of their own class, and features that say little."""
    torch.manual_seed(0)
    y = torch.arange(classes).repeat_interleave(size)
    apart = 1.5 / (size * (classes - 1))
    within = torch.full((classes, classes), apart) + (4.5 / size - apart) * torch.eye(classes)
    x = 0.5 * torch.randn(classes, features)[y] + 3 * torch.randn(y.numel(), features)
    edge_index = stochastic_blockmodel_graph([size] * classes, within)
    data = Data(x=x, edge_index=edge_index, y=y, num_nodes=y.numel())
    data.num_classes = classes
    return uw.split(data, seed=0)


def train(task: Task, graph: Data) -> nn.Module:
    """Adam for some epochs, however much there is to gain."""
    torch.manual_seed(task.seed)
    model = Two(task.layer, graph.num_features, int(graph.num_classes))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=DECAY)
    for _ in range(task.epochs):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(graph.x, graph.edge_index)[graph.train_mask], graph.y[graph.train_mask])
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def measure(task: Task) -> Document:
    """A cell."""
    graph = blocks() if task.data == "blocks-800" else hard(1000, features=40, classes=5)
    model = train(task, graph)
    fresh = uw.Run(model, graph, weight_decay=DECAY)
    ready = fresh.prepare()
    assert ready.prepared is not None
    first = int(graph.train_mask.nonzero()[task.seed])
    asked = {kind: uw.draw(kind, graph, seed=task.seed) for kind in ("edges:0.05", "nodes:0.05")}
    return {
        "data": task.data,
        "layer": task.layer,
        "epochs": task.epochs,
        "seed": task.seed,
        "left": ready.prepared.stationarity,
        "requests": [
            {"request": name, "way": way, **_forget(task, model, run, request)}
            for name, request in (asked | {"one node": uw.Request(nodes=[first])}).items()
            for way, run in (("fresh", fresh), ("prepared", ready))
        ],
    } | made("cpu")


def _forget(task: Task, model: nn.Module, run: uw.Run, request: uw.Request) -> Document:
    done = run.forget(request, "gif", allow_class_loss=True)
    with tuned(step=WHOLE):
        whole = run.forget(request, "gif", allow_class_loss=True)
    kept = torch.ones(int(run.data.num_nodes), dtype=torch.bool)
    kept[list(request.nodes)] = False
    found = Gap(train(task, done.data), done.data, model, kept)
    receipt = done.receipts[-1]
    return {
        "gap": found.none,
        "closed": found.closed(done.model),
        "whole": found.closed(whole.model),
        "shortened_to": receipt.details.get("shortened_to"),
        "grade": receipt.grade,
        "warnings": len(receipt.warnings),
    }


def main() -> None:
    """Measure what is asked for and not there."""
    parser = arguments(__doc__, "early", data=GRAPHS, layers=tuple(LAYERS), epochs=EPOCHS, seeds=(0, 1), jobs=1)
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    done = lines(path)
    known = {(d["data"], d["layer"], d["epochs"], d["seed"]) for d in done}
    tasks = [
        Task(data, layer, epochs, seed)
        for data in asked.data
        for layer in asked.layers
        for epochs in asked.epochs
        for seed in asked.seeds
        if (data, layer, epochs, seed) not in known
    ]
    for document in each(measure, tasks, asked.jobs):
        done.append(document)
        write_lines(path, sorted(done, key=lambda d: (d["data"], d["layer"], d["epochs"], d["seed"])))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

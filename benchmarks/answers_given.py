"""Graphs, requests and models of one's own, generated: what the answers of unweave are asked with."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from answers_interface import SEED, Checkpoint, Model, Request
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SGConv
from torch_geometric.utils import to_undirected

Loss = Callable[[Tensor, Tensor], Tensor]
EPOCHS, DECAY = 40, 5e-4
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)
NAMES = ("gcn", "sgc", "gat", "gin")


def little(*, nodes: int = 160, features: int = 10, classes: int = 3, directed: bool = False, seed: int = 7) -> Data:
    """A generated graph whose features and edges follow the class."""
    rng = np.random.default_rng([SEED, seed])
    y = rng.integers(classes, size=nodes)
    x = rng.standard_normal((nodes, features)) + 1.5 * np.eye(classes, features)[y]
    pairs = rng.integers(nodes, size=(2, 4 * nodes))
    alike = (y[pairs[0]] == y[pairs[1]]) | (rng.random(4 * nodes) < 0.3)
    pairs = np.unique(pairs[:, alike & (pairs[0] != pairs[1])], axis=1)
    edges = torch.from_numpy(pairs) if directed else to_undirected(torch.from_numpy(pairs), num_nodes=nodes)
    part = torch.from_numpy(rng.permutation(nodes) * 10 // nodes)
    masks = {"train_mask": part < 7, "val_mask": part == 7, "test_mask": part > 7}
    return Data(x=torch.from_numpy(x), edge_index=edges, y=torch.from_numpy(y), num_classes=classes, **masks)


def requests(data: Data, *, seed: int = 3) -> dict[str, Request]:
    """One request of every kind, and a mixed one."""
    rng = np.random.default_rng([SEED, seed])
    nodes = rng.permutation(data.train_mask.nonzero().flatten().numpy()).tolist()
    some = max(4, len(nodes) // 50)
    gone, bare, partly, unlabelled = (nodes[i * some : (i + 1) * some] for i in range(4))
    pairs = data.edge_index.t()
    pairs = pairs if data.is_directed() else pairs[pairs[:, 0] < pairs[:, 1]]
    kept = pairs[~torch.isin(pairs, torch.tensor(gone)).any(dim=1)].numpy()
    edges = [(int(u), int(v)) for u, v in kept[rng.permutation(len(kept))[: max(5, len(kept) // 30)]]]
    columns = {n: data.x[n].nonzero().flatten()[:3].tolist() for n in partly}
    return {
        "edges": Request(edges=edges),
        "nodes": Request(nodes=gone),
        "features": Request(features=dict.fromkeys(bare, "all")),
        "columns": Request(features=columns),
        "labels": Request(labels=unlabelled),
        "mixed": Request(nodes=gone[:3], edges=edges[:4], features={bare[0]: "all", **columns}, labels=unlabelled[:3]),
    }


def single(data: Data, count: int) -> list[Request]:
    """Small requests of every kind, in turn."""
    found = requests(data, seed=11)
    edges, nodes, labels = found["edges"].edges, found["nodes"].nodes, found["labels"].labels
    rows = list(found["features"].features)
    kinds: list[Callable[[int], Request]] = [
        lambda i: Request(edges=edges[i : i + 1]),
        lambda i: Request(nodes=nodes[i : i + 1]),
        lambda i: Request(features={rows[i]: "all"}),
        lambda i: Request(labels=labels[i : i + 1]),
    ]
    return [kinds[i % 4](i // 4) for i in range(count)]


class Own(nn.Module):
    """Two layers with dropout, perhaps normalised and weighted."""

    def __init__(
        self, layer: Callable[[int, int], nn.Module], sizes: tuple[int, int, int], *, norm: bool = False
    ) -> None:
        super().__init__()
        self.conv1, self.conv2 = layer(sizes[0], sizes[1]), layer(sizes[1], sizes[2])
        self.norm = nn.BatchNorm1d(sizes[1]) if norm else nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """One row a node."""
        weight = [] if edge_weight is None else [edge_weight]
        h = torch.tanh(self.norm(self.conv1(x, edge_index, *weight)))
        return self.conv2(F.dropout(h, 0.3, training=self.training), edge_index, *weight)  # type: ignore[no-any-return]


class Headed(nn.Module):
    """A frozen layer under a linear head."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.encoder, self.head = GCNConv(features, 8), nn.Linear(8, outputs)
        self.encoder.requires_grad_(False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """One row a node."""
        return self.head(torch.tanh(self.encoder(x, edge_index)))  # type: ignore[no-any-return]


class Linear(nn.Module):
    """One layer of two hops, linear in its parameters."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.conv = SGConv(features, outputs, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """One row a node."""
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


def fitted(make: Callable[[], Model], data: Data, loss: Loss, epochs: int = 60) -> Model:
    """A model of one's own after a training loop of one's own."""
    torch.manual_seed(5)
    model = make().double().train()
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02, weight_decay=DECAY)
    weight = [] if data.get("edge_weight") is None else [data.edge_weight]
    for _ in range(epochs):
        optimiser.zero_grad()
        outputs = model(data.x, data.edge_index, *weight)[data.train_mask]
        torch.autograd.backward(loss(outputs, data.y[data.train_mask]).mean())
        optimiser.step()
    return model.eval()


def loop(model: Model, data: Data, start: Checkpoint | None = None, until: int = EPOCHS) -> Checkpoint:
    """A training loop of one's own that can be resumed."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=DECAY)
    if start is None:
        for part in model.children():
            if hasattr(part, "reset_parameters"):  # not a list of layers that is empty
                part.reset_parameters()  # type: ignore[operator]
    else:
        start.restore(model, optimiser)
    model.train()
    for _ in range(start.epoch if start else 0, until):
        optimiser.zero_grad()
        outputs = model(data.x, data.edge_index)[data.train_mask]
        torch.autograd.backward(F.cross_entropy(outputs, data.y[data.train_mask]))
        optimiser.step()
    return Checkpoint.take(until, model, optimiser)


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own."""
    return F.smooth_l1_loss(outputs, targets, reduction="none").sum(dim=-1)

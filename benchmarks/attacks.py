"""Attacks on a graph before training, with the truth about each: what ``repair.py`` has to find.

=============== ======================================================================================================
``uniform``     labels of training nodes are wrong, each another class
``nearest``     the same, each the class whose middle is nearest to what the node's neighbourhood looks like
``backdoor``    training nodes of other classes carry a pattern of features, and the label of a target class
``swapped``     nodes have the features of another node, of another class
``random``      edges between random nodes are added
``dice``        half of the edges that go lie inside a class, as many as go come between classes (delete inside, connect
                outside)
``prbcd``       PyG's ``PRBCDAttack`` on a GCN of the attacker's own; ``grbcd`` is the greedy one
=============== ======================================================================================================

An attacker knows all labels. Shares are of the training nodes, of all nodes (``swapped``), or of the edges.
"""

from copy import copy
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.contrib.nn import GRBCDAttack, PRBCDAttack
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import unweave as uw
from unweave.experiments.poison import Poisoned, poison
from unweave.graph.index import distinct_edges, edge_keys
from unweave.models import GCN

LABELS = ("uniform", "nearest", "backdoor")
EDGES = ("random", "dice", "prbcd", "grbcd")
FEATURES = ("swapped",)
DRAWN = {"nearest": 1, "random": 2, "dice": 3, "swapped": 4}
"""What is drawn of each depends on the seed and this alone."""


@dataclass(frozen=True)
class Attacked:
    """A graph as an attacker left it.

    Attributes:
        data: To train on.
        nodes: Those with a wrong label.
        edges: Those that were added, ``[edges, 2]``.
        poison: Of a backdoor, what measures its success.
        rows: Nodes with the features of another.
    """

    data: Data
    nodes: Tensor
    edges: Tensor
    poison: Poisoned | None = None
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))

    @property
    def truth(self) -> uw.Request:
        """What a repair that knows everything would forget."""
        return uw.Request(
            labels=self.nodes.tolist(),
            edges=[tuple(pair) for pair in self.edges.tolist()],
            features=dict.fromkeys(self.rows.tolist(), "all"),
        )


def attack(spec: str, data: Data, *, seed: int = 0, device: str = "cpu") -> Attacked:
    """Attack a graph.

    Args:
        spec: Such as ``nearest:0.1``.
        data: The graph, undirected and without edge attributes; it is left as it is.
        seed: Decides all of it.
        device: Where attacks by gradients train and climb.
    """
    kind, _, text = spec.partition(":")
    share = float(text)
    if kind in ("uniform", "backdoor"):
        found = poison(f"{'flipped' if kind == 'uniform' else 'triggered'}:{share}", data, seed=seed)
        return Attacked(found.data, found.nodes, _none(), found if kind == "backdoor" else None)
    rng = np.random.default_rng([seed, DRAWN.get(kind, 0)])
    if kind == "nearest":
        return _nearest(data, share, rng)
    if kind == "swapped":
        return _swapped(data, share, rng)
    budget = round(share * distinct_edges(data).size(0))
    if kind == "random":
        return _edited(data, _pairs(data, budget, rng, across=False), _none())
    if kind == "dice":
        ends = distinct_edges(data)
        inside = ends[data.y[ends[:, 0]] == data.y[ends[:, 1]]]
        gone = inside[torch.from_numpy(rng.permutation(inside.size(0))[: budget - budget // 2])]
        return _edited(data, _pairs(data, budget // 2, rng, across=True), gone)
    return _gradient(data, budget, seed, PRBCDAttack if kind == "prbcd" else GRBCDAttack, device)


def keys_of(pairs: Tensor, size: int) -> Tensor:
    """Undirected edges as numbers."""
    return edge_keys(pairs[:, 0], pairs[:, 1], size, ordered=True)


def _nearest(data: Data, share: float, rng: np.random.Generator) -> Attacked:
    """Labels of training nodes become the class that is nearest to them but their own."""
    looks = F.normalize(data.x.double(), dim=1)
    for _ in range(2):
        looks = _mean(data, looks)
    classes = int(data.y.max()) + 1
    middles = torch.stack([looks[(data.y == c) & data.train_mask].mean(dim=0) for c in range(classes)])
    far = torch.cdist(looks, middles)
    far[torch.arange(data.num_nodes), data.y] = float("inf")
    nodes = data.train_mask.nonzero().flatten()
    nodes = nodes[torch.from_numpy(rng.random(nodes.numel()) < share)]
    wrong = data.clone()
    wrong.y[nodes] = far[nodes].argmin(dim=1)
    return Attacked(wrong, nodes, _none())


def _swapped(data: Data, share: float, rng: np.random.Generator) -> Attacked:
    """Some nodes have the features of a node of another class."""
    nodes = torch.from_numpy(rng.permutation(data.num_nodes)[: round(share * data.num_nodes)])
    other = torch.tensor([int(rng.choice(np.flatnonzero((data.y != data.y[n]).numpy()))) for n in nodes.tolist()])
    wrong = data.clone()
    wrong.x[nodes] = data.x[other]
    return Attacked(wrong, nodes[:0], _none(), rows=nodes)


def _mean(data: Data, rows: Tensor) -> Tensor:
    """Rows averaged over a node and its neighbours."""
    source, target = data.edge_index
    total = rows.clone().index_add_(0, target, rows[source])
    count = torch.ones(data.num_nodes, dtype=rows.dtype).index_add_(0, target, torch.ones(source.numel()).to(rows))
    return total / count[:, None]


def _none() -> Tensor:
    return torch.empty(0, 2, dtype=torch.long)


def _pairs(data: Data, wanted: int, rng: np.random.Generator, *, across: bool) -> Tensor:
    """Pairs of nodes without an edge, where asked for of different classes."""
    taken = set(keys_of(distinct_edges(data), data.num_nodes).tolist())
    found: list[tuple[int, int]] = []
    while len(found) < wanted:
        u, v = sorted(int(node) for node in rng.integers(0, data.num_nodes, 2))
        key = int(edge_keys(torch.tensor([u]), torch.tensor([v]), data.num_nodes))
        if u != v and key not in taken and not (across and data.y[u] == data.y[v]):
            taken.add(key)
            found.append((u, v))
    return torch.tensor(found, dtype=torch.long).reshape(-1, 2)


def _edited(data: Data, added: Tensor, gone: Tensor) -> Attacked:
    """The graph with edges more and edges less, in both directions."""
    ends = distinct_edges(data)
    keys, away = (keys_of(pairs, data.num_nodes) for pairs in (ends, gone))
    kept = torch.cat([ends[~torch.isin(keys, away)], added])
    left = data.clone()
    left.edge_index = to_undirected(kept.t(), num_nodes=data.num_nodes)
    return Attacked(left, torch.empty(0, dtype=torch.long), added)


def _gradient(data: Data, budget: int, seed: int, kind: type[PRBCDAttack], device: str) -> Attacked:
    """An attack by gradients on the predictions of all nodes that are not trained on."""
    there = copy(data).to(device)
    model = GCN(data.num_features, int(data.y.max()) + 1).to(device)
    uw.train(model, there, seed=seed, weight_decay=5e-4)  # to the end: one that knows nothing aims at nothing
    model.eval()
    victims = (~there.train_mask).nonzero().flatten()
    block = min(100_000, data.num_nodes * (data.num_nodes - 1) // 4)
    epochs = {} if kind is GRBCDAttack else {"epochs": 60, "epochs_resampling": 40}
    torch.manual_seed(seed)
    np.random.seed(seed)  # PyG draws from it
    by = kind(model, block_size=block, **epochs, log=False)
    edge_index, _ = by.attack(there.x, there.edge_index, there.y, budget=budget, idx_attack=victims)
    new = data.clone()
    new.edge_index = to_undirected(edge_index.cpu(), num_nodes=data.num_nodes)
    ends = distinct_edges(new)
    fresh = ~torch.isin(keys_of(ends, data.num_nodes), keys_of(distinct_edges(data), data.num_nodes))
    return Attacked(new, torch.empty(0, dtype=torch.long), ends[fresh])

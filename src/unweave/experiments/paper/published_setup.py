"""The training set-up of the paper's published code, written anew from its description, to test what it does to F1.

Layers that normalise without self-loops, propagate before their linear map and have no bias; mini-batches of 512 nodes
with at most five sampled neighbours at each of two hops, over edges between training nodes only; and weights that
are read at the positions of other edges (``wrong_weights``), because sampled edges are counted in the graph of training
edges and their weights in the whole graph.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GINConv, Linear

__all__ = ["OPTIMISER", "Hop", "PublishedNet", "hops", "train_published"]

OPTIMISER = {"gcn": (0.05, 1e-4), "gat": (0.01, 1e-3), "sgc": (0.05, 1e-4), "gin": (0.01, 1e-4)}
"""Learning rate and weight decay of each backbone."""

BATCH, SAMPLED = 512, 5


@dataclass(frozen=True)
class Hop:
    """One step of propagation: edges between local numbers, their weights, and how many nodes receive."""

    edge_index: Tensor
    weight: Tensor
    targets: int


class PublishedNet(nn.Module):
    """A backbone with the published layers, called with the features and one hop for each of its two layers."""

    def __init__(self, name: str, features: int, classes: int) -> None:
        super().__init__()
        self.name = name
        self.convs = nn.ModuleList(_layers(name, features, classes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(2)) if name == "gin" else None
        self.head = nn.ModuleList((nn.Linear(32, 32), nn.Linear(32, classes))) if name == "gin" else None

    def forward(self, x: Tensor, steps: tuple[Hop, Hop]) -> Tensor:
        """Logits of the nodes that receive in the last step."""
        rate = 0.6 if self.name == "gat" else 0.5
        if self.name == "gat":
            x = F.dropout(x, rate, self.training)
        for number, (conv, hop) in enumerate(zip(self.convs, steps, strict=True)):
            if self.name in ("gcn", "sgc"):
                source, target = hop.edge_index
                mixed = x.new_zeros(hop.targets, x.size(1)).index_add(0, target, hop.weight[:, None] * x[source])
                x = conv(mixed)
            else:
                x = conv((x, x[: hop.targets]), hop.edge_index)
            if number == 0:
                x = x if self.name == "sgc" else F.relu(x)
                x = F.dropout(x, rate, self.training)
            if self.norms is not None:
                x = self.norms[number](x)
        if self.head is not None:
            x = F.dropout(F.relu(self.head[0](x)), rate, self.training)
            x = self.head[1](x)
        return x


def _layers(name: str, features: int, classes: int) -> list[nn.Module]:
    if name == "gat":
        return [
            GATConv(features, 8, heads=8, dropout=0.6),
            GATConv(64, classes, heads=1, concat=False, dropout=0.6),
        ]
    if name == "gin":
        return [GINConv(nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32))) for width in (features, 32)]
    return [
        Linear(width, out, bias=False, weight_initializer="glorot") for width, out in ((features, 16), (16, classes))
    ]


def hops(data: Data) -> tuple[Hop, Hop]:
    """The whole graph, twice."""
    hop = Hop(data.edge_index, _weights(data.edge_index, data.num_nodes), data.num_nodes)
    return hop, hop


def train_published(name: str, data: Data, *, epochs: int, sampled: bool, wrong_weights: bool) -> PublishedNet:
    """Train a published backbone on the training nodes of a graph.

    Args:
        name: Backbone.
        data: The graph.
        epochs: Passes over the training nodes.
        sampled: Mini-batches with sampled neighbours, instead of the whole graph at once.
        wrong_weights: Read the weights of sampled edges at their positions among the training edges.
    """
    model = PublishedNet(name, data.num_features, int(data.num_classes)).to(data.x.device)
    lr, decay = OPTIMISER[name]
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay)
    nodes = data.train_mask.nonzero().flatten()
    whole, sampler = hops(data), _Sampler(data, wrong_weights) if sampled else None
    model.train()
    for _ in range(epochs):
        order = nodes[torch.randperm(nodes.numel(), device=nodes.device)]
        for batch in order.split(BATCH) if sampler else [nodes]:
            if sampler:
                members, steps = sampler.draw(batch)
                outputs = model(data.x[members], steps)
            else:
                outputs = model(data.x, whole)[batch]
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(outputs, data.y[batch]))
            optimiser.step()
    return model.eval()


class _Sampler:
    """At most five random neighbours of each node, over edges between training nodes."""

    def __init__(self, data: Data, wrong_weights: bool) -> None:
        source, target = data.edge_index
        inside = (data.train_mask[source] & data.train_mask[target]).nonzero().flatten()
        order = target[inside].argsort(stable=True)
        weights = _weights(data.edge_index, data.num_nodes)
        self._weights = (weights if wrong_weights else weights[inside])[order]
        self._sources = source[inside][order]
        counts = torch.bincount(target[inside], minlength=data.num_nodes)
        self._first, self._counts = counts.cumsum(0) - counts, counts
        self._local = torch.full((data.num_nodes,), -1, device=source.device)

    def draw(self, batch: Tensor) -> tuple[Tensor, tuple[Hop, Hop]]:
        """The nodes that take part, those of the batch first, and both hops, the outer one first."""
        members, steps = batch, []
        for _ in range(2):
            targets = members
            edges, receivers = self._pick(targets)
            sources = self._sources[edges]
            self._local[targets] = torch.arange(targets.numel(), device=targets.device)
            new = sources[self._local[sources] < 0].unique()
            members = torch.cat([targets, new])
            self._local[new] = torch.arange(targets.numel(), members.numel(), device=targets.device)
            steps.append(Hop(torch.stack([self._local[sources], receivers]), self._weights[edges], targets.numel()))
            self._local[members] = -1
        return members, (steps[1], steps[0])

    def _pick(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of the edges drawn, and the local numbers of their receivers."""
        counts = self._counts[targets]
        receivers = torch.arange(targets.numel(), device=targets.device).repeat_interleave(counts)
        first = (counts.cumsum(0) - counts)[receivers]
        place = torch.arange(receivers.numel(), device=targets.device) - first
        edges = self._first[targets][receivers] + place
        order = torch.rand(edges.numel(), device=edges.device).argsort()
        order = order[receivers[order].argsort(stable=True)]  # by receiver, in random order within each
        kept = order[place < SAMPLED]
        return edges[kept], receivers[kept]


def _weights(edge_index: Tensor, size: int) -> Tensor:
    """1/√(d_i d_j), without self-loops."""
    degrees = torch.bincount(edge_index[1], minlength=size).clamp(min=1).to(torch.get_default_dtype())
    return (degrees[edge_index[0]] * degrees[edge_index[1]]).rsqrt()

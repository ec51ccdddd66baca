"""The case table: layer × loss × request × directed, on graphs small enough for a dense reference.

Every network has at most 60 parameters, so its Hessian can be built by ``torch.func.hessian`` in float64.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations, product

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, SGConv, TAGConv

from unweave import Request
from unweave._core.cost import Meter
from unweave.graph.removal import Removal, remove
from unweave.objective import losses
from unweave.objective.decay import decay_vector
from unweave.objective.losses import Loss
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten

NODES, FEATURES, HIDDEN, OUTPUTS = 14, 3, 3, 2
DECAY = 0.01


class Net(nn.Module):
    """One or two message-passing layers with a smooth activation between them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(torch.tanh(x) if i else x, edge_index)
        return x


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: Net(GCNConv(FEATURES, HIDDEN), GCNConv(HIDDEN, OUTPUTS)),
    "gat": lambda: Net(GATConv(FEATURES, HIDDEN), GATConv(HIDDEN, OUTPUTS)),
    "gatv2": lambda: Net(GATv2Conv(FEATURES, HIDDEN), GATv2Conv(HIDDEN, OUTPUTS)),
    "sage": lambda: Net(SAGEConv(FEATURES, HIDDEN), SAGEConv(HIDDEN, OUTPUTS)),
    "gin": lambda: Net(GINConv(_mlp(FEATURES, HIDDEN)), GINConv(_mlp(HIDDEN, OUTPUTS))),
    "sgc": lambda: Net(SGConv(FEATURES, OUTPUTS, K=2)),
    "tag": lambda: Net(TAGConv(FEATURES, HIDDEN, K=1), TAGConv(HIDDEN, OUTPUTS, K=2)),
}
LOSSES: dict[str, Loss] = {
    "cross-entropy": losses.cross_entropy,
    "bce": losses.binary_cross_entropy,
    "squared": losses.squared_error,
    "weighted": losses.CrossEntropy(class_weights=(0.5, 3.0), label_smoothing=0.2),
}
REQUESTS = ("nodes", "edges", "features", "labels", "mixed")


@dataclass(frozen=True)
class Case:
    """One row of the table, with everything built."""

    layer: str
    loss: str
    request: str
    directed: bool

    @property
    def name(self) -> str:
        return f"{self.layer}-{self.loss}-{self.request}-{'directed' if self.directed else 'undirected'}"

    def graph(self) -> Data:
        generator = torch.Generator().manual_seed(5)
        x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
        pairs = torch.randint(NODES - 1, (2, 20), generator=generator)  # the last node stays isolated
        pairs = torch.unique(pairs[:, pairs[0] != pairs[1]], dim=1)
        if not self.directed:
            pairs = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
        labels = torch.randint(OUTPUTS, (NODES, OUTPUTS), generator=generator)
        y = {"bce": labels.double(), "squared": labels + 0.5 * x[:, :OUTPUTS]}
        train = torch.ones(NODES, dtype=torch.bool)
        train[torch.tensor([2, 7, 11])] = False
        return Data(x=x, edge_index=pairs, y=y.get(self.loss, labels[:, 0]), train_mask=train, test_mask=~train)

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return LAYERS[self.layer]().double().eval()

    def forget(self, data: Data) -> Request:
        u, v = data.edge_index[:, 4].tolist()
        a, b = data.edge_index[:, -3].tolist()
        return {
            "nodes": Request(nodes=(3,)),
            "edges": Request(edges=((u, v), (a, b))),
            "features": Request(features={0: "all", 5: (1,)}),
            "labels": Request(labels=(4,)),
            "mixed": Request(nodes=(3,), edges=((u, v),), features={5: (0, 2)}, labels=(4, 6)),
        }[self.request]

    def build(self) -> "Built":
        data, model = self.graph(), self.model()
        removal = remove(data, self.forget(data))
        meter, decay = Meter(torch.device("cpu")), decay_vector(model, DECAY)
        before = Objective(model, data, LOSSES[self.loss], decay, call, meter)
        after = Objective(model, removal.data, LOSSES[self.loss], decay, call, meter)
        return Built(self, data, removal, model, flatten(model), before, after)


@dataclass(frozen=True)
class Built:
    """A case with its graph, its remaining graph and both objectives."""

    case: Case
    data: Data
    removal: Removal
    model: nn.Module
    theta: Tensor
    before: Objective
    after: Objective


CASES = [Case(*row) for row in product(LAYERS, ("cross-entropy", "bce", "squared"), REQUESTS, (False, True))]
CASES += [Case(layer, "weighted", "mixed", False) for layer in ("gcn", "gat", "sgc")]


def pairwise(rows: Iterable[Mapping[str, object]]) -> list[bool]:
    """Which few of the rows are enough for every two settings to meet: the one that adds most, again and again."""
    pairs = [set(combinations(row.items(), 2)) for row in rows]
    left, chosen = set().union(*pairs), set()
    while left:
        best = max(range(len(pairs)), key=lambda number: len(pairs[number] & left))
        chosen.add(best)
        left -= pairs[best]
    return [number in chosen for number in range(len(pairs))]


def table(cases: list[Case]) -> list[ParameterSet]:
    """Cases for ``parametrize``; those not needed for every pair of settings to meet are left to ``make test-slow``."""
    return [
        pytest.param(case, id=case.name, marks=[] if needed else [pytest.mark.slow])
        for case, needed in zip(cases, pairwise(map(asdict, cases)), strict=True)
    ]


TABLE = table(CASES)


def dense_outputs(objective: Objective) -> Callable[[Tensor], Tensor]:
    """Training outputs as a plain function of θ, written without anything from the objective's own code path."""
    named = [(name, p.shape, p.numel()) for name, p in objective.model.named_parameters()]

    def outputs(theta: Tensor) -> Tensor:
        pieces, at = {}, 0
        for name, shape, count in named:
            pieces[name] = theta[at : at + count].reshape(shape)
            at += count
        data = objective.data
        return functional_call(objective.model, pieces, (data.x, data.edge_index))[data.train_mask]

    return outputs


def dense_loss(objective: Objective) -> Callable[[Tensor], Tensor]:
    """L(θ) as a plain function."""
    outputs = dense_outputs(objective)
    y = objective.data.y[objective.data.train_mask]
    weighted = objective.loss is LOSSES["weighted"]
    mass = float(torch.tensor([0.5, 3.0], dtype=torch.float64)[y].sum()) if weighted else y.size(0)

    def loss(theta: Tensor) -> Tensor:
        return objective.loss(outputs(theta), y).sum() + DECAY * mass * theta.square().sum() / 2

    return loss

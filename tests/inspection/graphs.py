"""Small graphs and models, at their minimum in float64, that the tests of inspection share."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected

import unweave as uw
from unweave._core.cost import Meter
from unweave.curvature.solvers import minimise
from unweave.inspection import Inspection
from unweave.objective.decay import decay_vector
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import duplicate, flatten, load_flat

DECAY = 0.02


def graph(nodes: int = 40, features: int = 6, classes: int = 3, *, directed: bool = False, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (nodes,), generator=generator)
    x = torch.rand(nodes, features, generator=generator, dtype=torch.float64)
    x[torch.arange(nodes), labels] += 1
    x[torch.rand(nodes, features, generator=generator) < 0.3] = 0
    pairs = torch.randint(nodes, (2, 2 * nodes), generator=generator)
    pairs = torch.unique(pairs[:, pairs[0] != pairs[1]], dim=1)
    edges = pairs if directed else to_undirected(pairs)
    part = torch.rand(nodes, generator=generator)
    return Data(
        x=x,
        edge_index=edges,
        y=labels,
        train_mask=part < 0.6,
        val_mask=(part >= 0.6) & (part < 0.85),
        test_mask=part >= 0.85,
        num_classes=classes,
    )


def objective(model: nn.Module, data: Data, loss: Loss = cross_entropy) -> Objective:
    return Objective(model, data, loss, decay_vector(model, DECAY), call, Meter(torch.device("cpu")))


def minimum(model: nn.Module, data: Data, loss: Loss = cross_entropy) -> nn.Module:
    """A copy of a model at the minimum of its objective on a graph."""
    own = duplicate(model).double().eval()
    there = objective(own, data, loss)
    theta = flatten(own)
    for _ in range(6):  # begun anew, what rounding did to the memory of the search is forgotten
        value, gradient = there.evaluate(theta)
        if float(gradient.norm()) < 1e-9:
            break
        theta, _ = minimise(there.evaluate, theta, value, gradient, None, evaluations=150, tolerance=1e-9)
    load_flat(own, theta)
    return own


_KNOWN: dict[tuple[object, ...], nn.Module] = {}


def trained(name: str, data: Data, **how: Any) -> nn.Module:
    """A built-in model at its minimum, trained once for all tests that want it."""
    key = (name, tuple(how.items()), data.num_nodes, data.num_features, data.edge_index.size(1), float(data.x.sum()))
    if key not in _KNOWN:
        torch.manual_seed(0)
        _KNOWN[key] = minimum(uw.models.build(name, data.num_features, data.num_classes, **how), data)
    return _KNOWN[key]


def look(model: nn.Module, data: Data, of: Any = "validation", **how: Any) -> Inspection:
    return uw.inspect(model, data, of, weight_decay=DECAY, **how)


def validation(model: nn.Module, data: Data, whole: Data, without: Tensor | None = None) -> float:
    """The quantity as it is defined: a deleted node has no part in it."""
    counted = whole.val_mask.clone()
    if without is not None:
        counted[without] = False
    with torch.no_grad():
        losses = cross_entropy(model(data.x, data.edge_index)[counted], whole.y[counted])
    return float(losses.sum() / whole.val_mask.sum())


class Plain(nn.Module):
    """PyG's own layers, and one output a node."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 4), GCNConv(4, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x, edge_index)), edge_index)  # type: ignore[no-any-return]

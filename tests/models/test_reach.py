"""Message-passing steps found from a model's layers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from tests.cases import Net
from unweave.models import GAT, GCN, GIN, SGC
from unweave.models.reach import find_reach
from unweave.testing import small_graph

DATA = small_graph()


def reach_of(model: nn.Module):  # type: ignore[no-untyped-def]
    with torch.no_grad():
        return find_reach(model, lambda: model(DATA.x, DATA.edge_index))


@pytest.mark.parametrize(
    ("make", "steps", "normalised"),
    [
        (lambda: GCN(8, 3), 2, True),
        (lambda: SGC(8, 3), 2, True),
        (lambda: SGC(8, 3, steps=5), 5, True),
        (lambda: GAT(8, 3), 2, False),
        (lambda: GIN(8, 3), 2, False),
        (lambda: GCN(8, 3, layers=4), 4, True),
        (lambda: Net(GAT(8, 3, layers=3, beside=True)), 3, False),
        (lambda: GIN(8, 3, layers=4, beside=True), 4, False),
        (lambda: Net(pyg.SAGEConv(8, 4), pyg.SAGEConv(4, 3), pyg.SAGEConv(3, 3)), 3, False),
        (lambda: Net(pyg.TAGConv(8, 4, K=3), pyg.GATv2Conv(4, 3)), 4, True),
        (lambda: Net(pyg.TAGConv(8, 4, K=3, normalize=False)), 3, False),
        (lambda: Net(pyg.SGConv(8, 3, K=4)), 4, True),
        (lambda: Net(pyg.ChebConv(8, 3, K=3)), 2, True),
        (lambda: Net(pyg.MixHopConv(8, 3, powers=[0, 1, 3])), 3, True),
        (lambda: Net(pyg.GraphConv(8, 3)), 1, False),
        (nn.ModuleList, 0, False),
    ],
)
def test_known_layers(make: Callable[[], nn.Module], steps: int, normalised: bool) -> None:
    model = make()
    found = find_reach(model, lambda: None) if isinstance(model, nn.ModuleList) else reach_of(model)
    assert (found.steps, found.normalised) == (steps, normalised)


def test_a_layer_used_twice_counts_twice() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(8, 8)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.conv(x, edge_index), edge_index)  # type: ignore[no-any-return]

    assert reach_of(Shared()).steps == 2


class Renamed(pyg.GCNConv):  # type: ignore[misc]
    """A layer of one's own that passes messages as its parent does."""

    def __init__(self) -> None:
        super().__init__(8, 3)
        self.scale = 2.0


class Further(Renamed):
    """Another one, of that."""


class Attentive(pyg.GATConv):  # type: ignore[misc]
    """One of a layer that also has attention."""


class Louder(Renamed):
    """A layer with messages of its own."""

    def message(self, x_j: Tensor) -> Tensor:
        return 2 * x_j


class Mixed(Further):
    """A layer that calls its parent on something else."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0), edge_index)  # type: ignore[no-any-return]


class Propagating(pyg.SAGEConv):  # type: ignore[misc]
    """A layer that passes messages twice."""

    def propagate(self, edge_index: Tensor, **given: object) -> Tensor:
        return super().propagate(edge_index, **given)  # type: ignore[no-any-return]


def test_a_subclass_that_passes_messages_as_its_parent_does_counts_as_that() -> None:
    """Any subclass of a known layer was unknown, so that the whole graph was its reach."""
    for layer, steps in ((Renamed(), 1), (Further(), 1), (Attentive(8, 3), 1)):
        found = reach_of(Net(layer))
        assert (found.steps, found.normalised) == (steps, not isinstance(layer, Attentive))
        assert type(layer).__name__ in found.source
    for layer in (Louder(), Mixed(), Propagating(8, 3)):
        assert reach_of(Net(layer)).steps is None


def test_unknown_layers_and_mixed_flows_mean_the_whole_graph() -> None:
    class Mine(pyg.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

    unknown = reach_of(Net(Mine()))
    assert unknown.steps is None
    assert "Mine" in unknown.source
    mixed = reach_of(Net(pyg.GCNConv(8, 4), pyg.GCNConv(4, 3, flow="target_to_source")))
    assert mixed.steps is None
    assert reach_of(Net(pyg.GCNConv(8, 3, flow="target_to_source"))).flow == "target_to_source"

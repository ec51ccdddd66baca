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

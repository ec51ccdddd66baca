"""A model of shards: its three ways to answer, and that it is called like any other."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave.models import GAT, GCN, GIN, SGC, Shards
from unweave.models.reach import find_reach
from unweave.objective.objective import call
from unweave.testing import small_graph

DATA = small_graph()
NOBODY = torch.full((60,), -1)


def shards(aggregation: Any = "mean", make: type[nn.Module] = GCN, count: int = 4) -> Shards:
    torch.manual_seed(0)
    models = [make(8, 3) for _ in range(count)]
    return Shards(models, NOBODY, aggregation).eval()


def each(model: Shards) -> Tensor:
    return torch.stack([m(DATA.x, DATA.edge_index).softmax(dim=-1) for m in model.models])


@torch.no_grad()
def test_the_mean_of_probabilities() -> None:
    model = shards()
    torch.testing.assert_close(call(model, DATA).softmax(dim=-1), each(model).mean(dim=0))
    torch.testing.assert_close(call(model, DATA).exp(), each(model).mean(dim=0))


@torch.no_grad()
def test_the_weighted_mean_and_a_shard_without_weight() -> None:
    model = shards("learned")
    model.weights.copy_(torch.tensor([0.5, 0.2, 0.0, 0.3]))
    p = each(model)
    torch.testing.assert_close(call(model, DATA).exp(), 0.5 * p[0] + 0.2 * p[1] + 0.3 * p[3])


@torch.no_grad()
def test_votes_with_one_more_for_each_class() -> None:
    model = shards("majority", count=5)
    model.weights.copy_(torch.tensor([0.25, 0.25, 0.0, 0.25, 0.25]))
    winners = each(model).argmax(dim=-1)
    for node in range(60):
        votes = [1 + sum(int(winners[s, node]) == c for s in (0, 1, 3, 4)) for c in range(3)]
        torch.testing.assert_close(call(model, DATA)[node].exp(), torch.tensor(votes) / 7)


def test_another_aggregation_is_refused() -> None:
    with pytest.raises(uw.ModelError, match=r"mean, majority, learned, got 'median'"):
        shards("median")


@pytest.mark.parametrize("make", [GCN, GAT, GIN, SGC])
def test_it_passes_messages_as_far_as_one_of_its_parts(make: type[nn.Module]) -> None:
    model = shards(make=make)
    with torch.no_grad():
        whole, part = (find_reach(m, lambda m=m: call(m, DATA)) for m in (model, model.models[0]))
    assert whole == part


@torch.no_grad()
def test_edge_weights_reach_the_parts_or_are_refused() -> None:
    weighted = copy.copy(DATA)
    weighted.edge_weight = torch.rand(DATA.num_edges, generator=torch.Generator().manual_seed(0))
    model = shards()
    p = torch.stack([call(m, weighted).softmax(dim=-1) for m in model.models])
    torch.testing.assert_close(call(model, weighted).exp(), p.mean(dim=0))
    with pytest.raises(uw.ModelError, match="edge_weight"):
        call(shards(make=GIN), weighted)


class TakesData(nn.Module):
    """A module called with a graph that gives a dictionary of a tuple."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, data: Data) -> dict[str, Any]:
        return {"logits": (self.net(data.x, data.edge_index),), "note": "hello"}


@torch.no_grad()
def test_outputs_may_come_in_a_structure() -> None:
    inner = shards()
    model = Shards([TakesData(m) for m in inner.models], NOBODY)
    outputs = model(DATA)
    torch.testing.assert_close(outputs["logits"][0], call(inner, DATA))
    assert outputs["note"] == "hello"

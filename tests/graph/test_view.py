"""A view after many requests is the graph that taking them out one by one gives."""

import copy
import random
import re

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave.graph.index import graph_index
from unweave.graph.removal import is_undirected, remove
from unweave.graph.view import GraphView
from unweave.testing import small_graph


def multigraph(*, directed: bool, weighted: bool) -> Data:
    """Loops, parallel edges, weights, and attributes of nodes and edges that nobody asked for."""
    generator = torch.Generator().manual_seed(3)
    data = small_graph(nodes=40)
    pairs = data.edge_index[:, torch.randperm(data.num_edges, generator=generator)]
    low = pairs[:, pairs[0] < pairs[1]]
    if directed:
        pairs = torch.cat([low[:, ::2], low[:, 1::2].flip(0), low[:, :9], low[:, :2].flip(0)], dim=1)
    else:
        pairs = torch.cat([pairs, pairs[:, :7], pairs[:, :7].flip(0)], dim=1)
    data.edge_index = torch.cat([pairs, torch.tensor([[3, 5, 5], [3, 5, 5]])], dim=1)
    if weighted:
        low_high = data.edge_index.sort(dim=0).values
        data.edge_weight = 1 + (low_high[0] * 7 + low_high[1] * 3) % 5 / 5
        data.edge_attr = torch.rand(data.num_edges, 2, generator=generator)
    data.age = torch.arange(40)
    data.names = [f"node {i}" for i in range(40)]
    return data


def same(a: Data, b: Data) -> None:
    ours, theirs = a.to_dict(), b.to_dict()
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        if isinstance(value, Tensor):
            assert value.dtype == theirs[key].dtype
            assert torch.equal(value, theirs[key]), key
        else:
            assert value == theirs[key], key


def random_request(data: Data, rng: random.Random, kind: str) -> uw.Request:
    node = rng.randrange(data.num_nodes)
    if kind == "edges" and data.num_edges:
        u, v = data.edge_index[:, rng.randrange(data.num_edges)].tolist()
        return uw.Request(edges=[(u, v)])
    return {
        "nodes": uw.Request(nodes=[node]),
        "features": uw.Request(features={node: rng.choice(["all", [0, 3]])}),
        "labels": uw.Request(labels=[node]),
    }.get(kind, uw.Request(nodes=[node], labels=[(node + 1) % 40], features={(node + 2) % 40: [1]}))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_fifty_deletions(directed: bool, weighted: bool) -> None:
    data = multigraph(directed=directed, weighted=weighted)
    view, rng, refused = GraphView.of(data), random.Random(1), 0
    for step in range(50):
        kind = "edges" if step % 3 else rng.choice(["nodes", "features", "labels", "mixed"])
        request = random_request(data, rng, kind)
        try:
            removal = remove(data, request)
        except uw.EmptyRequestError as error:
            refused += 1
            with pytest.raises(uw.EmptyRequestError, match=re.escape(str(error))):
                view.take(request)
            continue
        view, taken = view.take(request)
        assert taken.request == removal.request
        assert taken.counts == removal.counts
        assert taken.undirected == removal.undirected
        data = removal.data
        assert view.undirected == is_undirected(data)
        assert view.stored_edges == data.num_edges
        same(view.data, data)
    assert refused < 15


def test_a_directed_graph_may_become_undirected() -> None:
    data = small_graph()
    u, v = data.edge_index[:, 0].tolist()
    data.edge_index = data.edge_index[:, 1:]
    view = GraphView.of(data)
    assert not view.undirected
    view, _ = view.take(uw.Request(edges=[(v, u)]))
    assert view.undirected
    assert is_undirected(view.data)


@pytest.mark.parametrize(
    "request_",
    [
        uw.Request(nodes=[99]),
        uw.Request(edges=[(0, 0)]),
        uw.Request(features={1: [8]}),
    ],
)
def test_what_is_not_there_is_refused_in_the_same_words(request_: uw.Request) -> None:
    data = small_graph()
    with pytest.raises(uw.RequestError) as one:
        remove(data, request_)
    with pytest.raises(uw.RequestError) as other:
        GraphView.of(data).take(request_)
    assert str(one.value) == str(other.value)


def test_a_deleted_edge_is_not_there_any_more() -> None:
    data = multigraph(directed=True, weighted=False)
    u, v = next((u, v) for u, v in data.edge_index.t().tolist() if [v, u] not in data.edge_index.t().tolist())
    view = GraphView.of(data)
    with pytest.raises(uw.RequestError, match="has the reverse"):
        view.take(uw.Request(edges=[(v, u)]))
    view, _ = view.take(uw.Request(edges=[(u, v)]))
    with pytest.raises(uw.RequestError, match="not in the graph"):
        view.take(uw.Request(edges=[(u, v)]))


def test_the_index_is_made_once_and_a_write_is_noticed() -> None:
    data = small_graph()
    view = GraphView.of(data)
    assert view.index is GraphView.of(data).index
    assert view.index is graph_index(data.edge_index, None, 60)
    assert view.holds(data)
    assert not view.holds(data.clone())
    data.x[0] = 7
    with pytest.raises(uw.DataError, match="written to"):
        view.take(uw.Request(nodes=[0]))


def test_writes_that_torch_does_not_count_are_taken_for_done() -> None:
    with torch.inference_mode():
        view = GraphView.of(multigraph(directed=False, weighted=False).clone())
    assert not view.untouched


def test_a_copy_of_a_view_is_counted_from_then_on() -> None:
    data = multigraph(directed=False, weighted=False)
    data.x[0] += 1
    twin = copy.deepcopy(GraphView.of(data))
    assert twin.untouched
    twin.base.x[0] += 1
    assert not twin.untouched

"""A request on a graph and on a view of it gives what taking things out by hand gives, request after request."""

import copy
import random
import re
from itertools import product

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave.graph.index import graph_index, is_undirected
from unweave.graph.region import influenced_region
from unweave.graph.removal import Removal, remove, take
from unweave.graph.view import GraphView
from unweave.models.reach import Reach
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
        ends = data.edge_index if directed else low_high
        data.edge_attr = torch.rand(40, 40, 2, generator=generator)[ends[0], ends[1]]
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


def by_hand(data: Data, request: uw.Request, undirected: bool) -> Data:
    """What is left of a graph, by plain loops over its nodes and edges."""
    left = data.clone()
    named = {*request.edges, *((v, u) for u, v in request.edges if undirected)}
    pairs = [tuple(edge) for edge in data.edge_index.t().tolist()]
    keep = [i for i, (u, v) in enumerate(pairs) if (u, v) not in named and not {u, v} & set(request.nodes)]
    for key in ("edge_index", "edge_weight", "edge_attr"):
        if key in data:
            left[key] = data[key][:, keep] if key == "edge_index" else data[key][keep]
    for node in request.nodes:
        left.x[node], left.age[node], left.names[node] = 0, 0, None
    for node, columns in request.features.items():
        left.x[node, slice(None) if columns == "all" else list(columns)] = 0
    for node in (*request.nodes, *request.labels):
        left.y[node] = -1
        for name in ("train_mask", "val_mask", "test_mask"):
            left[name][node] = False
    return left


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_forty_deletions(directed: bool, weighted: bool, indexed: bool) -> None:
    data = multigraph(directed=directed, weighted=weighted)
    view, rng, refused = GraphView.of(data), random.Random(1), 0
    if indexed:
        assert view.index.into.edge.numel() == data.num_edges
    for step in range(40):
        kind = "edges" if step % 3 else rng.choice(["nodes", "features", "labels", "mixed"])
        request = random_request(data, rng, kind)
        try:
            removal = remove(data, request)
        except uw.EmptyRequestError as error:
            refused += 1
            with pytest.raises(uw.EmptyRequestError, match=re.escape(str(error))):
                take(view, request)
            continue
        old, view, taken = view, *take(view, request)
        assert taken.request == removal.request
        assert taken.counts == removal.counts
        assert taken.undirected == removal.undirected == (not directed)
        assert torch.equal(taken.touched, removal.touched)
        wanted = by_hand(data, request, not directed)
        same(removal.data, wanted)
        same(view.data, wanted)
        assert view.undirected == is_undirected(wanted)
        assert view.stored_edges == wanted.num_edges
        for normalised, steps, flow in product((False, True), (0, 1, 2), ("source_to_target", "target_to_source")):
            reach = Reach(steps, normalised, flow)
            region, sizes = region_by_hand(data, removal, reach)
            for graph, what in ((data, removal), (old, taken)):
                found = influenced_region(graph, what, reach)
                assert (found.nodes.tolist(), found.sizes) == (region, sizes)
        data = removal.data
    assert refused < 15


def region_by_hand(data: Data, removal: Removal, reach: Reach) -> tuple[list[int], tuple[int, ...]]:
    """Whose prediction can change, by plain loops."""
    flip = reach.flow == "target_to_source"
    pairs = [(v, u) if flip else (u, v) for u, v in data.edge_index.t().tolist()]
    gone = [(v, u) if flip else (u, v) for u, v in removal.edges.t().tolist()]
    known = {*removal.features.tolist(), *removal.nodes.tolist()}
    known |= {end for edge in gone for end in edge} if reach.normalised else set()
    sizes = [len(known)]
    for step in range(reach.steps or 0):
        reached = {v for u, v in pairs if u in known} | ({v for _, v in gone} if step == 0 else set())
        sizes.append(len(reached - known))
        known |= reached
    return sorted(known), tuple(sizes)


def test_a_directed_graph_may_become_undirected() -> None:
    data = small_graph()
    u, v = data.edge_index[:, 0].tolist()
    data.edge_index = data.edge_index[:, 1:]
    view = GraphView.of(data)
    assert not view.undirected
    view, _ = take(view, uw.Request(edges=[(v, u)]))
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
        take(GraphView.of(data), request_)
    assert str(one.value) == str(other.value)


def test_a_deleted_edge_is_not_there_any_more() -> None:
    data = multigraph(directed=True, weighted=False)
    u, v = next((u, v) for u, v in data.edge_index.t().tolist() if [v, u] not in data.edge_index.t().tolist())
    view = GraphView.of(data)
    with pytest.raises(uw.RequestError, match="has the reverse"):
        take(view, uw.Request(edges=[(v, u)]))
    view, _ = take(view, uw.Request(edges=[(u, v)]))
    with pytest.raises(uw.RequestError, match="not in the graph"):
        take(view, uw.Request(edges=[(u, v)]))


def test_the_index_is_made_once_and_a_write_is_noticed() -> None:
    data = small_graph()
    view = GraphView.of(data)
    assert view.index is GraphView.of(data).index
    assert view.index is graph_index(data.edge_index, None, 60)
    assert view.holds(data)
    assert not view.holds(data.clone())
    data.x[0] = 7
    with pytest.raises(uw.DataError, match="written to"):
        take(view, uw.Request(nodes=[0]))


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

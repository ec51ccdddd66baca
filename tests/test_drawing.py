"""Random requests are what they say, and the same for the same seed."""

import pytest
import torch

import unweave as uw
from unweave.drawing import stage
from unweave.graph import remove
from unweave.testing import small_graph


def test_probabilities_are_kept() -> None:
    data = uw.load("demo")
    request = uw.draw("edges:0.05,nodes:0.1,features:0.2,labels:0.3", data, seed=1)
    edges, train = data.num_edges / 2, int(data.train_mask.sum())
    for count, expected in (
        (len(request.edges), 0.05 * edges),
        (len(request.nodes), 0.1 * train),
        (len(request.features), 0.2 * train),
        (len(request.labels), 0.3 * train),
    ):
        assert abs(count - expected) < 4 * expected**0.5
    for ids in (request.nodes, tuple(request.features), request.labels):
        assert data.train_mask[list(ids)].all()
    assert all(u <= v for u, v in request.edges)
    assert set(request.features.values()) == {"all"}


def test_seed_decides_and_kinds_are_independent() -> None:
    data = uw.load("demo")
    assert uw.draw("edges:0.05", data, seed=1) == uw.draw("edges:0.05", data, seed=1)
    assert uw.draw("edges:0.05", data, seed=1) != uw.draw("edges:0.05", data, seed=2)
    assert uw.draw("edges:0.05,nodes:0.1", data).edges == uw.draw("edges:0.05", data).edges


def test_storage_order_does_not_matter() -> None:
    data, shuffled = small_graph(), small_graph()
    shuffled.edge_index = shuffled.edge_index[:, torch.randperm(shuffled.num_edges)]
    assert uw.draw("edges:0.2", data) == uw.draw("edges:0.2", shuffled)


@pytest.mark.parametrize(
    "spec", ["edges", "edges:", "edges:0", "edges:1.5", "edge:0.1", "edges:x", "", "edges:0.1,edges:0.2"]
)
def test_bad_specifications_are_refused(spec: str) -> None:
    with pytest.raises(uw.RequestError):
        uw.draw(spec, small_graph())


def test_drawing_nothing_is_refused() -> None:
    with pytest.raises(uw.EmptyRequestError, match="drew nothing"):
        uw.draw("edges:0.000001", small_graph())


def test_flipped_labels_are_wrong_and_are_what_is_forgotten() -> None:
    data = uw.load("demo")
    poisoned, request = stage("flipped:0.2", data, seed=3)
    assert request == uw.draw("nodes:0.2", data, seed=3)
    changed = (poisoned.y != data.y).nonzero().flatten().tolist()
    assert changed == sorted(request.nodes)
    assert set(poisoned.y.tolist()) == set(data.y.tolist())
    assert torch.equal(stage("flipped:0.2", data, seed=3)[0].y, poisoned.y)
    assert data.train_mask[changed].all()


def test_a_request_that_poisons_nothing_leaves_the_graph_alone() -> None:
    data = small_graph()
    same, request = stage("edges:0.1", data, seed=1)
    assert same is data
    assert request == uw.draw("edges:0.1", data, seed=1)


def test_labels_that_cannot_be_flipped_are_refused() -> None:
    data = small_graph()
    data.y = data.y.float()[:, None]
    with pytest.raises(uw.RequestError, match="one class label a node"):
        stage("flipped:0.2", data)
    with pytest.raises(uw.RequestError, match="cannot read"):
        stage("flipped:2", small_graph())
    with pytest.raises(uw.RequestError, match="only in a comparison"):
        uw.draw("flipped:0.2", small_graph())


@pytest.mark.parametrize("directed", [False, True])
def test_crossed_edges_join_training_nodes_of_different_classes(directed: bool) -> None:
    data = small_graph()
    if directed:
        data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    before = data.edge_index.clone()
    poisoned, request = stage("crossed:0.5", data, seed=3)
    pairs = torch.tensor(request.edges)
    kept = before[:, before[0] < before[1]].size(1)
    assert len(set(map(tuple, pairs.tolist()))) == len(pairs) == round(0.5 * kept)
    assert (data.y[pairs[:, 0]] != data.y[pairs[:, 1]]).all()
    assert data.train_mask[pairs.flatten()].all()
    assert poisoned.edge_index.size(1) == before.size(1) + len(pairs) * (1 if directed else 2)
    assert torch.equal(remove(poisoned, request).data.edge_index, before)
    assert torch.equal(data.edge_index, before)
    assert stage("crossed:0.5", data, seed=3)[1] == request
    assert stage("crossed:0.5", data, seed=4)[1] != request
    hidden = small_graph()
    hidden.edge_index, hidden.y[~hidden.train_mask] = data.edge_index, -1
    assert stage("crossed:0.5", hidden, seed=3)[1] == request


def test_edges_that_cannot_be_crossed_are_refused() -> None:
    data = small_graph()
    weighted = small_graph()
    weighted.edge_weight = torch.ones(weighted.num_edges)
    for graph, spec, match in (
        (weighted, "crossed:0.5", "edge_weight"),
        (data, "crossed:0.0001", "adds no edge"),
        (data, "crossed:x", "cannot read"),
    ):
        with pytest.raises(uw.RequestError, match=match):
            stage(spec, graph)
    dense = small_graph(nodes=30)
    dense.edge_index = torch.cartesian_prod(torch.arange(30), torch.arange(30)).t()
    with pytest.raises(uw.RequestError, match="no room"):
        stage("crossed:0.5", dense)

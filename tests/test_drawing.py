"""Random requests are what they say, and the same for the same seed."""

import pytest
import torch

import unweave as uw
from unweave.drawing import stage
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

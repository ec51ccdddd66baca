"""Random requests are what they say, and the same for the same seed."""

import pytest
import torch

import unweave as uw
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


@pytest.mark.parametrize("kind", ["flipped", "crossed", "triggered"])
def test_a_poison_is_not_drawn(kind: str) -> None:
    with pytest.raises(uw.RequestError, match="only in a comparison"):
        uw.draw(f"{kind}:0.2", small_graph())

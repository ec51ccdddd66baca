"""The embedded graph is the same everywhere and looks like a citation network."""

import torch
from torch_geometric.utils import is_undirected

import unweave as uw
from unweave._core.digest import tensor_digest


def test_it_is_always_the_same_graph() -> None:
    data = uw.load("demo")
    digest = tensor_digest([("x", data.x), ("edge_index", data.edge_index), ("y", data.y)])
    assert digest == "e57194fcc63197d7e008efd2c5e833f783f3d71e0c1ce56bf0ca8a8c9e494bdb"


def test_it_looks_like_a_citation_network() -> None:
    data = uw.load("demo")
    assert data.num_nodes == 2000
    assert is_undirected(data.edge_index)
    assert not data.has_self_loops()
    degree = torch.bincount(data.edge_index[0], minlength=2000).float()
    assert 3 < degree.mean() < 6
    assert degree.max() > 10 * degree.mean(), "a few papers are cited by many"
    same = (data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).float().mean()
    assert 0.6 < same < 0.9
    assert (data.x > 0).float().mean() < 0.05
    assert set(data.x.unique().tolist()) == {0.0, 1.0}


def test_it_can_be_learnt_but_not_perfectly() -> None:
    data = uw.load("demo")
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data)
    assert 0.8 < run.metrics["test_f1"] < 0.95

"""Graphs that carry unusual things: they keep working, or are refused in words that say what to do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data

import unweave as uw
from unweave.graph.edit import check_attributes
from unweave.graph.removal import remove
from unweave.objective.checks import check_data
from unweave.testing import small_graph


def test_times_arrays_and_lists_follow_their_nodes_and_edges() -> None:
    data = small_graph()
    count = data.num_edges
    data.edge_time, data.born = torch.arange(count), torch.arange(60.0) + 1
    data.names, data.edge_names = np.array([f"n{i}" for i in range(60)]), np.arange(count)
    data.boxes = np.array([{"i": i} for i in range(60)], dtype=object)
    data.who, data.edge_who = tuple(range(60)), list(range(count))
    data.note = "one for the graph"
    check_data(data)
    u, v = data.edge_index[:, 20].tolist()
    after = remove(data, uw.Request(nodes=[3], edges=[(u, v)])).data
    kept = after.edge_time.tolist()
    assert 20 not in kept
    assert after.edge_who == kept == after.edge_names.tolist()
    assert (after.born[3], after.names[3], after.boxes[3], after.who[3]) == (0, "", None, None)
    assert (after.born[4], after.names[4], after.who[4], after.note) == (5, "n4", 4, data.note)
    assert data.names[3] == "n3", "the caller's is as it was"


def test_an_edge_index_of_pyg_stays_one_and_is_valid() -> None:
    data = small_graph()
    pairs = data.edge_index[:, data.edge_index[0].argsort(stable=True)]
    data.edge_index = EdgeIndex(pairs, sparse_size=(60, 60), sort_order="row", is_undirected=True)
    data.edge_attr = torch.arange(data.num_edges).view(-1, 1)  # by which each direction is an edge of its own
    check_data(data)
    u, v = pairs[:, 20].tolist()
    after = remove(data, uw.Request(edges=[(u, v)])).data
    after.edge_index.validate()
    assert after.num_edges == data.num_edges - 1
    assert torch.equal(after.edge_index.as_tensor(), torch.cat([pairs[:, :20], pairs[:, 21:]], dim=1))


class Labelled(Data):
    """A graph of one's own class."""


def test_a_class_of_ones_own_and_a_batch_are_kept() -> None:
    for data in (Labelled(**small_graph().to_dict()), Batch.from_data_list([small_graph()])):
        check_data(data)
        assert type(remove(data, uw.Request(nodes=[3])).data) is type(data)


def with_(**extra: object) -> Callable[[], Data]:
    def make() -> Data:
        data = small_graph()
        for key, value in extra.items():
            data[key] = value
        return data

    return make


class Table:
    """A container of rows that nobody can edit."""

    def __len__(self) -> int:
        return 60


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (with_(adj_t=torch.eye(60).to_sparse_csr()), "data.adj_t would keep what is removed"),
        (
            with_(edge_label_index=torch.zeros(2, 7, dtype=torch.long)),
            "data.edge_label_index, pairs of nodes for link prediction",
        ),
        (with_(known=torch.eye(60).to_sparse()), "data.known has an entry .* layout torch.sparse_coo.* delete it"),
        (with_(num_nodes=61), "data.num_nodes is 61, but data.x has 60 rows; set it to 60, or delete it"),
    ],
)
def test_what_cannot_be_edited_is_refused(make: Callable[[], Data], says: str) -> None:
    with pytest.raises(uw.DataError, match=says):
        check_data(make())
    check_attributes(with_(table=Table())())  # PyG takes it for one thing of the whole graph


def test_a_prepared_state_is_refused_on_a_graph_that_has_grown() -> None:
    """Where the objective was the same to rounding, the old state was taken without a word."""
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3), data, epochs=3, weight_decay=5e-4).prepare()
    request = uw.Request(nodes=[3])
    done = uw.unlearn(run.model, data, request, prepared=run.prepared, weight_decay=5e-4)
    grown = done.data.clone()
    grown.x = torch.cat([grown.x, torch.ones(1, 8)])
    grown.y = torch.cat([grown.y, torch.zeros(1, dtype=torch.long)])
    for name in ("train_mask", "val_mask", "test_mask"):
        grown[name] = torch.cat([grown[name], torch.tensor([False])])
    for options in ({}, {"memory_mib": 50.0}):
        with pytest.raises(
            uw.MethodError, match=r"60 nodes and .* this one has 61 .* grown since; call unweave.prepare"
        ):
            uw.unlearn(done.model, grown, uw.Request(nodes=[4]), prepared=done.prepared, weight_decay=5e-4, **options)
    with pytest.raises(uw.MethodError, match="another graph"):
        uw.unlearn(done.model, grown, uw.Request(nodes=[4]), prepared=done.prepared, weight_decay=5e-4, defer=True)
    assert uw.unlearn(done.model, grown, uw.Request(nodes=[60, 4]), weight_decay=5e-4).data.num_nodes == 61

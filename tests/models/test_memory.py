"""What the built-in models remember of a graph: never stale, and nothing of what was deleted."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.sparse import Pattern
from unweave.graph.removal import remove
from unweave.graph.view import GraphView
from unweave.models import structure
from unweave.testing import small_graph

NODE, WORD, EDGE = 7, 29, (11, 43)


def telling() -> Data:
    """A graph in which one node alone has a certain word, with an edge between two nodes that nobody else joins."""
    data = small_graph()
    data.x = torch.cat([data.x * (data.x > 1), torch.zeros(60, 22)], dim=1)
    data.x[:, WORD] = 0
    data.x[NODE, WORD] = 1
    more = torch.tensor([EDGE, EDGE[::-1]]).t()
    data.edge_index = torch.cat([data.edge_index, more], dim=1)
    return data


def told(value: Any, size: int) -> str:
    """What an object tells of the deleted node's word or of the deleted edge."""
    if type(value) is Pattern:
        row, col = (end.tolist() for end in value.places)
        pairs = {*zip(row, col, strict=True)}
        if value.shape[0] == value.shape[1] and {EDGE, EDGE[::-1]} & pairs:
            return "the pattern of a matrix has the edge"
        if value.shape[0] != value.shape[1] and {(NODE, WORD), (WORD, NODE)} & pairs:
            return "the pattern of the features has the word"
    if type(value) is Tensor and value.layout == torch.strided and value.dim() == 2 and value.numel():
        if value.dtype == torch.long and 2 in value.shape:
            pairs = value if value.size(0) == 2 else value.t()
            if bool(((pairs[0] == EDGE[0]) & (pairs[1] == EDGE[1])).any()):
                return "a tensor has the edge"
        if value.is_floating_point() and value.shape == (size, WORD + 1) and bool(value[NODE, WORD] != 0):
            return "a tensor has the word"
    return ""


def tellers(known: list[Any]) -> list[Any]:
    """What in this process tells of it, but for what was known before: another test may keep a graph with the edge."""
    skip = {id(thing) for thing in known}
    return [thing for thing in gc.get_objects() if told(thing, 60) and id(thing) not in skip]


@pytest.mark.parametrize(("name", "prepared"), [("gcn", True), ("sgc", False), ("gat", True), ("gin", False)])
def test_once_the_old_graph_is_freed_nothing_tells_of_what_was_deleted(name: str, prepared: bool) -> None:
    """The pattern of the old graph stayed with the new one: edges and words could be read from its zeros."""
    known = tellers([])
    data = telling()
    run = uw.train(uw.models.build(name, WORD + 1, 3), data, epochs=3)
    if prepared:
        run = run.prepare()
    done = run.forget(uw.Request(nodes=[NODE], edges=[EDGE]), "gif" if prepared else "finetune")
    done.model(done.data.x, done.data.edge_index)
    assert tellers(known), "the old graph is still there"
    del data, run
    gc.collect()
    assert {told(thing, 60) for thing in tellers(known)} == set()
    assert not done.data.x[NODE].any()


def write(data: Data, how: str) -> None:
    """Join nodes 0 and 1 to others, or blank a node, past torch's count of writes."""
    before = data.edge_index._version, data.x._version
    if how == "edges":
        data.edge_index.numpy()[1, :4] = [20, 21, 22, 23]
    elif how == "shuffle":
        ends = data.edge_index.numpy()
        ends[1] = ends[1][::-1].copy()
    elif how == "data":
        data.edge_index.data[1, :4] = torch.tensor([20, 21, 22, 23])
    else:
        data.x.numpy()[3] = 0
    assert before == (data.edge_index._version, data.x._version)


@pytest.mark.parametrize("how", ["edges", "shuffle", "data", "features"])
@pytest.mark.parametrize("name", ["gcn", "gat", "sgc", "gin"])
def test_a_write_that_torch_does_not_count_is_noticed(name: str, how: str) -> None:
    data = small_graph()
    torch.manual_seed(0)
    data.x *= torch.rand(60, 8) < 0.1
    data.x[3, 2] = 1
    model = uw.models.build(name, 8, 3).eval()
    before = model(data.x, data.edge_index)
    write(data, how)
    after = model(data.x, data.edge_index)
    assert torch.equal(after, model(data.x.clone(), data.edge_index.clone()))
    assert not torch.equal(after, before)


def test_large_features_are_noticed_when_all_change_and_after_a_call() -> None:
    data = small_graph(nodes=400)
    data.x = torch.zeros(400, 300)
    data.x[:, ::40] = torch.rand(400, 8, generator=torch.Generator().manual_seed(0))
    model = uw.models.GCN(300, 3).eval()
    for scaled in (True, False):
        assert structure.features(data.x) is not None
        model(data.x, data.edge_index)
        if scaled:
            data.x.numpy()[:] *= 2
        else:
            data.x.numpy()[3, 0] += 1
            uw.models.clear_memory()
        assert torch.equal(model(data.x, data.edge_index), model(data.x.clone(), data.edge_index))


def test_a_request_after_such_a_write_is_carried_out_on_the_graph_as_it_is() -> None:
    data = small_graph()
    view = GraphView.of(data)
    u, v = data.edge_index[:, 0].tolist()
    assert remove(data, uw.Request(edges=[(u, v)])).undirected
    data.edge_index.numpy()[:, 0] = [u, u]
    after = remove(data, uw.Request(edges=[(v, u)]))
    assert not after.undirected
    with pytest.raises(uw.DataError, match="written to"):
        view.check_untouched()


def test_a_prepared_state_does_not_outlive_such_a_write() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3), data, epochs=3).prepare()
    assert run.prepared is not None
    data.edge_index.numpy()[1, 0] = 50
    with pytest.raises(uw.UnweaveError):
        uw.unlearn(run.model, data, uw.Request(nodes=[3]), prepared=run.prepared, weight_decay=5e-4)

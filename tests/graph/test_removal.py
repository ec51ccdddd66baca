"""What remains of a graph, and who is affected."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch_geometric.data import Data

from unweave import EmptyRequestError, Request, RequestError
from unweave.graph.index import is_undirected
from unweave.graph.region import hops_from, influenced_region
from unweave.graph.removal import remove, take
from unweave.graph.view import GraphView
from unweave.models.reach import Reach


def graph(pairs: list[tuple[int, int]], nodes: int = 6, **extra: object) -> Data:
    train = torch.zeros(nodes, dtype=torch.bool)
    train[: nodes - 1] = True
    return Data(
        x=torch.arange(1.0, 2 * nodes + 1).view(nodes, 2),
        edge_index=torch.tensor(pairs).t().reshape(2, -1),
        y=torch.arange(nodes) % 2,
        train_mask=train,
        test_mask=~train,
        **extra,
    )


def both(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return pairs + [(v, u) for u, v in pairs]


PATH = both([(0, 1), (1, 2), (2, 3), (3, 4)])


def edges(data: Data) -> set[tuple[int, int]]:
    return {(u, v) for u, v in data.edge_index.t().tolist()}


def test_a_deleted_node_is_isolated_and_keeps_its_place() -> None:
    data = graph(PATH)
    after = remove(data, Request(nodes=[2])).data
    assert edges(after) == set(both([(0, 1), (3, 4)]))
    assert after.num_nodes == 6
    assert after.x[2].tolist() == [0, 0]
    assert after.y[2] == -1
    assert not after.train_mask[2]
    assert torch.equal(after.x[3:], data.x[3:])


def test_an_undirected_edge_goes_in_both_directions_whichever_is_named() -> None:
    for edge in ((1, 2), (2, 1)):
        removal = remove(graph(PATH), Request(edges=[edge]))
        assert edges(removal.data) == set(PATH) - {(1, 2), (2, 1)}
        assert removal.request.edges == ((1, 2),)
        assert removal.counts["edges"] == 1
        assert removal.counts["stored_edges"] == 2


def test_a_directed_edge_goes_one_way() -> None:
    data = graph([(0, 1), (1, 0), (1, 2), (3, 2)])
    assert not is_undirected(data)
    assert edges(remove(data, Request(edges=[(0, 1)])).data) == {(1, 0), (1, 2), (3, 2)}
    with pytest.raises(RequestError, match="directed and has the reverse"):
        remove(data, Request(edges=[(2, 1)]))


def test_weights_decide_whether_a_graph_is_directed_and_follow_their_edges() -> None:
    same = graph(both([(0, 1), (1, 2)]), edge_weight=torch.tensor([1.0, 2.0, 1.0, 2.0]))
    other = graph(both([(0, 1), (1, 2)]), edge_weight=torch.tensor([1.0, 2.0, 1.0, 3.0]))
    assert is_undirected(same)
    assert not is_undirected(other)
    after = remove(same, Request(edges=[(0, 1)])).data
    assert after.edge_weight.tolist() == [2.0, 2.0]
    after = remove(other, Request(edges=[(0, 1)])).data
    assert after.edge_weight.tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("name", ["edge_attr", "edge_type", "edge_weight"])
def test_whatever_messages_take_along_decides_whether_a_graph_is_directed(name: str) -> None:
    """An ``edge_attr`` that differed by direction was not looked at, so that the reverse of an edge went with it."""
    pairs = both([(0, 1), (1, 2), (1, 2)])
    same, other = torch.tensor([[1, 5], [2, 6], [3, 7]]).repeat(2, 1), torch.tensor([[1, 5], [2, 6], [3, 7]] * 2)
    same[4:] = same[4:].flip(0)  # parallel edges have no order
    other[3, 1] = 9
    assert is_undirected(graph(pairs, **{name: same}))
    data = graph(pairs, **{name: other})
    assert not is_undirected(data)
    assert edges(remove(data, Request(edges=[(0, 1)])).data) == set(pairs) - {(0, 1)}
    assert is_undirected(graph(pairs, edge_id=torch.arange(6))), "a number of each edge goes with no message"


def test_every_parallel_edge_and_self_loop_goes() -> None:
    carried = torch.tensor([0.0, 1, 2, 1, 2, 0, 6]).view(7, 1)  # of (0, 1) and (1, 0) in another order
    data = graph([*both([(0, 1), (1, 2)]), (0, 1), (1, 0), (3, 3)], edge_attr=carried)
    assert is_undirected(data)
    after = remove(data, Request(edges=[(0, 1), (3, 3)])).data
    assert edges(after) == set(both([(1, 2)]))
    assert after.edge_attr.flatten().tolist() == [1.0, 1.0]
    assert edges(remove(data, Request(nodes=[3])).data) == edges(data) - {(3, 3)}


def test_features_go_by_row_or_by_column() -> None:
    data = graph(PATH)
    removal = remove(data, Request(features={0: "all", 1: [1]}))
    assert removal.data.x[:2].tolist() == [[0, 0], [3, 0]]
    assert torch.equal(removal.data.x[2:], data.x[2:])
    assert removal.data.train_mask[0]
    assert removal.features.tolist() == [0, 1]


def test_a_label_goes_and_the_node_stays() -> None:
    data = graph(PATH)
    after = remove(data, Request(labels=[1])).data
    assert after.y[1] == -1
    assert not after.train_mask[1]
    assert edges(after) == set(PATH)
    assert torch.equal(after.x, data.x)
    continuous = graph(PATH)
    continuous.y = continuous.y.float()
    assert remove(continuous, Request(labels=[1])).data.y[1].isnan()


def test_other_node_tensors_of_a_deleted_node_go_too() -> None:
    after = remove(graph(PATH, pos=torch.ones(6, 3), tokens=torch.arange(6)), Request(nodes=[1])).data
    assert after.pos[1].tolist() == [0, 0, 0]
    assert after.tokens[1] == 0


def test_lists_of_node_data_and_further_edge_tensors_follow() -> None:
    names = [f"person {i}" for i in range(6)]
    data = graph(PATH, who=names, rev_edge_index=torch.tensor(PATH).t().flip(0))
    after = remove(data, Request(nodes=[1])).data
    assert after.who == [None if i == 1 else name for i, name in enumerate(names)]
    assert torch.equal(after.rev_edge_index, after.edge_index.flip(0))
    flags = graph(PATH)
    flags.y = flags.y.bool()
    assert not remove(flags, Request(labels=[1])).data.y[1]


def test_only_what_the_request_names_is_touched() -> None:
    removal = remove(graph(PATH), Request(nodes=[0], edges=[(2, 3)], features={4: "all"}))
    assert removal.touched.nonzero().flatten().tolist() == [0, 2, 3, 4]


def test_a_graph_with_as_many_edges_as_nodes_is_not_confused() -> None:
    data = graph([*both([(0, 1), (1, 2), (2, 3)])], edge_weight=torch.ones(6))
    after = remove(data, Request(edges=[(0, 1)])).data
    assert after.x.size(0) == 6
    assert after.edge_weight.numel() == 4


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(nodes=[6]), "nodes: 6 is not in the graph, whose nodes are 0 … 5"),
        (Request(nodes=[-1]), "nodes: -1 is not"),
        (Request(labels=[9, 7]), "labels: 7, 9 are not"),
        (Request(features={9: "all"}), "features: 9 is not"),
        (Request(edges=[(0, 9)]), "edges: 9 is not"),
        (Request(edges=[(0, 4)]), r"edges: \(0, 4\) is not in the graph"),
        (Request(edges=[(0, 1), (1, 0)]), r"\(0, 1\) is named in both directions"),
        (Request(features={0: [2]}), "column 2 of node 0 is out of range; the graph has columns 0 … 1"),
        (Request(features={0: [-1]}), "column -1"),
    ],
)
def test_what_is_not_in_the_graph_is_refused(request_: Request, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        remove(graph(PATH), request_)


def test_what_is_gone_already_cannot_be_forgotten_again() -> None:
    once = remove(graph(PATH), Request(nodes=[2], labels=[1])).data
    for request in (Request(nodes=[2]), Request(labels=[1]), Request(features={2: "all"})):
        with pytest.raises(EmptyRequestError, match="nothing to forget"):
            remove(once, request)
    assert not remove(once, Request(nodes=[1])).data.x[1].any()


@pytest.mark.parametrize(
    ("request_", "reach", "region", "sizes"),
    [
        (Request(features={0: "all"}), Reach(2), {0, 1, 2}, (1, 1, 1)),
        (Request(features={0: "all"}), Reach(0), {0}, (1,)),
        (Request(edges=[(0, 1)]), Reach(1, normalised=True), {0, 1, 2}, (2, 1)),
        (Request(edges=[(0, 1)]), Reach(1, normalised=False), {0, 1}, (0, 2)),
        (Request(edges=[(0, 1)]), Reach(2, normalised=False), {0, 1, 2}, (0, 2, 1)),
        (Request(nodes=[0]), Reach(1, normalised=True), {0, 1, 2}, (2, 1)),
        (Request(nodes=[0]), Reach(1, normalised=False), {0, 1}, (1, 1)),
        (Request(nodes=[0]), Reach(None), {0, 1, 2, 3, 4, 5}, (6,)),
        (Request(labels=[0]), Reach(2), set(), (0, 0, 0)),
    ],
)
def test_region_on_a_path(request_: Request, reach: Reach, region: set[int], sizes: tuple[int, ...]) -> None:
    data = graph(PATH)
    found = influenced_region(data, remove(data, request_), reach)
    assert set(found.mask.nonzero().flatten().tolist()) == region
    assert found.sizes == sizes


def test_region_follows_the_flow_of_messages_on_a_directed_graph() -> None:
    data = graph([(0, 1), (1, 2), (2, 3)])
    removal = remove(data, Request(features={1: "all"}))
    forward = influenced_region(data, removal, Reach(1))
    backward = influenced_region(data, removal, Reach(1, flow="target_to_source"))
    assert forward.mask.nonzero().flatten().tolist() == [1, 2]
    assert backward.mask.nonzero().flatten().tolist() == [0, 1]


def test_a_graph_that_never_said_how_many_nodes_it_has_may_grow_after_a_removal() -> None:
    """The number of nodes was left on the remaining graph, which then did not follow its features."""
    data = graph(PATH)
    for after in (remove(data, Request(nodes=[1])).data, take(GraphView.of(data), Request(nodes=[1]))[0].data):
        assert "num_nodes" not in after
        after.x = torch.cat([after.x, torch.ones(1, 2)])
        assert after.num_nodes == 7
    assert "num_nodes" not in GraphView.of(data).data
    data.num_nodes = 6
    assert remove(data, Request(nodes=[1])).data.to_dict()["num_nodes"] == 6


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_removal_commutes_with_relabelling(draw: st.DataObject) -> None:
    pairs = draw.draw(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=15))
    order = torch.tensor(draw.draw(st.permutations(range(6))))
    data = graph(sorted(pairs))
    renamed = Data(edge_index=order[data.edge_index])
    for key in ("x", "y", "train_mask", "test_mask"):
        renamed[key] = torch.empty_like(data[key])
        renamed[key][order] = data[key]
    edge = sorted(pairs)[0]
    request = Request(nodes=[edge[1]], edges=[edge])
    moved = Request(nodes=[int(order[edge[1]])], edges=[(int(order[edge[0]]), int(order[edge[1]]))])
    first, second = remove(data, request), remove(renamed, moved)
    assert {(int(order[u]), int(order[v])) for u, v in edges(first.data)} == edges(second.data)
    assert torch.equal(second.data.x[order], first.data.x)
    assert torch.equal(second.touched[order], first.touched)


def test_hops_follow_the_messages() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2, 4], [1, 2, 3, 0]]), num_nodes=6)
    start = torch.tensor([False, True, False, False, False, False])
    assert hops_from(data, start, "source_to_target").tolist() == [-1, 0, 1, 2, -1, -1]
    assert hops_from(data, start, "target_to_source").tolist() == [1, 0, -1, -1, 2, -1]

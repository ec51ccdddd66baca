"""A change carried out on a graph: what comes, what is refused, and that no id shifts."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from unweave.graph.alteration import alter
from unweave.tasks import Task
from unweave.testing import small_graph

ROW = [0.5] * 8


def weighted() -> Data:
    data = small_graph()
    data.edge_weight = 1.0 + data.edge_index.sum(dim=0) % 3
    return data


def directed() -> Data:
    data = small_graph()
    data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    return data


def absent(data: Data) -> tuple[int, int]:
    """Two nodes without an edge between them."""
    there = set(map(tuple, data.edge_index.t().tolist()))
    return next((u, v) for u in range(60) for v in range(u + 1, 60) if not {(u, v), (v, u)} & there)


def test_ids_never_shift_and_nothing_else_changes() -> None:
    data = weighted()
    u, v = absent(data)
    known = tuple(data.edge_index[:, 0].tolist())
    train, rest = data.train_mask.nonzero().flatten().tolist(), data.test_mask.nonzero().flatten().tolist()
    change = uw.Change(
        add={"nodes": [{"features": ROW, "label": 2, "edges": [[3, 0.5]]}, {"features": [0.0] * 8}],
             "edges": [[v, u, 2.0], [60, 61, 1.5]]},
        correct={"features": {train[1]: {2: 9.0}}, "labels": {train[2]: 1, rest[0]: 1}, "edge_weights": [[*known, 7]]},
    )  # fmt: skip
    before = data.clone()
    done = alter(data, change)
    after = done.data
    assert all(
        torch.equal(value, data[key]) for key, value in before.to_dict().items() if isinstance(value, torch.Tensor)
    )
    assert after.num_nodes == 62
    assert after.x[60].tolist() == ROW
    assert not after.x[61].any()
    assert after.y[60:].tolist() == [2, -1]
    assert after.train_mask[60:].tolist() == [True, False]
    kept = torch.ones(60, dtype=torch.bool)
    kept[train[1]] = False
    assert torch.equal(after.x[:60][kept], data.x[kept])
    assert float(after.x[train[1], 2]) == 9
    assert after.y[[train[2], rest[0]]].tolist() == [1, 1]
    assert torch.equal(after.test_mask[:60], data.test_mask)  # a label that is put right stays where it was used
    old = data.edge_index.size(1)
    assert torch.equal(after.edge_index[:, :old], data.edge_index)
    ends, weights = after.edge_index[:, old:].t().tolist(), after.edge_weight[old:].tolist()
    new = sorted((a, b, w) for (a, b), w in zip(ends, weights, strict=True))
    wanted = [(3, 60, 0.5), (u, v, 2.0), (60, 61, 1.5)]
    assert new == sorted([*wanted, *((b, a, w) for a, b, w in wanted)])
    named = ((after.edge_index[:, :old] == torch.tensor(known)[:, None]).all(dim=0)
             | (after.edge_index[:, :old] == torch.tensor(known[::-1])[:, None]).all(dim=0))  # fmt: skip
    assert int(named.sum()) == 2
    assert (after.edge_weight[:old][named] == 7).all()
    assert torch.equal(after.edge_weight[:old][~named], data.edge_weight[~named])
    assert done.counts == {
        "nodes": 0, "edges": 0, "stored_edges": 0, "feature_rows": 0, "labels": 0,
        "added_nodes": 2, "added_edges": 3, "added_stored_edges": 6,
        "corrected_rows": 1, "corrected_labels": sum(int(data.y[n]) != 1 for n in (train[2], rest[0])),
        "corrected_weights": 1,
    }  # fmt: skip
    blank = done.before
    assert blank.num_nodes == 62
    assert torch.equal(blank.edge_index, data.edge_index)
    assert not blank.x[60:].any()
    assert not blank.train_mask[60:].any()


def test_a_label_makes_a_node_without_one_a_training_node() -> None:
    data = small_graph()
    node = int(data.train_mask.nonzero()[0])
    data.train_mask[node] = False
    after = alter(data, uw.Change(correct={"labels": {node: int(data.y[node])}})).data
    assert bool(after.train_mask[node])


def test_a_directed_edge_comes_in_one_direction() -> None:
    data = directed()
    change = uw.Change(
        add={"nodes": [{"features": ROW}], "edges": [[60, 3], [int(data.edge_index[1, 0]), int(data.edge_index[0, 0])]]}
    )
    assert alter(data, change).came.size(1) == 2
    with pytest.raises(uw.RequestError, match=r"need a direction; name them in add.edges .*60 … 60"):
        alter(data, uw.Change(add={"nodes": [{"features": ROW, "edges": [3]}]}))


U, V = absent(small_graph())
HAS = tuple(small_graph().edge_index[:, 0].tolist())
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("plain", {"add": {"nodes": [{"features": [1.0] * 7}]}}, "has 7 numbers; the graph has 8 features"),
    ("plain", {"add": {"nodes": [{"features": [1e300] * 8}]}}, "too large for torch.float32"),
    ("plain", {"add": {"nodes": [{"features": ROW, "label": 3}]}}, r"one of the classes 0 … 2, got 3"),
    ("plain", {"add": {"nodes": [{"features": ROW, "label": 0.5}]}}, r"one of the classes 0 … 2, got 0.5"),
    ("plain", {"add": {"nodes": [{"features": ROW, "label": [0, 1]}]}}, "must be one number"),
    (
        "plain",
        {"add": {"nodes": [{"features": ROW, "edges": [61]}]}},
        "61: not in the graph, .*the new ones are 60 … 60",
    ),
    (
        "plain",
        {"add": {"nodes": [{"features": ROW, "edges": [[3, 0.5]]}]}},
        r"has no data.edge_weight, so write \[u, v\]",
    ),
    ("plain", {"add": {"nodes": [{"features": ROW, "edges": [60]}], "edges": [[60, 60]]}}, "named more than once"),
    ("plain", {"add": {"edges": [[0, 60]]}}, "60: not in the graph, whose nodes are 0 … 59"),
    ("plain", {"add": {"edges": [[*HAS]]}}, "there already; leave it out"),
    ("plain", {"add": {"edges": [[U, V], [V, U]]}}, "in one direction alone, as the graph is undirected"),
    ("plain", {"add": {"edges": [[U, V, 0.5]]}}, "has no data.edge_weight"),
    ("plain", {"correct": {"features": {60: {0: 1}}}}, "60: not in the graph"),
    ("plain", {"correct": {"features": {3: {8: 1}}}}, "column 8 is out of range; the graph has columns 0 … 7"),
    ("plain", {"correct": {"features": {3: [1.0]}}}, "1 numbers; the graph has 8 features"),
    ("plain", {"correct": {"labels": {61: 1}}}, "61: not in the graph"),
    ("plain", {"correct": {"labels": {3: -1}}}, "one of the classes 0 … 2, got -1"),
    ("plain", {"correct": {"edge_weights": [[*HAS, 0.5]]}}, "the graph has no data.edge_weight"),
    ("plain", {"forget": {"nodes": [60]}, "add": {"edges": [[U, V]]}}, "nodes: 60 is not in the graph"),
    ("plain", {"forget": {"edges": [[U, V]]}, "add": {"edges": [[0, 59]]}}, "not in the graph|there already"),
    ("plain", {"forget": {"edges": [[*HAS]]}, "add": {"edges": [[*HAS]]}}, "there already"),
    (
        "plain",
        {"add": {"nodes": [{"features": ROW}]}, "correct": {"labels": {60: 1}}},
        "a new node; give its values where it is added",
    ),
    ("weighted", {"add": {"edges": [[U, V]]}}, r"the graph has weights, so write \[u, v, weight\]"),
    ("weighted", {"add": {"edges": [[*HAS, 1.0]]}}, "to change its weight use correct.edge_weights"),
    ("weighted", {"correct": {"edge_weights": [[U, V, 1.0]]}}, "not in the graph; add.edges adds an edge"),
    ("weighted", {"correct": {"edge_weights": [[*HAS, 1e300]]}}, "too large"),
    (
        "weighted",
        {"correct": {"edge_weights": [[*HAS, 2.0]]}, "forget": {"edges": [[*HAS]]}},
        "the same change forgets it",
    ),
    ("attributed", {"add": {"edges": [[U, V]]}}, "data.edge_attr has an entry for every edge"),
    ("placed", {"add": {"nodes": [{"features": ROW}]}}, "data.pos has an entry for every node"),
    ("unsplit", {"add": {"nodes": [{"features": ROW, "label": 1, "mask": "val"}]}}, "the graph has no data.val_mask"),
    ("task", {"add": {"edges": [[U, V]]}}, "nothing can be added to a Task"),
]


def graph_called(kind: str) -> Data:
    data = weighted() if kind == "weighted" else small_graph()
    if kind == "attributed":
        data.edge_attr = torch.ones(data.edge_index.size(1), 2)
    elif kind == "placed":
        data.pos = torch.ones(60, 2)
    elif kind == "unsplit":
        del data.val_mask
    return Task(**data.to_dict()) if kind == "task" else data


@pytest.mark.parametrize(("kind", "parts", "wrong"), BAD)
def test_what_does_not_fit_the_graph_is_refused(kind: str, parts: dict[str, Any], wrong: str) -> None:
    with pytest.raises(uw.RequestError, match=wrong):
        alter(graph_called(kind), uw.Change.from_dict(parts))


def test_what_is_so_already_is_nothing_to_do() -> None:
    data = small_graph()
    node = int(data.train_mask.nonzero()[0])
    same = uw.Change(correct={"labels": {node: int(data.y[node])}, "features": {node: data.x[node]}})
    with pytest.raises(uw.EmptyRequestError, match="already as this change wants it"):
        alter(data, same)

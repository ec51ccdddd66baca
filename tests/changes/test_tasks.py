"""Changes on the graphs of tasks: users, items, interactions, pairs, whole graphs, nodes by type."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import LightGCN as PyGLightGCN

import unweave as uw
from tests.tasks.literature import IN, WRITES, heterogeneous, literature
from tests.tasks.pairs import ITEMS, USERS, graph, interactions, recommender
from tests.tasks.test_graphs import rings_and_stars
from unweave._core.tuning import tuned
from unweave.datasets.own import read_graph
from unweave.graph.alteration import alter
from unweave.methods.growing import grown_model, new_rows
from unweave.objective.checks import rounding
from unweave.objective.objective import call
from unweave.objective.parameters import flatten, places_in
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.tasks import Graphs, Links, Recommendation, Relations


def listenings(users: int = 60, items: int = 40) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    tastes = torch.softmax(2 * torch.randn(users, 4, generator=draw) @ torch.randn(4, items, generator=draw), dim=1)
    chosen = torch.multinomial(tastes, 8, generator=draw)
    return torch.stack([torch.arange(users).repeat_interleave(8), chosen.flatten()], dim=1)


@pytest.fixture(scope="module")
def run() -> uw.Run:
    data = Recommendation.of(listenings(), users=60, items=40, negatives=8)
    return uw.train(uw.models.LightGCN(100, width=48), data, forgettable=True, weight_decay=3e-3)


def joiners(data: Any, **more: Any) -> uw.Change:
    """Two new users, a new item, and what they and others chose."""
    known = {(int(u), int(i) - 60) for u, i in data.own_pairs()}
    old = next((u, i) for u in range(60) for i in range(40) if (u, i) not in known)
    chosen = [(60, 3), (60, 17), (60, 40), (61, 5), (61, 9), (3, 40), (8, 40), old]
    return data.change(users=2, items=1, interactions=chosen, **more)


def to_all_items(run: uw.Run) -> Tensor:
    return run.data.log_probabilities(run.model)


def apart(one: Tensor, other: Tensor) -> float:
    """Mean KL over users, deleted items left out."""
    return float((one.exp() * (one - other)).nan_to_num(0).sum(dim=1).mean())


def test_a_recommender_follows_new_users_items_and_interactions(run: uw.Run, tmp_path: Path) -> None:
    for change in (joiners(run.data), joiners(run.data, forget=run.data.request(users=[17]), id="Monday")):
        after, none, anew = (run.update(change, method) for method in ("gif", "none", "retrain"))
        target, found, nothing = map(to_all_items, (anew, after, none))
        assert target.shape == (62, 41)
        assert 1 - apart(target, found) / apart(target, nothing) > 0.95
        assert 1 - apart(target[60:], found[60:]) / apart(target[60:], nothing[60:]) > 0.95
        after.verify()
    receipt = after.receipts[-1]
    assert receipt.removed["added of type user"] == 2
    assert receipt.removed["added_rows"] == 3
    assert "8 examples, 1 item, 2 users, 8 edges and 3 rows of an embedding table, zero at first, added" in str(receipt)
    assert receipt.request["add"]["nodes"] == list(range(run.data.num_nodes, run.data.num_nodes + 3))
    assert after.model.config["nodes"] == 103
    assert after.prepared is not None
    assert after.prepared.at_minimum
    after.save(tmp_path / "run")
    opened = uw.Run.open(tmp_path / "run", data=after.data)
    assert torch.equal(flatten(opened.model), flatten(after.model))
    again = opened.update(opened.data.change(users=1, interactions=[(62, 4), (62, 40)]))
    assert again.prepared is not None
    assert again.prepared.serves(again.model, again.data, 3e-3, again.loss, again.forward)
    deferred = opened.forget(opened.data.request(interactions=[(61, 9)]), defer=True)
    assert deferred.verify().pending == 0 < deferred.pending
    later = opened.forget(opened.data.request(users=[60], interactions=[(61, 5)]))
    assert not bool(later.model.table.weight[100].any())
    later.verify()


def test_numbers_never_shift_and_no_other_is_drawn_anew() -> None:
    data = recommender()
    before = (data.node_type.clone(), data.edge_index.clone(), data.own_pairs().tolist())
    done = alter(data, data.change(users=1, items=1, interactions=[(USERS, 0), (USERS, ITEMS), (2, ITEMS)]))
    new = done.data
    assert torch.equal(new.node_type[: before[0].numel()], before[0])
    assert torch.equal(new.edge_index[:, : before[1].size(1)], before[1])
    assert new.own_pairs().tolist()[: len(before[2])] == before[2]
    assert new.nodes_of("user")[USERS] == before[0].numel()
    assert new.nodes_of("item")[ITEMS] == before[0].numel() + 1
    assert new.spec["rows"] == USERS + ITEMS + 2
    assert data.spec["rows"] == USERS + ITEMS
    assert new.layout.real.numel() == done.before.layout.real.numel() == USERS + ITEMS + 2


def candidates(data: Any) -> list[tuple[int, ...]]:
    """All examples that are trained on: head, true tail, label, and what it is compared with."""
    at, own, found = data.layout, data.true_tails(), []
    for number in data.train_mask[at.examples].nonzero().flatten().tolist():
        ends = int(at.real[at.head[number]]), int(at.real[own[number]])
        others = [int(at.real[t]) for t in at.tails[number].tolist() if t >= 0]
        found.append((*ends, int(data.y[at.examples[number]]), *others))
    return sorted(found)


def messages(data: Any) -> set[tuple[int, ...]]:
    return {tuple(edge) for edge in data.layout.real[data.layout.messages].t().tolist()}


def test_an_interaction_that_comes_later_is_the_one_that_was_there() -> None:
    pairs = interactions()
    whole, less = recommender(), recommender(pairs[torch.arange(len(pairs)) != 7])
    user, item = (int(end) for end in pairs[7])
    grown = alter(less, less.change(interactions=[(user, item)])).data
    assert candidates(grown) == candidates(whole)
    assert messages(grown) == messages(whole)


@pytest.mark.parametrize("binary", [True, False])
def test_so_is_a_pair(binary: bool) -> None:
    data, how = graph(), {"val": 0.0, "test": 0.0, "negatives": 2, "binary": binary}
    u, v = (int(end) for end in data.edge_index[:, 0])
    less = copy.copy(data)
    gone = ((data.edge_index == torch.tensor([[u], [v]])) | (data.edge_index == torch.tensor([[v], [u]]))).all(dim=0)
    less.edge_index = data.edge_index[:, ~gone]
    whole, small = (Links.of(some, **how) for some in (data, less))  # type: ignore[arg-type]
    grown = alter(small, small.change(pairs=[(v, u)])).data
    assert candidates(grown) == candidates(whole)
    assert messages(grown) == messages(whole)


def test_a_new_node_of_links_is_a_node_like_any_other() -> None:
    data = graph()
    task = Links.of(data, test=0.0)
    row = torch.arange(4.0).double()
    done = alter(task, task.change(nodes=[row], pairs=[(14, 2), (3, 14)], features={1: {0: 9.0}}))
    new, model = done.data, uw.models.Linker(4, width=5).double()
    kept = task.layout.messages
    wider = torch.cat([data.x, row[None]])
    wider[1, 0] = 9.0
    ends = torch.tensor([[14, 2, 3, 14], [2, 14, 14, 3]])
    by_hand = model.encode(wider, torch.cat([kept, ends], dim=1))
    torch.testing.assert_close(new.encode(model), by_hand)
    assert new.request(nodes=[14]).nodes == (task.num_nodes,)
    gone = alter(new, uw.Change(forget=new.request(nodes=[14]), correct={"features": {0: {0: 1.0}}})).data
    assert int(gone.train_mask.sum()) == int(task.train_mask.sum())


def test_graphs_that_come_later_are_those_that_were_there() -> None:
    graphs = rings_and_stars(20)
    whole, less = (Graphs.of(some, train=range(16)) for some in (graphs[:17], graphs[:16]))
    change = less.change(graphs=[graphs[16]], labels={0: 1 - int(graphs[0].y)}, features={(1, 2): [0.0, 0.0, 1.0]})
    grown = alter(less, change).data
    expected = whole.graphs()
    expected[0].y, expected[1].x = 1 - graphs[0].y, expected[1].x.clone()
    expected[1].x[2] = torch.tensor([0.0, 0.0, 1.0])
    for one, other in zip(grown.graphs(), expected, strict=True):
        assert one.number == other.number
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)
        assert set(map(tuple, one.edge_index.t().tolist())) == set(map(tuple, other.edge_index.t().tolist()))
    assert int(grown.train_mask.sum()) == 17
    assert grown.request(graphs=[16], nodes=[(16, 1)]).nodes[1] == less.num_nodes + len(graphs[16].x)
    missing = next((u, v) for u in range(4) for v in range(4) if (u, v) not in edges_of(graphs[0]) and u < v)
    more = alter(grown, grown.change(edges=[(0, *missing)])).data.graphs()[0]
    assert edges_of(more) == edges_of(graphs[0]) | {missing, missing[::-1]}


def edges_of(data: Data) -> set[tuple[int, ...]]:
    return {tuple(edge) for edge in data.edge_index.t().tolist()}


def test_relations_bring_their_reverse() -> None:
    hetero = literature(30)
    data = Relations.of(hetero)
    rows = torch.arange(4.0)
    change = data.change(
        nodes={"author": [rows], "paper": [{"features": torch.ones(6), "label": 1, "mask": "val"}]},
        edges={WRITES: [(15, 30), (15, 2)], IN: [(30, 4)]},
        features={"venue": {0: {1: 7.0}}},
        labels={3: 2},
    )
    grown = alter(data, change).data.to_hetero_data()
    assert torch.equal(grown["author"].x, torch.cat([hetero["author"].x, rows[None]]))
    assert grown["paper"].x.shape == (31, 6)
    assert int(grown["paper"].y[30]) == 1
    assert bool(grown["paper"].val_mask[30])
    assert int(grown["paper"].y[3]) == 2
    assert float(grown["venue"].x[0, 1]) == 7.0
    for relation, back, new in (
        (WRITES, ("paper", "rev_writes", "author"), [(15, 30), (15, 2)]),
        (IN, ("venue", "rev_in", "paper"), [(30, 4)]),
    ):
        edges = set(map(tuple, hetero[relation].edge_index.t().tolist())) | set(new)
        assert set(map(tuple, grown[relation].edge_index.t().tolist())) == edges
        assert set(map(tuple, grown[back].edge_index.flip(0).t().tolist())) == edges


def test_weights_are_corrected_in_both_directions() -> None:
    data = graph()
    data.edge_weight = torch.ones(data.edge_index.size(1), dtype=torch.double)
    task = Links.of(data, test=0.0, val=0.0)
    u, v = (int(end) for end in data.edge_index[:, 0])
    new = alter(task, task.change(edge_weights=[(u, v, 3.0)])).data
    weights = {tuple(e): w for e, w in zip(new.edge_index.t().tolist(), new.edge_weight.tolist(), strict=True)}
    assert weights[u, v] == weights[v, u] == 3.0
    assert sum(weight != 1 for weight in weights.values()) == 2
    hetero = literature(30)
    for relation in (WRITES, ("paper", "rev_writes", "author")):
        hetero[relation].edge_weight = torch.ones(hetero[relation].edge_index.size(1))
    relations = Relations.of(hetero)
    a, p = (int(end) for end in hetero[WRITES].edge_index[:, 0])
    after = alter(relations, relations.change(edge_weights={WRITES: [(a, p, 2.5)]})).data.to_hetero_data()
    assert [int((after[r].edge_weight == 2.5).sum()) for r in (WRITES, ("paper", "rev_writes", "author"))] == [1, 1]
    rings = rings_and_stars(6)
    for one in rings:
        one.edge_weight = torch.ones(one.edge_index.size(1))
    graphs = Graphs.of(rings, train=range(6))
    ends = [int(end) for end in rings[2].edge_index[:, 0]]
    changed = alter(graphs, graphs.change(edge_weights=[(2, *ends, 0.5)])).data.graphs()
    assert [int((one.edge_weight == 0.5).sum()) for one in changed] == [0, 0, 2, 0, 0, 0]


class TwoTables(nn.Module):
    """A table of users and one of items, of as many rows; the latter is a plain parameter."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.users = nn.Embedding(users, 4)
        self.items = nn.Parameter(torch.randn(items, 4))
        self.mix = nn.Linear(4, users, bias=False)  # as wide as there are users, by accident

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = torch.cat([self.users.weight, self.items])
        return self.mix(z)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encode(x, edge_index)


def test_tables_of_anyones_get_the_rows_of_their_type() -> None:
    data = Recommendation.of(interactions()[:, :], users=USERS, items=ITEMS, negatives=3)
    pyg = PyGLightGCN(USERS + ITEMS, 4, 2)
    change = data.change(users=2, items=1, interactions=[(USERS, 1), (USERS + 1, ITEMS)])
    done = alter(data, change)
    for model, rows in (
        (pyg, {"embedding.weight": 3}),
        (uw.models.LightGCN(USERS + ITEMS, width=3), {"table.weight": 3}),
    ):
        grown, _ = grown_model(model.eval(), data, done, call)
        assert new_rows(model, grown) == rows
        old, new = data.call(model), done.before.call(grown)
        assert bool(((old - new[: old.size(0)]).abs() <= rounding(old)).all())
        assert torch.equal(flatten(grown)[places_in(model, grown)], flatten(model))
    # Positions of real nodes are users and items in the order of their ids, so that two tables fit before growth only.
    only_users = alter(data, data.change(items=1, interactions=[(0, ITEMS)]))
    grown, _ = grown_model(TwoTables(USERS, ITEMS).eval(), data, only_users, call)
    assert new_rows(TwoTables(USERS, ITEMS), grown) == {"items": 1}


class Fixed(nn.Module):
    """Knows how many nodes there are, and has no table to grow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(USERS + ITEMS, 3)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(torch.eye(USERS + ITEMS, dtype=torch.double))


def test_a_model_that_cannot_grow_is_refused_before_any_work() -> None:
    data = recommender()
    run = uw.Run(Fixed().double(), data, weight_decay=1e-2)
    with pytest.raises(uw.ModelError, match=r"must give one embedding|cannot be called with new nodes"):
        run.update(data.change(users=1, interactions=[(USERS, 1)]))


def test_what_was_deleted_does_not_come_back() -> None:
    data = recommender()
    gone = alter(data, uw.Change(add={"nodes": [{"type": "user", "edges": [12]}]}, forget=data.request(users=[2]))).data
    with pytest.raises(uw.RequestError, match="never used again"):
        alter(gone, gone.change(interactions=[(2, 4)]))
    graphs = Graphs.of(rings_and_stars(8), train=range(8))
    left = alter(graphs, uw.Change(correct={"labels": {graphs.num_nodes - 1: 0}}, forget=graphs.request([2]))).data
    for change in (
        left.change(labels={2: 1}),
        left.change(features={(2, 0): [0.0, 0.0, 1.0]}),
        left.change(edges=[(2, 0, 1)]),
    ):
        with pytest.raises(uw.RequestError, match=r"there|deleted"):
            alter(left, change)
    # An item that went is drawn for nobody, and nothing is drawn in its place.
    less = alter(data, uw.Change(add={"nodes": [{"type": "user", "edges": [12]}]}, forget=data.request(items=[4]))).data
    user = less.change(users=1, interactions=[(USERS + 1, i) for i in (0, 1, 2, 3, 5)])
    new = alter(less, user).data
    assert all(int(less.nodes_of("item")[4]) not in example[3:] for example in candidates(new))
    assert min(map(len, candidates(new))) < max(map(len, candidates(new)))


@pytest.mark.slow
def test_graphs_and_relations_are_followed_almost_as_if_retrained() -> None:
    graphs = rings_and_stars(64)
    data = Graphs.of(graphs[:60])
    model = uw.models.build("pooled-sign", 3, 2, forgettable=True, nodes=60)
    change = data.change(
        graphs=graphs[60:], labels={n: 1 - int(graphs[n].y) for n in (0, 3, 4)}, forget=data.request([7])
    )
    with tuned(polish={"evaluations": 240}):
        run = uw.train(model, data, forgettable=True, weight_decay=0.1)
        after, none, anew = (run.update(change, method) for method in ("gif", "none", "retrain"))
    shown = [log_probabilities(each.model, each.data)[anew.data.train_mask] for each in (anew, after, none)]
    everyone = torch.ones(len(shown[0]), dtype=torch.bool)
    assert (closed(gap(shown[0], shown[1], everyone), gap(shown[0], shown[2], everyone)) or 0) > 0.95
    assert "4 graphs" in str(after.receipts[-1])
    after.verify()
    hetero = Relations.of(literature(60))
    with tuned(polish={"evaluations": 240}):
        run = uw.train(heterogeneous(literature(60), hidden=64), hetero, forgettable=True, weight_decay=0.1)
    change = hetero.change(
        nodes={"author": [torch.ones(4)], "paper": [{"features": torch.ones(6), "label": 1}]},
        edges={WRITES: [(30, 60), (30, 5)]},
        labels={n: (int(hetero.y[n]) + 1) % 3 for n in hetero.train_mask.nonzero().flatten()[:3].tolist()},
    )
    after, none, anew = (run.update(change, method) for method in ("gif", "none", "retrain"))
    shown = [log_probabilities(each.model, each.data)[anew.data.train_mask] for each in (anew, after, none)]
    everyone = torch.ones(len(shown[0]), dtype=torch.bool)
    assert (closed(gap(shown[0], shown[1], everyone), gap(shown[0], shown[2], everyone)) or 0) > 0.9
    after.verify()


def test_a_graph_of_a_task_is_written_and_read(run: uw.Run, tmp_path: Path) -> None:
    change = joiners(run.data)
    after = run.update(change, out=tmp_path / "run", graph=tmp_path / "graph.pt")
    data = read_graph(tmp_path / "graph.pt")
    assert isinstance(data, Recommendation)
    assert data.spec == after.data.spec
    opened = uw.Run.open(tmp_path / "run", data=data)
    opened.verify()
    gone = opened.forget(data.request(interactions=[(60, 3)]))
    back = gone.update(gone.data.change(interactions=[(60, 3)]))
    again = back.forget(back.data.request(interactions=[(60, 3)]))
    assert again.receipts[-1].status == "done"
    assert torch.allclose(to_all_items(again), to_all_items(gone), atol=2e-2)
    again.verify()
    torch.save(
        {"task": "Chess", **{key: data[key] for key in ("x", "edge_index", "y", "train_mask")}}, tmp_path / "c.pt"
    )
    with pytest.raises(uw.errors.DataError, match="Chess"):
        read_graph(tmp_path / "c.pt")

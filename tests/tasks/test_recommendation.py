"""Recommenders: what is minimised, what a request takes, and whether the model has forgotten."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian
from torch_geometric.nn import LightGCN as PyGLightGCN

import unweave as uw
from tests.tasks.pairs import ITEMS, USERS, by_hand, interactions, objective, recommender
from unweave._core.tuning import TUNING, tuned
from unweave._core.tuning.steps import Dear
from unweave.curvature.products import GaussNewton, Hessian
from unweave.errors import DataError, ModelError, RequestError, UnweaveError
from unweave.graph.removal import remove
from unweave.models import LightGCN, build
from unweave.objective.objective import call
from unweave.objective.parameters import flatten, split
from unweave.tasks import Recommendation
from unweave.tasks.links import ABSENT
from unweave.tasks.ranking import ndcg_at, recall_at


def table_model(width: int = 2) -> LightGCN:
    torch.manual_seed(0)
    return LightGCN(USERS + ITEMS, width).double()


def candidates(task: Recommendation) -> dict[tuple[int, int], list[int]]:
    """The items drawn for each training interaction."""
    at, true = task.layout, task.true_tails()
    found = {}
    for number in task.train_mask[at.examples].nonzero().flatten().tolist():
        others = [int(t) - USERS for t in at.tails[number].tolist() if t >= 0 and t != int(true[number])]
        found[int(at.head[number]), int(true[number]) - USERS] = others
    return found


def trained_on(task: Recommendation) -> Tensor:
    return torch.tensor(sorted(candidates(task)))


@pytest.mark.parametrize("dense", [16, 0], ids=["one matrix", "pairs alone"])
def test_the_objective_is_what_it_says_and_so_are_its_derivatives(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.tasks.pairs.DENSE", dense)
    task, model = recommender(), table_model()
    assert (task.layout.sparse is None) == (dense > 0)
    here, theta = objective(model, task), flatten(model)

    def written(flat: Tensor) -> Tensor:
        parts = {
            f"model.{name}": piece for name, piece in split({"table.weight": model.table.weight.shape}, flat).items()
        }
        return functional_call(Wrapped(model, task), parts, ())

    point = here.at(theta)
    assert math.isclose(point.value, float(written(theta)), rel_tol=1e-12)
    torch.testing.assert_close(point.gradient(), grad(written)(theta))
    v = torch.randn(theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(Hessian(point)(v), hessian(written)(theta) @ v)
    matrix = torch.stack([GaussNewton(point)(e) for e in torch.eye(theta.numel(), dtype=torch.float64)])
    torch.testing.assert_close(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix)[0] > 0


class Wrapped(torch.nn.Module):
    """The objective by hand as a module, so that its table can be swapped."""

    def __init__(self, model: LightGCN, task: Recommendation) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self) -> Tensor:
        return by_hand(self.model, self.task, 0.01, trained_on(self.task), candidates(self.task))


def test_lightgcn_is_that_of_pyg_and_pygs_own_serves() -> None:
    task, own = recommender(), table_model(4)
    theirs = PyGLightGCN(USERS + ITEMS, 4, 2).double()
    theirs.embedding.weight.data.copy_(own.table.weight.data)
    torch.testing.assert_close(task.encode(own), theirs.get_embedding(task.layout.messages))
    torch.testing.assert_close(task.call(own), task.call(theirs))
    done = uw.unlearn(theirs, task, task.request(users=[3]), weight_decay=0.01)
    assert done.receipt.removed["rows"] == 1
    assert not done.model.embedding.weight[3].any()


@pytest.mark.parametrize("gone", [[(0, 0)], [(2, 0), (3, 0), (5, 0)]], ids=["one", "three"])
def test_deleting_an_interaction_draws_no_other_anew(gone: list[tuple[int, int]]) -> None:
    task, model = recommender(), table_model()
    left = remove(task, task.request(interactions=gone)).data
    keep = torch.tensor([tuple(pair) not in gone for pair in interactions().tolist()])
    fresh = recommender(interactions()[keep])
    assert candidates(left) == candidates(fresh)
    after, anew = objective(model, left), objective(model, fresh)
    theta = flatten(model)
    assert after.mass == anew.mass == task.train_mask.sum() - len(gone)
    assert math.isclose(after.evaluate(theta)[0], anew.evaluate(theta)[0], rel_tol=1e-12)
    torch.testing.assert_close(after.evaluate(theta)[1], anew.evaluate(theta)[1])


def test_a_deleted_user_takes_its_examples_and_a_deleted_item_its_place_among_candidates() -> None:
    task, model = recommender(), table_model()
    removal = remove(task, task.request(users=[2], items=[4]))
    left = removal.data
    assert isinstance(left, Recommendation)
    pairs = trained_on(left)
    assert 2 not in pairs[:, 0]
    assert 4 not in pairs[:, 1]
    assert all(4 not in drawn for drawn in candidates(left).values())
    lost = {pair: drawn for pair, drawn in candidates(task).items() if 2 not in pair[:1] and pair[1] != 4}
    assert candidates(left) == {pair: [i for i in drawn if i != 4] for pair, drawn in lost.items()}
    here, theta = objective(model, left), flatten(model)
    expected = float(by_hand(model, left, 0.01, pairs, candidates(left)).detach())
    assert math.isclose(here.evaluate(theta)[0], expected, rel_tol=1e-9)  # what is gone scores ABSENT, not −∞
    outputs = call(model, left)
    assert int((outputs == ABSENT).sum()) > 0
    assert torch.isfinite(left.log_probabilities(model)[:, :4]).all()
    assert torch.isinf(left.log_probabilities(model)[:, 4]).all()


def test_a_request_is_completed_once_and_in_any_form() -> None:
    task = recommender()
    by_pair = task.complete(task.request(interactions=[(1, 0)]))
    (example,) = by_pair.nodes
    assert by_pair.edges == ((1, USERS), (USERS, 1))
    assert task.complete(by_pair) == by_pair
    assert task.complete(uw.Request(nodes=[example])) == by_pair
    assert task.complete(uw.Request(edges=[(USERS, 1)])).nodes == by_pair.nodes
    everything = remove(task, task.request(users=[1])).data
    again = everything.complete(task.request(users=[1], id="twice"))
    assert again.id == "twice"
    assert again.nodes == (1,)


@pytest.mark.parametrize("deferred", [False, True], ids=["at once", "deferred"])
def test_rows_go_whatever_form_their_table_has(deferred: bool) -> None:
    task = recommender()

    class Two(torch.nn.Module):
        """A table for users and one for items, and a parameter without a module."""

        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = torch.nn.Embedding(USERS, 3), torch.nn.Embedding(ITEMS, 3)
            self.own = torch.nn.Parameter(torch.randn(USERS + ITEMS, 3))

        def encode(self, x: Tensor, edge_index: Tensor, rows: Tensor) -> Tensor:
            return torch.cat([self.users.weight, self.items.weight]).index_select(0, rows) + self.own[rows]

    torch.manual_seed(0)
    if deferred:
        run = uw.Run(table_model(), task, weight_decay=0.01).prepare()
        after = run.forget(task.request(users=[2], items=[4]), defer=True)
        tables = [after.model.table.weight]
        assert after.receipts[-1].removed["rows"] == 2
        after.verify()
    else:
        done = uw.unlearn(Rows(Two()).double(), task, task.request(users=[2], items=[4]), weight_decay=0.01)
        inner = done.model.inner
        assert not inner.users.weight[2].any()
        assert not inner.items.weight[4].any()
        assert inner.users.weight[3].any()
        tables = [inner.own]
        assert done.receipt.removed["rows"] == 4
    for table in tables:
        assert not table[[2, USERS + 4]].any()
        assert table[3].any()


class Rows(torch.nn.Module):
    """Calls a model of tables with the rows of the nodes."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def encode(self, rows: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner.encode(None, edge_index, rows)  # type: ignore[no-any-return, operator]


def test_a_receipt_names_the_table_that_doing_nothing_leaves() -> None:
    task, model = recommender(), table_model()
    request = task.request(users=[2])
    for method, named in (("none", True), ("gif", False)):
        done = uw.unlearn(model, task, request, method, weight_decay=0.01)
        assert bool(done.model.table.weight[2].any()) == named
        assert any(trace["where"] == "table.weight" for trace in done.receipt.remembers) == named


def test_an_interaction_held_out_can_be_forgotten() -> None:
    task = recommender()
    left = remove(task, task.request(interactions=[(0, 8)])).data
    assert int(left.test_mask.sum()) == int(task.test_mask.sum()) - 1
    assert int(left.train_mask.sum()) == int(task.train_mask.sum())


def test_random_requests_are_for_interactions() -> None:
    task = recommender()
    drawn = uw.draw("edges:0.3", task, seed=1)
    assert all(u < USERS <= v < USERS + ITEMS for u, v in drawn.edges)
    examples = task.complete(uw.draw("nodes:0.3", task, seed=1))
    assert len(examples.edges) == 2 * len(examples.nodes)


@pytest.mark.usefixtures("examined")
def test_a_recommender_forgets_as_if_retrained() -> None:
    draw = torch.Generator().manual_seed(0)
    tastes = torch.softmax(1.5 * torch.randn(60, 3, generator=draw) @ torch.randn(3, 40, generator=draw), dim=1)
    chosen = torch.multinomial(tastes, 12, generator=draw)
    pairs = torch.stack([torch.arange(60).repeat_interleave(12), chosen.flatten()], dim=1)
    task = Recommendation.of(pairs, users=60, items=40, negatives=8)
    model = build("lightgcn", task.num_features, 9, forgettable=True, nodes=int(task.train_mask.sum()))
    run = uw.train(model, task, forgettable=True, weight_decay=1e-3)
    assert run.metrics["agreement"] > 0.99
    assert {"test_recall@20", "test_ndcg@20", "val_recall@20"} <= run.metrics.keys()
    for request in (task.request(users=[5]), uw.draw("edges:0.05", task)):
        after, retrained = run.forget(request), run.forget(request, "retrain")
        target = retrained.data.log_probabilities(retrained.model)
        keep = torch.ones(60, dtype=torch.bool)
        keep[[n for n in request.nodes if n < 60]] = False

        def distance(other: Tensor, p: Tensor = target[keep], keep: Tensor = keep) -> float:
            return float(torch.where(torch.isfinite(p), p.exp() * (p - other[keep]), 0.0).sum(dim=1).mean())

        none, left = (distance(retrained.data.log_probabilities(m)) for m in (run.model, after.model))
        assert left < 0.05 * none
        assert abs(after.metrics["test_recall@20"] - retrained.metrics["test_recall@20"]) < 0.02
    assert run.prepared is not None
    with tuned(step={"settled": 1e-12, "pairs": (Dear(0, 0.04, 1, 1e-12),), "pays": 0.0}):  # however much is promised
        asked = [task.request(users=[5]), uw.draw("edges:0.05", task), task.request(interactions=[pairs[0].tolist()])]
        spent = [run.forget(request).receipts[-1] for request in asked]
    assert max(receipt.passes for receipt in spent) <= TUNING.step.most * run.prepared.whole
    assert all("of the passes of training" in receipt.details["ended"] for receipt in spent)
    assert "3 rows" not in str(after.receipts[-1])
    text = str(run.forget(task.request(users=[5, 6, 7])).receipts[-1])
    assert "3 users" in text
    assert "3 rows of embedding tables set to zero" in text


def test_who_feels_a_request_is_who_remains() -> None:
    task, model = recommender(), table_model()
    request = task.request(users=[2])
    found = uw.explain(model, task, request, weight_decay=0.01, top=50)
    assert found.changed
    assert not {each.node for each in found.changed} & set(task.complete(request).nodes)


def test_a_run_on_disk_opens_again(tmp_path: Any) -> None:
    task = recommender(val=0.2)
    run = uw.train(build("lightgcn", task.num_features, 4).double(), task, epochs=3)
    after = run.forget(task.request(users=[1]), "finetune")
    after.save(tmp_path / "run")
    opened = uw.Run.open(tmp_path / "run", data=recommender(val=0.2))
    torch.testing.assert_close(call(opened.model, opened.data), call(after.model, after.data))
    assert opened.verify().receipts[-1].removed["of type user"] == 1


def test_recall_and_ndcg_are_what_they_are_by_hand() -> None:
    hit = torch.tensor([[True, False, True], [False, False, False]])
    relevant = torch.tensor([4, 1])
    assert math.isclose(recall_at(3, hit, relevant), (2 / 4 + 0) / 2)
    best = sum(1 / math.log2(r + 1) for r in (1, 2, 3))
    assert math.isclose(ndcg_at(3, hit, relevant), ((1 + 1 / math.log2(4)) / best + 0) / 2)


def test_what_was_chosen_before_is_not_recommended() -> None:
    task, model = recommender(), table_model(3)
    scores = task.log_probabilities(model)
    ranks = []
    for user, item in ((0, 8), (1, 8)):
        known = [i for u, i in trained_on(task).tolist() if u == user]
        order = [i for i in scores[user].argsort(descending=True).tolist() if i not in known]
        ranks.append(order.index(item))
    assert task.scores(model)["test_recall@20"] == sum(rank < 20 for rank in ranks) / 2
    assert math.isclose(task.scores(model)["test_ndcg@20"], sum(1 / math.log2(r + 2) for r in ranks) / 2)


BAD_PAIRS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("no pairs", torch.zeros(0, 2, dtype=torch.long), {}, "at least one"),
    ("one column", torch.zeros(4, 1, dtype=torch.long), {}, r"\[n, 2\]"),
    ("an edge_index", torch.zeros(2, 5, dtype=torch.long), {}, r"\[n, 2\]"),
    ("fractions", torch.rand(4, 2), {}, "whole numbers"),
    ("truth values", torch.ones(4, 2, dtype=torch.bool), {}, "whole numbers"),
    ("below zero", torch.tensor([[0, -1]]), {}, "from 0 on"),
    ("too few users", torch.tensor([[7, 1]]), {"users": 5}, "at least 8"),
    ("too few items", torch.tensor([[1, 7]]), {"items": 5}, "at least 8"),
    ("validates all", interactions(), {"val": 1.0}, "below 0.9"),
    ("no negatives", interactions(), {"negatives": 0}, "above 0"),
    ("seed below zero", interactions(), {"seed": -1}, "at least 0"),
    ("nothing", None, {}, "whole numbers"),
    ("names", [["anna", "jazz"]], {}, "whole numbers"),
    ("ragged", [[1, 2], [3]], {}, "whole numbers"),
    ("too much held out", interactions(), {"val": 0.95}, "below 0.9"),
    ("one item", torch.tensor([[0, 0], [1, 0]]), {}, "at least two"),
    ("tested and trained", interactions(), {"test": interactions()[:1]}, "both to train and to test"),
]


@pytest.mark.parametrize(
    ("pairs", "options", "says"), [row[1:] for row in BAD_PAIRS], ids=[row[0] for row in BAD_PAIRS]
)
def test_interactions_that_make_no_sense_are_refused(pairs: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Recommendation.of(pairs, **options)


def _never(task: Recommendation) -> tuple[int, int]:
    """A pair that is no interaction, of training or test."""
    known = {*candidates(task), (0, 8), (1, 8)}
    return next((u, i) for u in range(USERS) for i in range(ITEMS) if (u, i) not in known)


BAD_REQUESTS: list[tuple[str, Any, type[UnweaveError], str]] = [
    ("unknown user", lambda t: t.request(users=[USERS]), RequestError, "user 12 is not there"),
    ("unknown item", lambda t: t.request(items=[ITEMS]), RequestError, "item 9 is not there"),
    ("user below zero", lambda t: t.request(users=[-1]), RequestError, "user -1 is not there"),
    ("a name", lambda t: t.request(users=["anna"]), RequestError, "'anna' is not a whole number"),
    ("a truth value", lambda t: t.request(users=[True]), RequestError, "True is not a whole number"),
    ("a fraction", lambda t: t.request(items=[1.0]), RequestError, "1.0 is not a whole number"),
    ("twice", lambda t: t.request(users=[1, 1]), RequestError, "1"),
    ("nothing", lambda t: t.request(), RequestError, "empty"),
    ("never chosen", lambda t: t.request(interactions=[_never(t)]), RequestError, "not in the graph"),
    ("a number", lambda t: t.request(users=2), RequestError, "list of numbers"),
    ("no pair", lambda t: t.request(interactions=[3]), RequestError, r"is not \(user, item\)"),
    ("three", lambda t: t.request(interactions=[(1, 2, 3)]), RequestError, r"is not \(user, item\)"),
    ("unknown in a pair", lambda t: t.request(interactions=[(0, ITEMS)]), RequestError, "item 9 is not there"),
    ("two users", lambda t: uw.Request(edges=[(0, 1)]), RequestError, "not in the graph"),
    ("edge of an example", lambda t: uw.Request(edges=[(0, USERS + ITEMS)]), RequestError, "example"),
    ("beyond the graph", lambda t: uw.Request(nodes=[10_000]), RequestError, "not in the graph"),
    ("features", lambda t: uw.Request(features={3: "all"}), RequestError, "none but their number"),
    ("everyone", lambda t: t.request(users=range(USERS)), RequestError, "every training node"),
]


@pytest.mark.parametrize(
    ("ask", "kind", "says"), [row[1:] for row in BAD_REQUESTS], ids=[row[0] for row in BAD_REQUESTS]
)
def test_requests_that_make_no_sense_are_refused(ask: Any, kind: type[UnweaveError], says: str) -> None:
    task, model = recommender(), table_model()
    before = flatten(model).clone()
    with pytest.raises(kind, match=says):
        uw.unlearn(model, task, ask(task), weight_decay=0.01)
    assert torch.equal(flatten(model), before)


def test_a_model_that_does_not_fit_is_refused() -> None:
    task = recommender()
    with pytest.raises(ModelError, match="embeddings of 5 nodes"):
        task.call(PyGLightGCN(5, 4, 2).double())
    with pytest.raises(ModelError, match="one embedding for each of 21 nodes"):
        task.call(Pooled())
    with pytest.raises(ModelError, match="leave that option out"):
        build("lightgcn", 21, 4, activation="tanh")


class Pooled(torch.nn.Module):
    """One embedding for all."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x.mean(dim=0, keepdim=True)

"""Whether every training would have ended at the same function."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from typer.testing import CliRunner

import unweave as uw
from tests.fixtures import ASKING
from unweave._core.tuning import TUNING, tuned
from unweave.cli.app import app
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.scores import gap, log_probabilities
from unweave.testing import small_graph
from unweave.training.agreement import Agreement, in_words, trainings
from unweave.training.fit import _chosen_decays, _decays, _Job

pytestmark = pytest.mark.usefixtures("part")
EMBEDDED = 1000


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    with tuned(polish={"evaluations": 60}):
        yield


@pytest.fixture(scope="module")
def data() -> Data:
    return uw.load("demo", seed=0)


def wide(data: Data, **options: object) -> nn.Module:
    nodes = int(data.train_mask.sum())
    return uw.models.build("gcn", data.num_features, data.num_classes, forgettable=True, nodes=nodes, **options)


HOW: dict[str, Any] = {"forgettable": True, "epochs": 10}
ENOUGH = {"evaluations": 120, "trainings": 1}
"""Gradients, on every processor; and one other training."""


@pytest.fixture(scope="module")
def one(data: Data) -> uw.Run:
    """A wide model that was examined."""
    with pytest.MonkeyPatch.context() as patch, tuned(polish=ENOUGH):
        for name, asks in ASKING.items():
            patch.setattr(f"unweave.training.agreement.{name}", asks)
        return uw.train(wide(data), data, weight_decay=3e-3, **HOW)


@pytest.mark.usefixtures("examined")
@pytest.mark.filterwarnings("ignore::unweave.UnweaveWarning")
def test_a_wide_model_has_one_minimum_and_a_narrow_one_with_hardly_any_decay_has_not(one: uw.Run, data: Data) -> None:
    many = uw.train(wide(data, hidden=3, activation="relu"), data, weight_decay=1e-5, **HOW)
    assert one.prepared is not None
    assert one.prepared.agreement == one.metrics["agreement"]
    assert one.metrics["agreement"] > 0.99
    assert many.metrics["agreement"] < TUNING.polish.agreement
    assert "would give the same" in in_words(one.metrics["agreement"])
    assert "widen it" in in_words(many.metrics["agreement"])
    after = one.forget(uw.draw(f"edges:{TUNING.polish.typical}", data))
    with tuned(polish=ENOUGH):
        other = uw.train(wide(data), after.data, weight_decay=3e-3, seed=1, examine=False, **HOW)
    assert "agreement" not in other.metrics
    everywhere, target = torch.ones(data.num_nodes, dtype=torch.bool), log_probabilities(other.model, after.data)
    before, followed = (gap(target, log_probabilities(run.model, after.data), everywhere) for run in (one, after))
    assert one.metrics["deletion_gap"] == pytest.approx(before, rel=1e-3), "the other one is what another seed gives"
    assert one.metrics["seed_gap"] == pytest.approx(followed, abs=0.01 * before), "what a request is short by"


def test_it_stands_in_the_run_and_in_every_receipt(one: uw.Run, data: Data, tmp_path: object) -> None:
    one.save(f"{tmp_path}/run")
    again = uw.Run.open(f"{tmp_path}/run")
    assert again.prepared is not None
    assert again.prepared.agreement == one.metrics["agreement"]
    shown = CliRunner().invoke(app, ["show", f"{tmp_path}/run"]).stdout
    assert "another training would give the same model" in shown
    after = again.forget(uw.draw("edges:0.02", data)).forget(uw.Request(labels=[int(data.train_mask.nonzero()[0])]))
    for receipt in after.receipts:
        assert receipt.details["agreement"] == one.metrics["agreement"]
        assert receipt.details["luck"] == one.metrics["seed_gap"]
        assert "where every training leads" in receipt.verdict


@pytest.mark.slow
@pytest.mark.usefixtures("examined")
def test_a_polish_asks_too_where_weights_can_be_drawn_anew(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.training.polish.FIRST_PHASE", 10)
    model = wide(data)
    uw.train(model, data, weight_decay=3e-3, epochs=10)
    with tuned(polish=ENOUGH):
        assert uw.polish(model, data, weight_decay=3e-3).prepared.agreement > 0.99
    assert uw.polish(model, data, weight_decay=3e-3, examine=False).prepared.agreement is None

    class Own(nn.Module):
        """A weight that nobody draws anew."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.scale = GCNConv(data.num_features, data.num_classes), nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.scale * self.conv(x, edge_index)  # type: ignore[no-any-return]

    assert uw.polish(Own(), data, weight_decay=3e-3, evaluations=20).prepared.agreement is None


@pytest.mark.filterwarnings("ignore:another training would not:unweave.UnweaveWarning")
def test_on_a_small_graph_several_trainings_are_asked_while_they_agree(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = list[tuple[int, int]](), iter([0.001, 0.004, 0.03, 1.0])

    def asks(objective: Objective, *, seed: int, deletion: int = 0, **_: object) -> Objective:
        asked.append((seed, deletion))
        return objective

    monkeypatch.setattr("unweave.training.agreement.another", asks)
    monkeypatch.setattr("unweave.training.agreement.agreement_of", lambda *_: Agreement(next(told), 1.0))
    with tuned(polish={"few": 4 * data.num_nodes}):
        run = uw.train(wide(data, hidden=8), data, weight_decay=3e-3, **HOW)
    assert asked == [(1, 0), (2, 1), (3, 2)], "the third was no longer within a hundredth, all in all"
    assert run.metrics["agreement"] == pytest.approx(1 - 0.035 / 3)
    assert run.metrics["seed_gap"] == pytest.approx(0.035 / 3)
    assert [trainings(nodes) for nodes in (10**6, TUNING.polish.few, TUNING.polish.few // 2, 1)] == [1, 1, 2, 5]


def test_decays_go_by_the_length_of_the_features(data: Data) -> None:
    long = data.clone()
    long.x = 10 * data.x
    model = wide(data)
    assert _decays(model, data)[0] == _decays(model, long)[0] == TUNING.polish.unit_decay
    raw = uw.models.GCN(data.num_features, data.num_classes)
    assert _decays(raw, long)[0] / _decays(raw, data)[0] == pytest.approx(10, rel=0.2)


def test_where_seeds_do_not_agree_a_larger_decay_that_is_nearly_as_good_is_taken(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(objective: Objective, *_: object, **__: object) -> Agreement:
        return Agreement(0.0 if float(objective.decay.max()) > 1e-3 else 1.0, 1.0)

    monkeypatch.setattr("unweave.training.fit._chosen_decays", lambda *_: [1e-4, 3e-3])
    monkeypatch.setattr("unweave.training.agreement.agreement_of", judged)
    model = wide(data, hidden=8)
    run = uw.train(model, data, **HOW)
    assert run.recipe is not None
    assert run.recipe.weight_decay == 3e-3
    assert run.model is model
    assert run.forget(uw.draw("edges:0.02", data)).receipts[0].details["agreement"] == 1


def test_where_no_decay_makes_seeds_agree_the_one_is_taken_with_which_they_differ_least(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {1e-4: 0.2, 1e-3: 0.05, 3e-3: 0.1}

    def judged(objective: Objective, *_: object, **__: object) -> Agreement:
        return Agreement(said.get(round(float(objective.decay.max()), 6), 0.5), 1.0)

    monkeypatch.setattr("unweave.training.fit._chosen_decays", lambda *_: list(said))
    monkeypatch.setattr("unweave.training.agreement.agreement_of", judged)
    run = uw.train(wide(data, hidden=8), data, **HOW)
    assert run.recipe is not None
    assert (run.recipe.weight_decay, run.metrics["agreement"]) == (1e-3, 0.95)


@pytest.mark.usefixtures("examined")
def test_a_model_that_a_deletion_does_not_change_is_compared_with_nothing(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unweave.training.agreement._distance", lambda *_, **__: 0.0)
    run = uw.train(wide(data, hidden=8), data, weight_decay=3e-3, **HOW)
    assert "agreement" not in run.metrics
    assert run.prepared is not None
    assert run.prepared.agreement is None


@pytest.mark.filterwarnings("ignore:another training would not:unweave.UnweaveWarning")
def test_where_no_chosen_decay_makes_seeds_agree_larger_ones_follow_while_validation_allows(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def judged(objective: Objective, *_: object, **__: object) -> Agreement:
        tried.append(round(float(objective.decay.max()), 6))
        return Agreement(0.5 / len(tried), 1.0)

    monkeypatch.setattr("unweave.training.fit._chosen_decays", lambda *_: [1e-3])
    monkeypatch.setattr("unweave.training.agreement.agreement_of", judged)
    run = uw.train(wide(data, hidden=8), data, **HOW)
    assert run.recipe is not None
    assert tried[:2] == [1e-3, 3e-3]
    assert len(tried) < 5  # 0.1 leaves nothing of the model, and validation sees it
    assert run.recipe.weight_decay == tried[-1], "one that validation refuses is not examined"


@pytest.mark.filterwarnings("ignore:another training would not:unweave.UnweaveWarning")
def test_without_validation_nodes_no_larger_decay_is_tried(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def judged(objective: Objective, *_: object, **__: object) -> Agreement:
        tried.append(float(objective.decay.max()))
        return Agreement(0.5, 1.0)

    unseen = data.clone()
    del unseen.val_mask
    monkeypatch.setattr("unweave.training.agreement.agreement_of", judged)
    uw.train(wide(data, hidden=8), unseen, **HOW)
    assert len(tried) == 1


def test_decays_are_tried_until_one_leaves_a_model_that_knows_something(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables with a row for every user need a thousandth of the decay that features need."""
    recipe = uw.Recipe(seed=0, epochs=20, lr=0.01, forgettable=True)
    monkeypatch.setattr("unweave.training.fit._decays", lambda *_: (1e3, 1e2, 10.0, 3.0, 3e-3, 1e-3, 3e-4))
    chosen = _chosen_decays(
        _Job(wide(data, hidden=8), data, as_loss(cross_entropy), call, (), False, None, None), recipe
    )
    assert chosen[0] <= 3e-3


def test_the_decay_with_the_lowest_validation_loss_comes_first_then_larger_ones_nearly_as_good(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, decays = uw.Recipe(seed=0, epochs=20, lr=0.01, forgettable=True), (1e2, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-6)
    monkeypatch.setattr("unweave.training.fit._decays", lambda *_: decays)
    model, tried = wide(data, hidden=8), {}
    predict = Objective.predict

    def recorded(objective: Objective, *given: Any, **how: Any) -> torch.Tensor:
        outputs = predict(objective, *given, **how)
        seen, labels = outputs[data.val_mask], data.y[data.val_mask]
        right = (seen.argmax(dim=1) == labels).double()
        tried[round(float(objective.decay.max()), 9)] = (float(cross_entropy(seen, labels).mean()), right)
        return outputs

    monkeypatch.setattr(Objective, "predict", recorded)
    chosen = _chosen_decays(_Job(model, data, as_loss(cross_entropy), call, (), False, None, None), recipe)
    losses = [loss for loss, _ in tried.values()]
    best = list(tried)[losses.index(min(losses))]
    assert chosen[0] == best
    assert losses[-1] > min(losses), "it ends where a smaller one is no better"

    def nearly(right: torch.Tensor, other: torch.Tensor) -> bool:
        return float((other - right).mean()) <= max(0.01, 2 * float((other - right).abs().sum()) ** 0.5 / len(right))

    larger = sorted(decay for decay in tried if decay > best)
    assert 1e2 in larger
    assert chosen[1:] == [decay for decay in larger[:-1] if nearly(tried[decay][1], tried[best][1])]


def test_where_another_training_agrees_requests_restart_whatever_is_left_to_gain() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3), data, epochs=30, weight_decay=1e-2).prepare()
    assert run.prepared is not None
    assert not run.prepared.at_minimum
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    for agreement, restarts in ((0.95, True), (0.5, False), (None, False)):
        there = run.replace(prepared=run.prepared.examined(agreement, 100.0))
        assert there.prepared is not None
        assert there.prepared.at_minimum == restarts
        assert (there.forget(request).receipts[-1].details.get("objective") == "L'") == restarts

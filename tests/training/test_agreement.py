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
from unweave._core.tuning import TUNING, tuned
from unweave.cli.app import app
from unweave.objective.objective import Objective
from unweave.objective.scores import gap, log_probabilities
from unweave.training.agreement import Agreement, agreement_of, in_words
from unweave.training.fit import _decays


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


@pytest.fixture(scope="module")
def one(data: Data) -> uw.Run:
    """A wide model that was examined."""
    with pytest.MonkeyPatch.context() as patch, tuned(polish={"evaluations": 60}):
        patch.setattr("unweave.training.fit.agreement_of", agreement_of)
        return uw.train(wide(data), data, weight_decay=3e-3, **HOW)


@pytest.mark.usefixtures("examined")
def test_a_wide_model_has_one_minimum_and_a_narrow_one_with_hardly_any_decay_has_not(one: uw.Run, data: Data) -> None:
    many = uw.train(wide(data, hidden=3, activation="relu"), data, weight_decay=1e-5, **HOW)
    assert one.prepared is not None
    assert one.prepared.agreement == one.metrics["agreement"]
    assert one.metrics["agreement"] > 0.99
    assert many.metrics["agreement"] < TUNING.polish.agreement
    assert "would give the same" in in_words(one.metrics["agreement"])
    assert "widen it" in in_words(many.metrics["agreement"])
    other = uw.train(wide(data), data, weight_decay=3e-3, seed=1, examine=False, **HOW)
    everywhere = torch.ones(data.num_nodes, dtype=torch.bool)
    apart = gap(log_probabilities(one.model, data), log_probabilities(other.model, data), everywhere)
    assert one.metrics["seed_gap"] == pytest.approx(apart, rel=1e-3), "the other one is what another seed gives"
    assert "agreement" not in other.metrics


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
        assert "where every training leads" in receipt.verdict


@pytest.mark.usefixtures("examined")
def test_a_polish_asks_too_where_weights_can_be_drawn_anew(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.training.polish.FIRST_PHASE", 10)
    model = wide(data)
    uw.train(model, data, weight_decay=3e-3, epochs=10)
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
    monkeypatch.setattr("unweave.training.fit.agreement_of", judged)
    model = wide(data, hidden=8)
    run = uw.train(model, data, **HOW)
    assert run.recipe is not None
    assert run.recipe.weight_decay == 3e-3
    assert run.model is model
    assert run.forget(uw.draw("edges:0.02", data)).receipts[0].details["agreement"] == 1

"""Training that ends when validation says enough, and can be repeated."""

import pytest
import torch

import unweave as uw
from unweave._core.tuning import TUNING, tuned
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

pytestmark = pytest.mark.usefixtures("part")


def test_it_ends_where_validation_was_best_and_is_a_training_of_so_many_epochs() -> None:
    data = uw.load("demo", seed=0)
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, seed=3)
    assert run.recipe is not None
    assert run.metrics["training_ended"] == 1
    assert run.metrics["epochs_looked_at"] - run.recipe.epochs >= TUNING.ending.patience
    model = uw.models.GCN(data.num_features, data.num_classes)
    again = uw.train(model, data, seed=3, epochs=run.recipe.epochs)
    assert torch.equal(flatten(again.model), flatten(run.model))
    for epochs in (5, 200):
        other = uw.train(model, data, seed=3, epochs=epochs)
        assert run.metrics["val_f1"] >= other.metrics["val_f1"]
    same = uw.train(model, data, seed=3, checkpoints=(0.5,))
    assert torch.equal(flatten(same.model), flatten(run.model))
    assert [state.epoch for state in same.checkpoints] == [run.recipe.epochs - round(0.5 * run.recipe.epochs)]
    assert torch.equal(flatten(run.forget(uw.draw("edges:0.01", data), "retrain").model), flatten(
        uw.unlearn(run.model, data, uw.draw("edges:0.01", data), "retrain", weight_decay=1e-4, recipe=run.recipe,
                   seed=3).model
    ))  # fmt: skip


def test_one_that_still_becomes_better_is_cut_off_and_says_so() -> None:
    data = uw.load("demo", seed=0)
    with tuned(ending={"most": 20}):
        run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, lr=1e-3)
    assert run.metrics["training_ended"] == 0
    assert run.metrics["epochs_looked_at"] == 20


def test_it_does_not_end_while_the_model_knows_nothing() -> None:
    """Outputs that hardly depend on anything are the most frequent class for longer than patience lasts."""
    data = uw.load("demo", seed=0)

    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(data.num_features, 16), torch.nn.Linear(16, data.num_classes)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.last(self.first(x / 150) ** 3)
            return out

    with tuned(ending={"patience": 20, "most": 400}):
        run = uw.train(Slow(), data, seed=0)
    assert run.metrics["val_f1"] > 0.5


@pytest.mark.parametrize("what", ["no mask", "no node", "no label"])
def test_without_validation_it_is_a_hundred_epochs(what: str) -> None:
    data = small_graph()
    if what == "no mask":
        del data.val_mask
    elif what == "no node":
        data.val_mask[:] = False
    else:
        data.y[data.val_mask] = -1
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data)
    assert run.recipe is not None
    assert run.recipe.epochs == 100
    assert "training_ended" not in run.metrics


def test_a_regression_ends_by_its_loss() -> None:
    data = small_graph()
    data.y = data.x[:, :1] * 2
    with tuned(ending={"most": 1000}):
        run = uw.train(uw.models.GCN(8, 1, hidden=8), data, loss=uw.losses.squared_error)
    assert run.metrics["training_ended"] == 1


class Fragile(torch.nn.Module):
    """Dies of a long step after it has learnt something, as a model of units that are zero for good does."""

    def __init__(self, bears: float) -> None:
        super().__init__()
        self.bears, self.linear = bears, torch.nn.Linear(8, 3)
        self.register_buffer("before", torch.zeros(3, 8))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("alive", torch.ones(()))

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()
        self.steps.zero_()
        self.alive.fill_(1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        if self.training:
            weight = self.linear.weight.detach()
            if self.steps > 40 and (weight - self.before).abs().max() > self.bears:
                self.alive.zero_()
            self.before.copy_(weight)
            self.steps += 1
        out: torch.Tensor = self.linear(x) * self.alive
        return out


def test_a_training_that_loses_what_it_learnt_takes_shorter_steps() -> None:
    data = small_graph()
    steady = uw.train(Fragile(1.0), data)
    assert steady.recipe is not None
    assert steady.recipe.lr == 0.01
    run = uw.train(Fragile(0.006), data)
    assert run.recipe is not None
    assert run.recipe.lr == pytest.approx(0.01 / 3)
    assert "training_lost" not in run.metrics
    again = uw.train(Fragile(0.006), data, lr=run.recipe.lr, epochs=run.recipe.epochs)
    assert torch.equal(flatten(again.model), flatten(run.model)), "the recipe says how it was trained"
    with pytest.warns(uw.UnweaveWarning, match="lost half and more of what it had learnt.* the one from before"):
        lost = uw.train(Fragile(0.0), data)
    assert lost.metrics["training_lost"] == 1
    assert lost.metrics["val_f1"] > float(data.y[data.val_mask].bincount().max() / data.val_mask.sum())
    assert lost.model.alive == 1, "from before"


def test_a_comparison_trains_with_the_steps_that_serve() -> None:
    found = uw.compare(lambda _: small_graph(), lambda *_: Fragile(0.006), "nodes:0.05", methods=("none",), seeds=1)
    assert found.config["lr"] == pytest.approx(0.01 / 3)
    alive = uw.compare(
        lambda _: small_graph(), lambda *_: Fragile(1.0), "nodes:0.05", methods=("none",), seeds=1, lr=0.01 / 3,
        epochs=found.config["epochs"],
    )  # fmt: skip
    f1 = [
        {row["method"]: row["f1_mean"] for row in made.rows if row["method"] != "finetune"} for made in (found, alive)
    ]
    assert f1[0] == f1[1]


def test_a_loss_that_never_got_below_chance_is_not_lost() -> None:
    data = small_graph()
    data.x *= 1000
    with pytest.warns(uw.UnweaveWarning, match="rows of data.x are so long"):
        run = uw.train(uw.models.GCN(8, 3, hidden=4), data)
    assert run.recipe is not None
    assert run.recipe.lr == 0.01
    assert "training_lost" not in run.metrics

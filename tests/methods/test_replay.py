"""Replay: the end of training done again, to the bit; what still remembers is said."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from tests.training.test_checkpoints import MODELS, builtin
from unweave.graph.removal import remove
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.adam import reinitialise, seeded
from unweave.training.checkpoints import write_checkpoints
from unweave.training.polish import polish_objective

EPOCHS = 40


def train(name: str = "gcn", data: Data | None = None, **options: Any) -> uw.Run:
    options = {"seed": 3, "epochs": EPOCHS, "weight_decay": 1e-3, "checkpoints": (0.05, 0.2, 0.5), **options}
    return uw.train(MODELS[name](), small_graph() if data is None else data, **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", MODELS)
def test_from_the_start_it_is_retraining(name: str) -> None:
    run = train(name)
    request = uw.draw("edges:0.1,nodes:0.1", run.data)
    replayed, retrained = run.forget(request, "replay", share=1), run.forget(request, "retrain")
    assert same(replayed.model, retrained.model)
    assert not same(replayed.model, run.model)
    assert write_checkpoints(replayed.checkpoints) == write_checkpoints(train(name, replayed.data).checkpoints)
    receipt = replayed.receipts[-1]
    assert "this is the retrained model itself" in str(receipt)
    assert not receipt.warnings
    assert receipt.passes == retrained.receipts[-1].passes


def test_forgettable_models_are_polished_again() -> None:
    run = train(weight_decay=1e-2, forgettable=True, checkpoints=(0.25,))
    request = uw.draw("edges:0.1", run.data)
    whole, part, retrained = (
        run.forget(request, name, **how) for name, how in (("replay", {"share": 1}), ("replay", {}), ("retrain", {}))
    )
    assert same(whole.model, retrained.model)
    model = MODELS["gcn"]()
    trainer = builtin(model, run.recipe)
    with seeded(99, run.data.x.device):
        trainer(model, part.data, run.checkpoints[0], EPOCHS)
    objective = trainer.objective.anew(model, part.data)
    spent = polish_objective(objective)
    assert same(part.model, model)
    receipt, nothing = part.receipts[-1], run.forget(request, "none").receipts[-1]
    assert receipt.details["polished"]
    assert receipt.passes - nothing.passes == 2 * 10 + spent["passes"]
    assert whole.receipts[-1].passes == retrained.receipts[-1].passes


def by_hand(*stages: tuple[Data, int]) -> nn.Module:
    """Adam over one graph after the other, written out with torch alone."""
    model = MODELS["gcn"]()
    torch.manual_seed(3)
    reinitialise(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    model.train()
    for data, epochs in stages:
        for _ in range(epochs):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
            torch.autograd.backward(loss)
            optimiser.step()
    return model


def test_it_is_training_that_goes_on_on_another_graph() -> None:
    run = train()
    assert same(run.model, by_hand((run.data, EPOCHS)))
    request = uw.draw("edges:0.1,nodes:0.1", run.data)
    left = remove(run.data, request).data
    for share, at in ((0.05, 38), (0.06, 38), (0.1, 32), (0.2, 32), (0.5, 20)):
        replayed = run.forget(request, "replay", share=share)
        assert same(replayed.model, by_hand((run.data, at), (left, EPOCHS - at))), share
        assert replayed.receipts[-1].details | {"lr": 0} == {
            "resumed_at": at, "epochs": EPOCHS - at, "of": EPOCHS, "lr": 0,
        }  # fmt: skip


def test_a_stream_of_requests() -> None:
    """gif leaves the checkpoints as they are, replay those before it; each receipt says what still remembers."""
    run = train()
    graphs = [run.data]
    once = run.forget(uw.draw("edges:0.1", run.data), "gif")
    graphs.append(once.data)
    assert once.checkpoints == run.checkpoints
    assert not any("checkpoint" in warning for warning in once.receipts[-1].warnings)
    assert "Remembers  the checkpoints of epoch 20, 32, 38 (checkpoints.safetensors" in str(once.receipts[-1])

    twice = once.forget(uw.draw("nodes:0.1", once.data, seed=1), "replay", share=0.2)
    graphs.append(twice.data)
    assert same(twice.model, by_hand((graphs[0], 32), (graphs[2], 8)))
    assert [c.epoch for c in twice.checkpoints] == [20, 32, 38]
    assert twice.checkpoints[0] == run.checkpoints[0]
    assert torch.equal(*(r.checkpoints[1].model["conv1.bias"] for r in (twice, run)))
    (warning,) = twice.receipts[-1].warnings
    assert "checkpoint of epoch 32 of 40" in warning
    assert "whatever others removed since" in warning
    assert "Remembers  the checkpoints of epoch 20, 32, 38 (" in str(twice.receipts[-1])
    assert "the 32 before them had seen it" in str(twice.receipts[-1])

    thrice = twice.forget(uw.draw("edges:0.1", twice.data, seed=2), "replay", share=0.05)
    assert same(thrice.model, by_hand((graphs[0], 32), (graphs[2], 6), (thrice.data, 2)))

    anew = thrice.forget(uw.draw("edges:0.1", thrice.data, seed=3), "replay", share=1)
    assert same(anew.model, by_hand((anew.data, EPOCHS)))
    assert not anew.receipts[-1].warnings
    assert "Rewritten  the checkpoints of epoch 20, 32, 38 (" in str(anew.receipts[-1])
    last = anew.forget(uw.draw("edges:0.1", anew.data, seed=4), "replay", share=0.2)
    assert same(last.model, by_hand((anew.data, 32), (last.data, 8)))


def test_retraining_leaves_no_checkpoint_that_remembers() -> None:
    run = train()
    done = run.forget(uw.draw("edges:0.1", run.data), "retrain")
    assert not done.receipts[-1].warnings
    assert "Rewritten  the checkpoints of epoch 20, 32, 38 (" in str(done.receipts[-1])
    last = done.forget(uw.draw("edges:0.1", done.data, seed=4), "replay", share=0.2)
    assert same(last.model, by_hand((done.data, 32), (last.data, 8)))


def test_a_deferred_request_keeps_the_checkpoints_and_says_so() -> None:
    run = train().prepare()
    done = run.forget(uw.draw("edges:0.05", run.data), defer=True)
    assert done.checkpoints == run.checkpoints
    assert "the checkpoints of epoch 20, 32, 38 (" in str(done.receipts[-1])
    replayed = done.forget(uw.draw("nodes:0.1", done.data), "replay", share=0.2)
    assert same(replayed.model, by_hand((run.data, 32), (replayed.data, 8)))


def test_passes_are_those_of_the_epochs() -> None:
    run = train()
    request = uw.draw("edges:0.1", run.data)
    nothing, replayed = (run.forget(request, name).receipts[-1].passes for name in ("none", "replay"))
    assert replayed - nothing == 2 * (8 + 2), "and the gradients at the states of epoch 32 and 38, which are new"


def test_one_weight_decay_for_each_module() -> None:
    """What the library is given by hand goes by the optimiser's own groups."""
    data, decay = small_graph(), {"conv1": 1e-2}
    model = MODELS["gcn"]()

    def loop(model: uw.models.GCN, data: Data, start: uw.Checkpoint | None = None, until: int = 30) -> uw.Checkpoint:
        groups = [
            {"params": model.conv1.parameters(), "weight_decay": 1e-2},
            {"params": model.conv2.parameters(), "weight_decay": 0.0},
        ]
        return descend(model, data, torch.optim.Adam(groups, lr=0.01), start, until)

    torch.manual_seed(0)
    half = loop(model, data, None, 15)
    loop(model, data, half)
    request = uw.draw("edges:0.1", data)
    given: dict[str, Any] = {"weight_decay": decay, "checkpoints": [half], "epochs": 30, "share": 0.5}
    own = uw.unlearn(model, data, request, "replay", trainer=loop, **given)
    built_in = uw.unlearn(model, data, request, "replay", lr=0.01, **given)
    torch.testing.assert_close(flatten(built_in.model), flatten(own.model))
    with pytest.raises(uw.ModelError, match="does not fit this Adam"):
        uw.unlearn(model, data, request, "replay", lr=0.01, **given | {"weight_decay": 1e-2})


def descend(
    model: nn.Module, data: Data, optimiser: torch.optim.Optimizer, start: uw.Checkpoint | None, until: int
) -> uw.Checkpoint:
    """The body of a loop of one's own, with a schedule beside the optimiser where it is SGD."""
    parts: list[Any] = [optimiser]
    if isinstance(optimiser, torch.optim.SGD):
        parts.append(torch.optim.lr_scheduler.StepLR(optimiser, step_size=4, gamma=0.7))
    if start is None:
        reinitialise(model)
    else:
        start.restore(model, *parts)
    model.train()
    for _ in range(0 if start is None else start.epoch, until):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        torch.autograd.backward(loss)
        for part in parts:
            part.step()
    return uw.Checkpoint.take(until, model, *parts)


def sgd(model: nn.Module, data: Data, start: uw.Checkpoint | None = None, until: int = 20) -> uw.Checkpoint:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    return descend(model, data, optimiser, start, until)


@pytest.fixture
def own() -> uw.Run:
    data, model = small_graph(), MODELS["normed"]()
    torch.manual_seed(5)
    first = sgd(model, data, until=10)
    second = sgd(model, data, first, 16)
    sgd(model, data, second)
    recipe = uw.Recipe(seed=5, epochs=20, weight_decay=1e-3)
    return uw.Run(model.eval(), data, recipe=recipe, checkpoints=(second, first))


def test_a_loop_of_ones_own_takes_part(own: uw.Run) -> None:
    request = uw.draw("edges:0.1,nodes:0.1", own.data)
    whole = own.forget(request, "replay", share=1, trainer=sgd)
    assert same(whole.model, own.forget(request, "retrain", trainer=sgd).model)
    assert [c.epoch for c in whole.checkpoints] == [10, 16]
    half = own.forget(request, "replay", share=0.5, trainer=sgd)
    model = MODELS["normed"]()
    sgd(model, half.data, own.checkpoints[1])
    assert same(half.model, model)
    receipt = half.receipts[-1]
    assert receipt.details == {"resumed_at": 10, "epochs": 10, "of": 20, "trainer": "sgd"}
    assert receipt.passes - own.forget(request, "none").receipts[-1].passes == pytest.approx(20, abs=1)


def test_after_retraining_there_are_checkpoints_as_before(own: uw.Run) -> None:
    run = train(checkpoints=(0.1, 0.5))
    request, later = uw.draw("edges:0.1", run.data), uw.draw("nodes:0.1", run.data, seed=1)
    without = run.replace(checkpoints=()).forget(request, "retrain")
    kept, other = run.forget(request, "retrain"), own.forget(request, "retrain", trainer=sgd)
    assert same(kept.model, without.model), "to the bit, with a stop or without"
    assert without.checkpoints == ()
    assert [c.epoch for c in kept.checkpoints] == [c.epoch for c in run.checkpoints]
    assert [c.epoch for c in other.checkpoints] == [10, 16]
    model = MODELS["normed"]()
    torch.manual_seed(5)
    sgd(model, other.data)
    assert same(other.model, model)
    climbed = own.forget(request, "auto", at_least=1.0, trainer=sgd)
    assert climbed.receipts[-1].details["rung"] == "retrain"
    for state, trainer in ((kept, None), (other, sgd), (climbed, sgd)):
        again = state.forget(later, "replay", share=0.5, trainer=trainer)
        assert again.receipts[-1].details["resumed_at"] == state.checkpoints[0].epoch


def test_states_that_replay_could_not_go_on_with_are_not_kept(own: uw.Run) -> None:
    run = train(checkpoints=(0.5,))
    request = uw.draw("edges:0.1", run.data)

    def no_defaults(model: nn.Module, data: Data, state: uw.Checkpoint | None, stop: int) -> uw.Checkpoint:
        return sgd(model, data, state, stop)

    for options in ({"epochs": 30}, {"lr": 0.1}, {"disturbed": 0.001}):
        assert run.forget(request, "retrain", **options).checkpoints == ()
    plain = own.forget(request, "retrain", trainer=lambda model, data, lr=0.2: sgd(model, data))
    shorter = own.forget(request, "retrain", trainer=lambda model, data, start=None, until=18: sgd(model, data))
    needed = own.forget(request, "retrain", trainer=no_defaults)
    assert plain.checkpoints == shorter.checkpoints == ()
    assert [c.epoch for c in needed.checkpoints] == [10, 16]
    assert same(plain.model, needed.model)


def test_a_first_state_of_ones_own_is_the_start() -> None:
    """Where no seed tells how training began, the state of epoch 0 does."""
    data, model = small_graph(), MODELS["gcn"]()
    torch.manual_seed(1234)
    torch.rand(7)  # no seed leads here
    reinitialise(model)
    begin = uw.Checkpoint.take(0, model, *_sgd_parts(model))
    sgd(model, data, begin)
    request = uw.draw("edges:0.1", data)
    done = uw.unlearn(
        model, data, request, "replay", share=1, weight_decay=1e-3, epochs=20, trainer=sgd, checkpoints=[begin]
    )
    again = MODELS["gcn"]()
    sgd(again, done.data, begin)
    assert same(done.model, again)
    assert "the retrained model itself" in str(done.receipt)
    assert not done.receipt.warnings


def _sgd_parts(model: nn.Module) -> list[Any]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    return [optimiser, torch.optim.lr_scheduler.StepLR(optimiser, step_size=4, gamma=0.7)]


def _forgetful(model: nn.Module, data: Data, start: uw.Checkpoint | None = None, until: int = 20) -> uw.Checkpoint:
    return uw.Checkpoint.take(until, model)


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        (_forgetful, "must restore the state it is given"),
        (lambda *_: None, "returned NoneType"),
        (lambda model, data, start, until: sgd(model, data, start, 20), "until epoch 16 and returned that of epoch 20"),
        ("sgd", "import path"),
        (3, "trainer must be a function"),
        (None, "taken with SGD, StepLR, .* pass the trainer="),
    ],
)
def test_a_trainer_that_does_not_is_refused(own: uw.Run, trainer: Callable[..., Any], says: str) -> None:
    state = torch.random.get_rng_state()
    with pytest.raises(uw.UnweaveError, match=says):
        own.forget(uw.draw("edges:0.1", own.data), "replay", share=0.5, trainer=trainer)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_cannot_be_replayed_is_refused() -> None:
    run = train(checkpoints=(0.1, 0.2))
    request = uw.draw("edges:0.1", run.data)
    for share in (0, -0.1, 1.01, float("nan"), "all", None):
        with pytest.raises(uw.MethodError, match="share must be above 0 and at most 1"):
            run.forget(request, "replay", share=share)
    with pytest.raises(uw.MethodError, match=r"last 0.5 of 40 epochs.*32 \(share=0.2\), 36 \(share=0.1\)"):
        run.forget(request, "replay", share=0.5)
    with pytest.raises(uw.MethodError, match="epochs must be a whole number"):
        run.forget(request, "replay", epochs=40.5)
    with pytest.raises(uw.MethodError, match="checkpoint of epoch 36, but training has epochs=36"):
        run.forget(request, "replay", epochs=36)
    with pytest.raises(uw.MethodError, match=r"train with checkpoints=.*--checkpoints"):
        run.replace(checkpoints=()).forget(request, "replay")
    with pytest.raises(uw.MethodError, match=r"made with .learning rate, weight decay"):
        run.forget(request, "replay", lr=0.1)
    with pytest.raises(uw.MethodError, match="same epoch"):
        run.forget(request, "replay", checkpoints=run.checkpoints * 2)
    for wrong in (3, ["a"], run.checkpoints[0]):
        with pytest.raises(uw.MethodError, match=r"sequence of unweave\.Checkpoint"):
            run.forget(request, "replay", checkpoints=wrong)
    with pytest.raises(uw.ModelError, match="that of another model"):
        uw.unlearn(
            uw.models.GCN(8, 3, hidden=5), run.data, request, "replay",
            weight_decay=1e-3, recipe=run.recipe, checkpoints=run.checkpoints,
        )  # fmt: skip

"""A training of one's own: either form serves wherever it can, and nothing is trained by a recipe nobody gave."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from unweave.objective.parameters import flatten
from unweave.testing import small_graph
from unweave.training.adam import reinitialise
from unweave.training.trainer import as_trainer


def descend(model: nn.Module, data: Data, optimiser: torch.optim.Optimizer, epochs: int) -> None:
    for _ in range(epochs):
        optimiser.zero_grad()
        outputs = model.train()(data.x, data.edge_index)[data.train_mask]
        nn.functional.cross_entropy(outputs, data.y[data.train_mask]).backward()
        optimiser.step()


def short(model: nn.Module, data: Data) -> None:
    """The form of two arguments."""
    reinitialise(model)
    descend(model, data, torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-3), 6)


def told(model: nn.Module, data: Data, start: uw.Checkpoint | None, until: int) -> uw.Checkpoint:
    """The form of four."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-3)
    if start is None:
        reinitialise(model)
    else:
        start.restore(model, optimiser)
    descend(model, data, optimiser, until - (0 if start is None else start.epoch))
    return uw.Checkpoint.take(until, model, optimiser)


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, Data]:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4, dropout=0.0)
    short(model, data)
    return model.eval(), data


def test_a_spectral_norm_follows_weights_that_are_drawn_anew() -> None:
    """It looks at weights while they are erased; its vectors became NaN, and stayed so where drawing was refused."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = spectral_norm(nn.Linear(8, 16)), GCNConv(16, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.last(self.first(x).tanh(), edge_index)  # type: ignore[no-any-return]

    class Own(Normed):
        def reset_parameters(self) -> None:
            nn.init.normal_(self.first.parametrizations.weight.original, std=0.3)

    model = Normed()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(uw.ModelError, match="not drawn anew"):
        reinitialise(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.first.training
    own = Own()
    reinitialise(own)
    largest = torch.linalg.matrix_norm(own.eval().first.weight.detach(), 2)
    assert float(largest) == pytest.approx(1, abs=0.05)
    run = uw.train(own, small_graph(), epochs=5, weight_decay=1e-2)
    assert run.forget(uw.Request(nodes=[2])).receipts[-1].grade in ("influence", "doubtful", "at a minimum")


RECIPE = uw.Recipe(epochs=6, weight_decay=1e-3)


@pytest.mark.parametrize("method", ["retrain", "finetune", "replay", "eraser-blpa"])
def test_what_trains_refuses_before_any_work_where_nobody_said_how(
    trained: tuple[nn.Module, Data], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recipe is invented, and no graph is looked at."""
    monkeypatch.setattr("unweave.unlearning.pose_for", lambda *a, **k: pytest.fail("it began to work"))
    with pytest.raises(uw.MethodError, match=r"nobody said.*recipe="):
        uw.unlearn(*trained, uw.draw("edges:0.1", trained[1]), method, weight_decay=1e-3)


def test_a_rehearsal_and_a_calibration_refuse_as_well(trained: tuple[nn.Module, Data]) -> None:
    run = uw.Run(*trained, weight_decay=1e-3)
    for work in (run.rehearse, run.calibrate):
        with pytest.raises(uw.MethodError, match="nobody said"):
            work()


@pytest.mark.parametrize("trainer", [short, told, f"{__name__}:short"])
def test_either_form_retrains_rehearses_and_is_the_last_rung(trained: tuple[nn.Module, Data], trainer: Any) -> None:
    model, data = trained
    run = uw.Run(model, data, weight_decay=1e-3, trainer=trainer, recipe=RECIPE)
    request = uw.draw("edges:0.1", data)
    done = run.forget(request, "retrain")
    again = uw.models.GCN(8, 3, hidden=4, dropout=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        short(again, done.data)
    assert torch.equal(flatten(done.model), flatten(again))
    assert torch.equal(flatten(run.forget(request, "auto", at_least=1.0).model), flatten(again))
    assert run.rehearse("edges:0.1").gap_closed is not None


def test_a_trainer_alone_is_enough_to_climb_to_it(trained: tuple[nn.Module, Data]) -> None:
    run = uw.Run(*trained, weight_decay=1e-3, trainer=short)
    done = run.forget(uw.draw("edges:0.1", run.data), "auto", at_least=1.0)
    assert done.receipts[-1].details["rung"] == "retrain"
    usual = run.forget(uw.draw("edges:0.1", run.data), "auto")
    assert usual.receipts[-1].details["rung"] != "retrain"


def test_what_needs_states_says_so(trained: tuple[nn.Module, Data]) -> None:
    run = uw.Run(*trained, weight_decay=1e-3, trainer=short, recipe=RECIPE)
    for method in ("replay", "retrace"):
        with pytest.raises(uw.MethodError, match=r"goes on from a state .* takes \(model, data\) alone"):
            run.forget(uw.draw("edges:0.1", run.data), method)


def test_one_that_has_to_be_told_when_to_stop_says_so(trained: tuple[nn.Module, Data]) -> None:
    with pytest.raises(uw.MethodError, match="how many epochs"):
        uw.unlearn(*trained, uw.draw("edges:0.1", trained[1]), "retrain", weight_decay=1e-3, trainer=told)


def with_default(model: nn.Module, data: Data, start: Any = None, until: int = 6) -> None: ...


def with_options(model: nn.Module, data: Data, lr: float = 0.1, epochs: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("function", "whole", "states", "until"),
    [
        (short, True, False, None),
        (told, False, True, None),
        (with_default, True, True, 6),
        (with_options, True, False, None),
        (lambda *arguments: None, True, True, None),
        (max, True, False, None),
    ],
)
def test_the_form_is_known_by_the_arguments(
    function: Callable[..., Any], whole: bool, states: bool, until: int | None
) -> None:
    found = as_trainer(function)
    assert (found.whole, found.states, found.until) == (whole, states, until)


@pytest.mark.parametrize("wrong", [lambda model: None, lambda model, data, start: None, 3, "nowhere.to:be_found"])
def test_what_is_no_trainer_is_refused(wrong: Any) -> None:
    with pytest.raises(uw.MethodError, match="trainer"):
        as_trainer(wrong)

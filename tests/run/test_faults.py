"""What is broken on purpose: each ends in a correct answer or in the documented error, never in silence."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from unweave._core.cost import Meter
from unweave.curvature.products import Hessian
from unweave.curvature.solvers import krylov, random_like
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.testing import small_graph


def trained(data: Data, **recipe: Any) -> nn.Module:
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, **recipe)
    return model


def smallest(model: nn.Module, data: Data, decay: float) -> float:
    objective = Objective(model, data, cross_entropy, decay_vector(model, decay), call, Meter(data.x.device))
    theta = flatten(model)
    return float(krylov(Hessian(objective.at(theta)), random_like(theta), products=40).values[-1])


@pytest.mark.parametrize("options", [{}, {"steps": 1}, {"steps": 5}])
def test_indefinite_curvature(options: dict[str, Any]) -> None:
    """A model trained for a few epochs bends down in places; the step must lower its problem all the same."""
    data = small_graph()
    model = trained(data, epochs=3, weight_decay=1e-4)
    assert smallest(model, data, 1e-4) < -0.01
    for request in (uw.draw("edges:0.1", data), uw.draw("nodes:0.1", data)):
        done = uw.unlearn(model, data, request, weight_decay=1e-4, **options)
        assert torch.isfinite(flatten(done.model)).all()
        assert done.receipt.objective["local_change"] < 0


class _NoGradient(torch.autograd.Function):
    """The identity, with a gradient that is not a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * torch.nan


class Broken(nn.Module):
    """A GCN whose gradients are NaN; always, or only once its parameters have moved."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.conv = GCNConv(8, 3)
        self.always = always
        self.home: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        away = self.home is not None and not torch.equal(self.conv.lin.weight.detach(), self.home)
        return _NoGradient.apply(out) if self.always or away else out  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize("method", ["gif", "if", "gif-published", "lbfgs", "finetune"])
@pytest.mark.parametrize("always", [True, False])
def test_gradients_that_are_not_numbers(method: str, always: bool) -> None:
    data = small_graph()
    model = Broken(always=False)
    uw.train(model, data, weight_decay=1e-3)
    before = flatten(model).clone()
    model.always = always
    model.home = None if always else model.conv.lin.weight.detach().clone()
    recipe = uw.Recipe(weight_decay=1e-3)
    with pytest.raises(uw.UnweaveError, match=r"not finite|no step|twice"):
        uw.unlearn(model, data, uw.draw("edges:0.1", data), method, weight_decay=1e-3, recipe=recipe)
    assert torch.equal(flatten(model), before)


def test_a_module_that_is_not_deterministic() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv(x, edge_index)
            return out + 0.1 * torch.randn_like(out)

    data = small_graph()
    for use in (
        lambda: uw.unlearn(Noisy(), data, uw.draw("edges:0.1", data), weight_decay=1e-3),
        lambda: uw.polish(Noisy(), data, weight_decay=1e-3),
        lambda: uw.prepare(Noisy(), data, weight_decay=1e-3),
        lambda: uw.train(Noisy(), data, forgettable=True),
    ):
        with pytest.raises(uw.ModelError, match="two identical calls"):
            use()


def test_a_saddle_point_is_not_taken_for_a_minimum() -> None:
    """All weights zero: the gradient of a network without biases vanishes there, and the objective bends down."""
    data = small_graph()

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(8, 4, bias=False), GCNConv(4, 3, bias=False)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(torch.tanh(self.conv1(x, edge_index)), edge_index)  # type: ignore[no-any-return]

    model = Bare()
    load_flat(model, torch.zeros_like(flatten(model)))
    ready = uw.prepare(model, data, weight_decay=1e-4)
    assert ready.stationarity < 2e-3
    assert ready.bend < -0.1
    assert not ready.at_minimum
    done = uw.unlearn(model, data, uw.draw("edges:0.1", data), weight_decay=1e-4, prepared=ready)
    assert done.receipt.residual_influence is None, "no gradient at all, so nothing to move"
    assert any("already those of the remaining graph" in warning for warning in done.receipt.warnings)


def test_a_saddle_point_with_a_pull_is_not_restarted_as_a_minimum() -> None:
    """Hidden weights zero and the last bias fitted: stationary, bent down, and a removed label pulls on the bias."""
    data = small_graph()

    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(8, 4, bias=False), GCNConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(torch.tanh(self.conv1(x, edge_index)), edge_index)  # type: ignore[no-any-return]

    model = Biased()
    load_flat(model, torch.zeros_like(flatten(model)))
    counts = torch.bincount(data.y[data.train_mask], minlength=3).double()
    with torch.no_grad():
        model.conv2.bias.copy_((counts / counts.sum()).log())
    ready = uw.prepare(model, data, weight_decay=1e-6)
    assert ready.stationarity < 2e-3
    assert not ready.at_minimum
    request = uw.draw("labels:0.2", data)
    for prepared in (ready, None):
        done = uw.unlearn(model, data, request, weight_decay=1e-6, prepared=prepared)
        assert done.receipt.details.get("objective") != "L'"


def test_zero_weight_decay() -> None:
    data = small_graph()
    with pytest.raises(uw.ModelError, match="weight_decay above 0"):
        uw.train(uw.models.GCN(8, 3, hidden=4), data, forgettable=True, weight_decay=0.0)
    model = trained(data, weight_decay=0.0)
    with pytest.raises(uw.ModelError, match="weight_decay above 0"):
        uw.polish(model, data, weight_decay=0.0)
    done = uw.unlearn(model, data, uw.draw("nodes:0.1", data), weight_decay=0.0)
    assert torch.isfinite(flatten(done.model)).all()
    assert done.receipt.objective["local_change"] < 0

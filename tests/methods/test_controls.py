"""The methods that are there to be compared with: GIF as published, plain L-BFGS, a disturbed retraining."""

from typing import Any

import pytest
import torch

import unweave as uw
from tests.cases import CASES, DECAY, LOSSES, Case
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten
from unweave.testing import small_graph


@pytest.mark.parametrize("case", [c for c in CASES if c.layer == "gcn" and c.request == "mixed"], ids=lambda c: c.name)
def test_the_published_procedure_is_its_recursion(case: Case) -> None:
    """h ← v + h − H h / scale with the dense Hessian of the old graph, weight decay in neither H nor v."""
    built = case.build()
    request = case.forget(built.data)
    old, new = (
        Objective(o.model, o.data, o.loss, torch.zeros_like(o.decay), o.forward, o.meter)
        for o in (built.before, built.after)
    )
    theta = built.theta
    v = old.at(theta).gradient() - new.at(theta).gradient()
    size = theta.numel()
    h = torch.stack([_product(old, theta, torch.eye(size, dtype=theta.dtype)[i]) for i in range(size)])
    scale = 5 * float(torch.linalg.eigvalsh(h).abs().max())
    state = v
    for _ in range(3):
        state = v + state - h @ state / scale
    done = uw.unlearn(
        built.model,
        built.data,
        request,
        "gif-published",
        weight_decay=DECAY,
        loss=LOSSES[case.loss],
        scale=scale,
        iterations=3,
    )
    torch.testing.assert_close(flatten(done.model), theta + state / scale, rtol=1e-8, atol=1e-10)


def _product(objective: Objective, theta: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    point = objective.at(theta)
    (gradient,) = torch.autograd.grad(point.losses.sum(), point.theta, create_graph=True)
    return torch.autograd.grad(gradient @ u, point.theta)[0]


def test_where_the_published_code_gives_nan_there_is_an_error() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data)
    with pytest.raises(uw.SolverError, match="diverged"):
        uw.unlearn(model, data, uw.draw("nodes:0.3", data), "gif-published", weight_decay=1e-4, scale=1.0)


def test_plain_lbfgs_lowers_the_objective_by_the_gradients_it_is_given() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, weight_decay=1e-2)
    request = uw.draw("nodes:0.1", data)
    few, many = (uw.unlearn(model, data, request, "lbfgs", weight_decay=1e-2, steps=steps).receipt for steps in (3, 30))
    assert few.details["evaluations"] <= 9
    assert many.objective["remaining_after"] < few.objective["remaining_after"] < few.objective["remaining_before"]


def test_a_disturbed_retraining_is_near_the_undisturbed_one_and_repeatable() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    run = uw.train(model, data, epochs=30)
    request = uw.draw("edges:0.1", data)
    plain, once, again, more = (
        flatten(run.forget(request, "retrain", disturbed=size).model) for size in (0.0, 1e-3, 1e-3, 0.5)
    )
    assert torch.equal(once, again)
    near, far = float((once - plain).norm()), float((more - plain).norm())
    assert 0 < near < far


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("retrain", {"disturbed": "x"}),
        ("lbfgs", {"steps": 0}),
        ("retrain", {"disturbed": -0.1}),
    ],
)
def test_options_that_make_no_sense_are_refused(method: str, options: dict[str, Any]) -> None:
    data = small_graph()
    with pytest.raises(uw.MethodError):
        uw.unlearn(uw.models.GCN(8, 3), data, uw.draw("edges:0.1", data), method, weight_decay=1e-4, **options)

"""Newton's method: it finds the minimum that a dense solver finds, from anywhere, and says when it does not."""

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian

from unweave.curvature.solvers import Local, newton

SIZE = 6


def function(x: Tensor) -> Tensor:
    """Strongly convex and far from quadratic."""
    return torch.nn.functional.softplus(5 * x).sum() + (x**4).sum() + 0.05 * (x - 1).square().sum()


def at(x: Tensor) -> Local:
    matrix = hessian(function)(x)
    return float(function(x)), grad(function)(x), lambda: lambda v: matrix @ v


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_it_finds_the_minimum_from_anywhere(scale: float) -> None:
    start = scale * torch.randn(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x, report = newton(at, start, tolerance=1e-11, steps=100)
    assert report.converged
    assert report.products >= report.steps > 0
    assert float(grad(function)(x).norm()) == pytest.approx(report.gradient_norm)
    other, _ = newton(at, -start + 1, tolerance=1e-11, steps=100)
    torch.testing.assert_close(x, other, atol=1e-9, rtol=0)


def test_it_says_when_it_did_not_get_there() -> None:
    start = torch.full((SIZE,), 30.0, dtype=torch.float64)
    _, short = newton(at, start, tolerance=1e-11, steps=2)
    assert not short.converged
    assert short.steps == 2
    _, beyond = newton(at, start, tolerance=0.0, steps=200)  # below what doubles can tell: it ends all the same
    assert not beyond.converged or beyond.gradient_norm == 0
    assert beyond.gradient_norm < 1e-11


def test_a_start_that_is_good_enough_is_left_alone() -> None:
    start = torch.zeros(SIZE, dtype=torch.float64)
    x, report = newton(at, start, tolerance=1e3, steps=5)
    assert torch.equal(x, start)
    assert (report.steps, report.products, report.converged) == (0, 0, True)

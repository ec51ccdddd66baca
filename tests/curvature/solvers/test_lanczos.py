"""The largest eigenvalue from a few products."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.curvature.solvers.test_cg import V, matrix
from unweave.curvature.solvers import krylov, largest_eigenvalue
from unweave.errors import DivergenceError


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=5, max_size=5), st.integers(0, 1000))
def test_exact_when_given_enough_steps(spectrum: list[float], seed: int) -> None:
    h = matrix(spectrum, seed)
    found = largest_eigenvalue(lambda u: h @ u, V)
    assert found == pytest.approx(max(spectrum), abs=1e-3 * max(1.0, *map(abs, spectrum)))


def test_close_from_few_steps_and_never_above() -> None:
    h = matrix([*torch.linspace(0, 10, 199).tolist(), 100.0])
    found = largest_eigenvalue(lambda u: h @ u, torch.zeros(200, dtype=torch.float64), steps=8)
    assert 95 <= found <= 100 + 1e-9


def test_a_zero_matrix_has_none() -> None:
    assert largest_eigenvalue(torch.zeros_like, V) == 0


def test_not_finite_is_an_error() -> None:
    with pytest.raises(DivergenceError):
        largest_eigenvalue(lambda u: u * float("inf"), V)


@pytest.mark.parametrize("damping", [0.0, 0.1, 10.0])
def test_one_space_solves_for_every_damping(damping: float) -> None:
    h = matrix([0.5, 1.0, 2.0, 5.0, 20.0])
    space = krylov(lambda u: h @ u, V, products=5)
    x, residual = space.solve(V, damping)
    exact = torch.linalg.solve(h + damping * torch.eye(5, dtype=torch.float64), V)
    torch.testing.assert_close(x, exact)
    assert residual < 1e-8
    assert space.products == 5


def test_the_residual_of_a_space_is_the_true_one_and_stops_it() -> None:
    h = matrix(torch.logspace(-2, 3, 80).tolist())
    v = torch.ones(80, dtype=torch.float64)
    space = krylov(lambda u: h @ u, v, products=80, enough=lambda s: s.solve(v, 1.0)[1] <= 1e-3)
    assert space.products < 60
    x, claimed = space.solve(v, 1.0)
    assert float((v - h @ x - x).norm() / v.norm()) == pytest.approx(claimed, rel=1e-6)
    assert claimed <= 1e-3


def test_the_top_of_a_space_is_that_of_the_matrix() -> None:
    h = matrix([0.5, 1.0, 2.0, 5.0, 20.0])
    top = krylov(lambda u: h @ u, V, products=5).low_rank(2)
    torch.testing.assert_close(top.values, torch.tensor([20.0, 5.0], dtype=torch.float64))
    g = top.vectors[:, 0]
    torch.testing.assert_close(top.solve(g), g / 20)
    torch.testing.assert_close(top.solve(g, damping=5.0), g / 25)

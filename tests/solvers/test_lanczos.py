"""The largest eigenvalue from a few products."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.solvers.test_cg import V, matrix
from unweave.errors import DivergenceError
from unweave.solvers import largest_eigenvalue


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

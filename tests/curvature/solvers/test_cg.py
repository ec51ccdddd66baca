"""Conjugate gradients: right answers, honest reports, clear refusals."""

import pytest
import torch

from unweave.curvature.solvers import conjugate_gradients
from unweave.errors import DivergenceError, NegativeCurvatureError


def matrix(spectrum: list[float], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(len(spectrum), len(spectrum), dtype=torch.float64, generator=generator))
    return q @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ q.T


V = torch.tensor([1.0, -2.0, 3.0, 0.5, 1.0], dtype=torch.float64)


def test_exact_within_as_many_iterations_as_there_are_eigenvalues() -> None:
    h = matrix([1, 2, 2, 50, 50])
    x, report = conjugate_gradients(lambda u: h @ u, V, tolerance=1e-10)
    torch.testing.assert_close(x, torch.linalg.solve(h, V))
    assert report.iterations == 3
    assert report.converged
    assert report.products == 3 + 1
    assert 1 - 1e-9 <= report.smallest_curvature <= report.largest_curvature <= 50 + 1e-9


def test_damping_is_added() -> None:
    h = matrix([0, 0, 1, 2, 3])
    x, report = conjugate_gradients(lambda u: h @ u, V, damping=0.5, tolerance=1e-12)
    torch.testing.assert_close(x, torch.linalg.solve(h + 0.5 * torch.eye(5, dtype=torch.float64), V))
    assert report.settings["damping"] == 0.5


def test_negative_curvature_is_an_error_that_says_what_to_do() -> None:
    h = matrix([-3, 1, 1, 2, 3])
    with pytest.raises(NegativeCurvatureError, match="Gauss-Newton"):
        conjugate_gradients(lambda u: h @ u, V)
    x, _ = conjugate_gradients(lambda u: h @ u, V, damping=3.5, tolerance=1e-10)
    torch.testing.assert_close(x, torch.linalg.solve(h + 3.5 * torch.eye(5, dtype=torch.float64), V))


def test_a_product_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(DivergenceError, match="not finite"):
        conjugate_gradients(lambda u: u * float("nan"), V)


def test_stopping_early_is_reported_with_the_true_residual() -> None:
    h = matrix([1e-3, 1, 10, 100, 1000])
    x, report = conjugate_gradients(lambda u: h @ u, V, tolerance=1e-12, iterations=2)
    assert not report.converged
    assert report.warnings
    assert report.relative_residual == pytest.approx(float((V - h @ x).norm() / V.norm()))


def test_rounding_is_not_mistaken_for_convergence() -> None:
    """In float32 the running residual drifts below the true one; the report gives the true one."""
    h = matrix([1e-6, 1e-4, 1, 1e3, 1e5]).float()
    x, report = conjugate_gradients(lambda u: h @ u, V.float(), tolerance=1e-7, iterations=50)
    true = float((V.float() - h @ x).norm() / V.float().norm())
    assert report.relative_residual == pytest.approx(true, rel=1e-3)
    assert report.converged == (true <= 1e-7)


def test_a_preconditioner_changes_the_way_and_not_the_answer() -> None:
    h = torch.diag(torch.tensor([1e-2, 1, 10, 100, 1000], dtype=torch.float64)) + 0.001 * matrix([1, 2, 3, 4, 5])
    plain, way = conjugate_gradients(lambda u: h @ u, V, tolerance=1e-10)
    x, report = conjugate_gradients(lambda u: h @ u, V, tolerance=1e-10, inverse=lambda r: r / h.diagonal())
    torch.testing.assert_close(x, plain)
    assert report.relative_residual <= 1e-10
    exact, once = conjugate_gradients(lambda u: h @ u, V, tolerance=1e-10, inverse=lambda r: torch.linalg.solve(h, r))
    torch.testing.assert_close(exact, plain)
    assert once.iterations <= 2 < way.iterations

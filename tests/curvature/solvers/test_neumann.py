"""The paper's recursion: where it converges, and how it fails where it cannot."""

import pytest
import torch

from tests.curvature.solvers.test_cg import V, matrix
from unweave.curvature.solvers import neumann
from unweave.errors import DivergenceError, NegativeCurvatureError, NoProgressError


def test_it_is_the_recursion_of_the_paper() -> None:
    h, scale = matrix([0.5, 1, 2, 3, 4]), 3.0
    term = V.clone()
    for _ in range(7):
        term = V + term - h @ term / scale
    x, report = neumann(lambda u: h @ u, V, scale=scale, iterations=7)
    torch.testing.assert_close(x, term / scale)
    assert report.relative_residual == pytest.approx(float((V - h @ x).norm() / V.norm()))
    assert report.products == 8


def test_it_converges_to_the_inverse() -> None:
    h = matrix([1, 1.5, 2, 3, 4])
    x, report = neumann(lambda u: h @ u, V, scale=2.5, iterations=200)
    torch.testing.assert_close(x, torch.linalg.solve(h, V))
    assert report.relative_residual < 1e-10


def test_a_scale_below_half_the_largest_eigenvalue_diverges_and_the_advice_works() -> None:
    h = matrix([1, 2, 3, 4, 100])
    with pytest.raises(DivergenceError, match="use scale above") as caught:
        neumann(lambda u: h @ u, V, scale=40)
    advised = float(str(caught.value).rsplit(" ", 1)[1])
    assert 90 <= advised <= 101
    x, _ = neumann(lambda u: h @ u, V, scale=advised, iterations=3000)
    torch.testing.assert_close(x, torch.linalg.solve(h, V), rtol=1e-5, atol=1e-6)


def test_negative_curvature_is_told_apart_from_a_small_scale() -> None:
    h = matrix([-2, 1, 2, 3, 4])
    with pytest.raises(NegativeCurvatureError, match="no scale can mend"):
        neumann(lambda u: h @ u, V, scale=5, iterations=300)


def test_a_no_op_in_disguise_is_refused() -> None:
    h = matrix([1, 2, 3, 4, 5])
    with pytest.raises(NoProgressError, match="leave the model as it was"):
        neumann(lambda u: h @ u, V, scale=1e9)


def test_overflow_is_divergence() -> None:
    h = matrix([1, 2, 3, 4, 1e300])
    with pytest.raises(DivergenceError):
        neumann(lambda u: h @ u, V, scale=1e-3)


def test_a_poor_solve_warns() -> None:
    h = matrix([0.01, 0.02, 0.03, 1, 1])
    _, report = neumann(lambda u: h @ u, V, scale=1.0, iterations=5)
    assert any("relative residual" in w for w in report.warnings)

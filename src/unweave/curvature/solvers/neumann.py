"""The recursion of the paper: a Neumann series for the inverse (GIF, WWW'23, section on estimation).

    h_0 = v,   h_{t+1} = v + h_t − λ H h_t,   x = λ h_T,   λ = 1 / scale

It converges only if every eigenvalue of H lies in (0, 2·scale). The step h_{t+1} − h_t is the true
residual of x = λ h_t, and is multiplied by I − λH each time, so it turns towards the eigenvector
that diverges first: its Rayleigh quotient says what went wrong.
"""

import torch
from torch import Tensor

from unweave.curvature.solvers.base import Operator, SolveReport, relative
from unweave.errors import DivergenceError, NegativeCurvatureError, NoProgressError

__all__ = ["neumann"]


def neumann(operator: Operator, v: Tensor, *, scale: float, iterations: int = 100) -> tuple[Tensor, SolveReport]:
    """Run the recursion for a fixed number of iterations.

    Args:
        operator: Product with H.
        v: Right-hand side, not zero.
        scale: 1/λ; must exceed half the largest eigenvalue, and be small enough to move at all.
        iterations: T.

    Raises:
        DivergenceError: The residual grew; ``scale`` is below half the largest eigenvalue.
        NegativeCurvatureError: The residual grew along a direction of negative curvature, which no scale mends.
        NoProgressError: Less than a thousandth of v was explained: ``scale`` is far too large.
    """
    h = v.clone()
    image = operator(h)
    quotients: list[float] = []
    residual = v - image / scale
    for done in range(1, iterations + 1):
        h = h + residual
        previous, image = image, operator(h)
        squared = float(residual @ residual)
        if squared > 0:
            quotients.append(float(residual @ (image - previous)) / squared)
        residual = v - image / scale
        if not torch.isfinite(residual).all() or relative(residual, v) > 10:
            raise _divergence(done, relative(residual, v), quotients, scale)
    achieved = relative(residual, v)
    if achieved > 1:
        raise _divergence(iterations, achieved, quotients, scale)
    largest = max(quotients, default=0.0)
    if achieved > 0.999:
        raise NoProgressError(
            f"{iterations} iterations with scale {scale:.3g} solved only {1 - achieved:.2%} of the system, "
            f"which would leave the model as it was; try scale near {largest:.3g}"
        )
    warnings = []
    if achieved > 0.1:
        warnings.append(
            f"the recursion left a relative residual of {achieved:.2g} after {iterations} iterations; "
            "use more iterations or a smaller scale, or method='gif'"
        )
    if min(quotients, default=1.0) <= 0:
        warnings.append(f"the recursion met negative curvature ({min(quotients):.3g}) and was stopped before it grew")
    return h / scale, SolveReport(
        solver="neumann",
        settings={"scale": scale, "iterations": iterations},
        iterations=iterations,
        products=iterations + 1,
        relative_residual=achieved,
        converged=None,
        smallest_curvature=min(quotients, default=None),
        largest_curvature=max(quotients, default=None),
        warnings=tuple(warnings),
    )


def _divergence(
    done: int, achieved: float, quotients: list[float], scale: float
) -> DivergenceError | NegativeCurvatureError:
    finite = [q for q in quotients if abs(q) < float("inf")]
    start = f"the recursion diverged: relative residual {achieved:.3g} after {done} iterations with scale {scale:.3g}"
    if finite and finite[-1] <= 0:
        return NegativeCurvatureError(
            f"{start}, along a direction of curvature {finite[-1]:.3g} ≤ 0, which no scale can mend; "
            "use curvature='gauss-newton' (with decay='counted'), or method='gif'"
        )
    advice = (
        f"the largest curvature met is {max(finite):.3g}: use scale above {max(finite):.3g}"
        if finite
        else "use a larger scale"
    )
    return DivergenceError(f"{start}; {advice}")

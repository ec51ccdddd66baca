"""Conjugate gradients on (H + δI) x = v (Hestenes and Stiefel, 1952)."""

import torch
from torch import Tensor

from unweave.curvature.solvers.base import Operator, SolveReport, relative
from unweave.errors import DivergenceError, NegativeCurvatureError

__all__ = ["conjugate_gradients"]


def conjugate_gradients(
    operator: Operator,
    v: Tensor,
    *,
    damping: float = 0.0,
    tolerance: float = 1e-4,
    iterations: int = 200,
    inverse: Operator | None = None,
) -> tuple[Tensor, SolveReport]:
    """Solve (H + damping·I) x = v for a symmetric positive matrix.

    The residual is recomputed from the answer before the solve is called converged; when rounding has
    let the running one drift, the iteration starts afresh from where it stands.

    Args:
        operator: Product with H.
        v: Right-hand side, not zero.
        damping: Added to every eigenvalue.
        tolerance: Stop when ‖v − (H + damping·I) x‖ ≤ tolerance·‖v‖.
        iterations: At most so many.
        inverse: Product with an approximate inverse of H + damping·I, symmetric and positive: the preconditioner.

    Raises:
        NegativeCurvatureError: A direction p with pᵀ(H + damping·I)p ≤ 0 was met.
        DivergenceError: A product was not finite.
    """
    target = tolerance * float(v.norm())
    x = torch.zeros_like(v)
    residual = v.clone()
    apply = inverse or torch.clone
    conditioned = apply(residual)
    direction = conditioned
    quotients: list[float] = []
    done = products = 0
    true = False  # whether the residual at hand was recomputed from x
    while done < iterations:
        if float(residual.norm()) <= target:
            residual, products, true = v - operator(x) - damping * x, products + 1, True
            if float(residual.norm()) <= target:
                break
            conditioned = apply(residual)
            direction = conditioned
        image = operator(direction) + damping * direction
        products += 1
        bend = float(direction @ image)
        quotient = bend / float(direction @ direction)
        if not torch.isfinite(image).all():
            raise DivergenceError(
                f"a curvature product was not finite at iteration {done + 1}; "
                "the model's outputs or derivatives overflow at these parameters"
            )
        rounding = 10 * torch.finfo(v.dtype).eps * max((abs(q) for q in quotients), default=0.0)
        if bend <= 0 and quotient >= -rounding:
            break  # flat to machine precision: nothing more can be solved for, and the residual will tell
        if bend <= 0:
            raise NegativeCurvatureError(
                f"met curvature {quotient:.3g} ≤ 0 at iteration {done + 1} with damping {damping:.3g}; use "
                f"the Gauss-Newton matrix, or damping above {damping - quotient:.3g}"
            )
        quotients.append(quotient - damping)
        old = residual @ conditioned
        step = old / bend
        x = x + step * direction
        residual = residual - step * image
        conditioned = apply(residual)
        direction = conditioned + (residual @ conditioned) / old * direction
        done, true = done + 1, False
    if not true:
        residual, products = v - operator(x) - damping * x, products + 1
    achieved = relative(residual, v)
    converged = achieved <= tolerance
    warning = (
        f"conjugate gradients stopped after {done} iterations at a relative residual of {achieved:.2g}, "
        f"above the tolerance {tolerance:.2g}; raise the damping or the iterations"
    )
    return x, SolveReport(
        solver="cg",
        settings={"damping": damping, "tolerance": tolerance, "iterations": iterations},
        iterations=done,
        products=products,
        relative_residual=achieved,
        converged=converged,
        smallest_curvature=min(quotients, default=None),
        largest_curvature=max(quotients, default=None),
        warnings=() if converged else (warning,),
    )

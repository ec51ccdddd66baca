"""Newton's method on a strictly convex function, each step solved by conjugate gradients (Dembo and Steihaug, 1983)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.solvers.base import Operator
from unweave.curvature.solvers.cg import conjugate_gradients

__all__ = ["Local", "NewtonReport", "newton"]

Local = tuple[float, Tensor, Callable[[], Operator]]
"""The value of a function at a point, its gradient there, and its curvature for who asks."""


@dataclass(frozen=True)
class NewtonReport:
    """How a minimisation went.

    Attributes:
        steps: Steps taken.
        products: Curvature products spent.
        gradient_norm: ‖gradient‖ where it ended.
        converged: Whether that is within the tolerance.
    """

    steps: int
    products: int
    gradient_norm: float
    converged: bool


def newton(at: Callable[[Tensor], Local], x: Tensor, *, tolerance: float, steps: int) -> tuple[Tensor, NewtonReport]:
    """Minimise until ‖gradient‖ ≤ tolerance.

    A step is halved until the function falls in proportion to its slope, or, where the fall drowns in the rounding of
    the values, until the gradient does. The linear systems are solved the more exactly the nearer the minimum is.

    Args:
        at: The function at a point.
        x: Where to start.
        tolerance: Stop when ‖gradient‖ is at most this.
        steps: At most so many.
    """
    value, gradient, curvature = at(x)
    first = float(gradient.norm())
    taken = products = 0
    while (size := float(gradient.norm())) > tolerance and taken < steps:
        exactness = min(TUNING.newton.loosest, max((size / first) ** 0.5 * TUNING.newton.loosest, tolerance / size / 4))
        direction, report = conjugate_gradients(curvature(), -gradient, tolerance=exactness, iterations=10 * len(x))
        products += report.products
        slope, length = float(gradient @ direction), 1.0
        for _ in range(TUNING.newton.halvings):
            there = at(x + length * direction)
            noise = 10 * torch.finfo(x.dtype).eps * abs(value)
            fell = there[0] - value <= TUNING.newton.sufficient * length * slope
            calmer = float(there[1].norm()) <= (1 - TUNING.newton.sufficient * length) * size
            if fell or (there[0] - value <= noise and calmer):
                break
            length /= 2
        else:
            break
        x, (value, gradient, curvature) = x + length * direction, there
        taken += 1
    return x, NewtonReport(taken, products, float(gradient.norm()), float(gradient.norm()) <= tolerance)

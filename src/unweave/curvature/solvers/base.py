"""What every solver takes and returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

__all__ = ["Operator", "SolveReport", "relative"]

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SolveReport:
    """How a linear system was solved.

    Attributes:
        solver: Name of the algorithm.
        settings: Every setting it ran with.
        iterations: Iterations done.
        products: Products with the operator, those that set up or check the solve included.
        relative_residual: ‖v − H x‖ / ‖v‖, recomputed from the answer, not carried along.
        converged: Whether the residual reached the tolerance; ``None`` when none was asked for.
        smallest_curvature: Smallest Rayleigh quotient met on the way.
        largest_curvature: Largest Rayleigh quotient met on the way.
        warnings: What the caller should know.
    """

    solver: str
    settings: dict[str, Any]
    iterations: int
    products: int
    relative_residual: float
    converged: bool | None
    smallest_curvature: float | None
    largest_curvature: float | None
    warnings: tuple[str, ...] = field(default=())


def relative(residual: Tensor, v: Tensor) -> float:
    """‖residual‖ / ‖v‖."""
    return float(residual.norm() / v.norm())

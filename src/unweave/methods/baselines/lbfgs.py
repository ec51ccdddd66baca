"""Plain L-BFGS from θ0 on the remaining graph: the control for what preparation is worth."""

from dataclasses import dataclass
from typing import ClassVar

from unweave._core.tuning import TUNING
from unweave.curvature.solvers import minimise
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import ASK, Problem
from unweave.methods.registry import register

__all__ = ["LBFGS"]


@register
@dataclass(frozen=True)
class LBFGS(Method):
    """Minimise L' from θ0 by L-BFGS that knows nothing of the curvature.

    Attributes:
        steps: Gradients on the remaining graph after the first.
    """

    name: ClassVar[str] = "lbfgs"
    bounded: ClassVar[bool] = True
    rules: ClassVar[tuple[str, ...]] = ("search",)
    steps: int = 15

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise MethodError(f"steps must be a whole number of at least 1, got {self.steps!r}")

    def forget(self, problem: Problem) -> Outcome:
        """Warm-start on the remaining graph."""
        theta, found = minimise(
            problem.remaining.evaluate,
            problem.theta,
            problem.remaining_value,
            problem.remaining_gradient,
            None,
            evaluations=self.steps,
            tolerance=0.0,
        )
        if not found.steps:
            raise NoProgressError(f"no step lowers the objective on the remaining graph; {ASK}")
        return Outcome(theta, details={"steps": found.steps, "evaluations": found.evaluations + 1})

    def expect(self, problem: Problem) -> Expected:
        """A gradient a step."""
        return Expected(f"up to {self.steps} steps of L-BFGS", 2, 2 * max(self.steps, TUNING.search.first))

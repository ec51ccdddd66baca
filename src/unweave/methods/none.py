"""Do nothing: edit the graph, keep the parameters. The control every method has to beat."""

from dataclasses import dataclass
from typing import ClassVar

from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register

__all__ = ["Nothing"]


@register
@dataclass(frozen=True)
class Nothing(Method):
    """Keep the parameters as they are."""

    name: ClassVar[str] = "none"
    bounded: ClassVar[bool] = True
    changes: ClassVar[bool] = True

    def forget(self, problem: Problem) -> Outcome:
        """Return θ0."""
        note = "method 'none' forgets nothing: the parameters still depend on the removed data"
        return Outcome(problem.theta.clone(), refresh=False, warnings=(note,))

    def expect(self, problem: Problem) -> Expected:
        """Nothing at all."""
        return Expected("nothing: the parameters would stay as they are", 0, 0)

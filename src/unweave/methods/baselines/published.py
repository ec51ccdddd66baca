"""GIF as it was published, so that every difference from ours can be measured."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unweave.curvature.products import Hessian
from unweave.curvature.solvers import neumann
from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.objective.objective import Objective

__all__ = ["GIFPublished"]


@register
@dataclass(frozen=True)
class GIFPublished(Method):
    """The recursion of the paper with the Hessian of the old graph, without weight decay, and a fixed scale.

    One thing differs from the published code: losses run over training nodes only, so that no test label enters.
    Where the published code gives NaN this raises.

    Attributes:
        scale: 1/λ. The paper tunes it by hand for each model and data set.
        iterations: Of the recursion.
    """

    name: ClassVar[str] = "gif-published"
    scale: float = 500.0
    iterations: int = 100

    def __post_init__(self) -> None:
        if not (isinstance(self.scale, int | float) and 0 < self.scale < float("inf")):
            raise MethodError(f"scale must be a positive number, got {self.scale!r}")
        if not (isinstance(self.iterations, int) and self.iterations >= 1):
            raise MethodError(f"iterations must be a positive whole number, got {self.iterations!r}")

    def vector(self, problem: Problem) -> Tensor:
        """The gradient of the forgotten loss, without weight decay."""
        return problem.at_original.loss_gradient() - problem.at_remaining.loss_gradient()

    def forget(self, problem: Problem) -> Outcome:
        """Run the recursion."""
        old = problem.original
        plain = Objective(old.model, old.data, old.loss, torch.zeros_like(old.decay), old.forward, old.meter)
        v = self.vector(problem)
        if not bool(v.any()):
            warning = "no training node's loss changes, so the parameters stay as they are"
            return Outcome(problem.theta.clone(), warnings=(warning,))
        x, report = neumann(Hessian(plain.at(problem.theta)), v, scale=self.scale, iterations=self.iterations)
        return Outcome(problem.theta + x, solve=report, warnings=report.warnings)

    def expect(self, problem: Problem) -> Expected:
        """Both gradients without weight decay, the Hessian, and its products."""
        return Expected(f"{self.iterations} iterations of the paper's recursion", 4, 9 + 2 * (self.iterations + 1))

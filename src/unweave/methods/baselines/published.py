"""GIF as it was published, so that every difference from ours can be measured."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.products import CURVATURES, Hessian
from unweave.curvature.solvers import Operator, largest_eigenvalue, neumann
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.step import check_number, prepare_products, spare_passes
from unweave.objective.objective import Objective

__all__ = ["GIFPublished"]

CHOICES = {"decay": ("ignored", "counted"), "graph": ("original", "remaining"), "curvature": tuple(CURVATURES)}


@register
@dataclass(frozen=True)
class GIFPublished(Method):
    """The recursion of the paper with the Hessian of the old graph, without weight decay, and a fixed scale.

    One thing differs from the published code: losses run over training nodes only, so that no test label enters.
    Where the published code gives NaN this raises. The options after ``iterations`` undo one difference from ``gif``
    each.

    Attributes:
        scale: 1/λ. The paper tunes it by hand for each model and data set. ``"auto"`` is the largest eigenvalue, with
            which the recursion converges wherever it can (it needs more than half of that, and no negative one).
        iterations: Of the recursion.
        decay: Whether weight decay is ``"counted"``, in curvature and forgotten loss; ``"ignored"`` in the paper.
        graph: Where the curvature is taken: the ``"original"`` graph (the paper's) or the ``"remaining"``; the latter
            only with weight decay counted.
        curvature: ``"hessian"`` (the paper's) or ``"gauss-newton"``, likewise.
    """

    name: ClassVar[str] = "gif-published"
    rules: ClassVar[tuple[str, ...]] = ("baselines",)
    scale: float | Literal["auto"] = 500.0
    iterations: int = 100
    decay: Literal["ignored", "counted"] = "ignored"
    graph: Literal["original", "remaining"] = "original"
    curvature: Literal["hessian", "gauss-newton"] = "hessian"

    def __post_init__(self) -> None:
        check_number("scale", None if self.scale == "auto" else self.scale)
        check_number("iterations", self.iterations, whole=True)
        for option, allowed in CHOICES.items():
            if getattr(self, option) not in allowed:
                raise MethodError(f"{option} must be one of {', '.join(allowed)}, got {getattr(self, option)!r}")
        if self.decay == "ignored" and (self.graph, self.curvature) != ("original", "hessian"):
            raise MethodError("graph and curvature are the paper's unless weight decay counts; give decay='counted'")

    def vector(self, problem: Problem) -> Tensor:
        """The gradient of the forgotten loss, without weight decay where that is ignored."""
        if self.decay == "counted":
            return problem.forgotten_gradient
        return problem.at_original.loss_gradient() - problem.at_remaining.loss_gradient()

    def forget(self, problem: Problem) -> Outcome:
        """Run the recursion."""
        v = self.vector(problem)
        if not bool(v.any()):
            warning = "no training node's loss changes, so the parameters stay as they are"
            return Outcome(problem.theta.clone(), warnings=(warning,))
        operator, details = self._operator(problem)
        scale = self._scale(operator, v) if self.scale == "auto" else float(self.scale)
        x, report = neumann(operator, v, scale=scale, iterations=self.iterations)
        return Outcome(problem.theta + x, solve=report, details=details, warnings=report.warnings)

    def _operator(self, problem: Problem) -> tuple[Operator, dict[str, Any]]:
        """Products with the curvature, and what to note of it."""
        if self.decay == "counted":
            operator, recorded = prepare_products(problem, self.curvature, self.graph)
            return operator, {"curvature": self.curvature, "curvature_on": f"{self.graph} graph", **recorded}
        old = problem.original
        plain = Objective(old.model, old.data, old.loss, torch.zeros_like(old.decay), old.forward, old.meter)
        return Hessian(plain.at(problem.theta)), {}

    def _scale(self, operator: Operator, v: Tensor) -> float:
        """The largest eigenvalue."""
        top = largest_eigenvalue(operator, v, steps=TUNING.baselines.scale_products)
        if top > 0:
            return top
        raise NoProgressError(
            f"the curvature has no positive eigenvalue (largest met: {top:.3g}), so the recursion has no scale; is the "
            "loss linear? Use method='finetune' or 'retrain'"
        )

    def expect(self, problem: Problem) -> Expected:
        """Both gradients without weight decay, the curvature, and its products."""
        products = self.iterations + 1 + (TUNING.baselines.scale_products if self.scale == "auto" else 0)
        how = f"{self.iterations} iterations of the paper's recursion"
        if self.decay == "counted":
            return Expected(how, 0, spare_passes(problem) + 2 * products)
        return Expected(how, 4, 9 + 2 * products)

"""GIF, the graph influence function (Wu et al., WWW'23, Theorem 2), with curvature on the remaining graph."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unweave.methods.base import Problem
from unweave.methods.registry import register
from unweave.methods.step import InfluenceStep, Verdict

__all__ = ["GIF"]


@register
@dataclass(frozen=True)
class GIF(InfluenceStep):
    """θ̂ = θ0 + (H + δI)⁻¹ v with v = ∇ΔL(θ0), the gradient of the whole forgotten loss.

    v counts the deleted nodes and also every training node whose prediction changes because a neighbour,
    an edge or a feature went. As the paper has it: ``curvature="hessian", graph="original",
    solver="neumann", scale=…``.
    """

    name: ClassVar[str] = "gif"
    at_rest: ClassVar[str] = (
        "no training node's loss changes, so the parameters are already those of the remaining graph"
    )

    def vector(self, problem: Problem) -> Tensor:
        """∇ΔL(θ0)."""
        return problem.forgotten_gradient

    def judge(self, problem: Problem, x: Tensor, promised: float) -> Verdict:
        """Q must fall by a quarter of what the quadratic model promised, and its gradient should not grow.

        The gradient grows along negative curvature however short the step, so that alone is no reason to refuse.
        """
        point = problem.remaining.at(problem.theta + x)
        if problem.local_change(point) > promised / 4:
            return Verdict.BAD
        grows = float(problem.local_gradient(point).norm()) > float(problem.forgotten_gradient.norm())
        return Verdict.FAIR if grows else Verdict.GOOD

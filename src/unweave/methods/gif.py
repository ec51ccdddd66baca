"""GIF, the graph influence function (Wu et al., WWW'23, Theorem 2), with curvature on the remaining graph."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unweave.methods.base import Problem
from unweave.methods.registry import register
from unweave.methods.step import InfluenceStep

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

    def vector(self, problem: Problem) -> Tensor:
        """∇ΔL(θ0) over the influenced region."""
        return problem.forgotten_gradient

    def holds(self, problem: Problem, x: Tensor, promised: float) -> bool:
        """Q falls by at least a quarter of what the quadratic model promised."""
        point = problem.remaining.at(problem.theta + x)
        return problem.local_change(point, problem.local_gradient(point)) <= promised / 4

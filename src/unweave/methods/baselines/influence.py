"""The traditional influence function (Koh and Liang, ICML'17), as a baseline on graphs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.step import InfluenceStep, Step, Verdict, keeps_promise

__all__ = ["IF"]


@register
@dataclass(frozen=True)
class IF(InfluenceStep):
    """θ̂ = θ0 + (H + δI)⁻¹ v with v = Σ ∇ℓ over the directly affected training nodes alone.

    Those are deleted nodes, endpoints of deleted edges, and nodes that lose features or labels; each is
    treated as if it were deleted. How everyone else's prediction changes is ignored, which is why this
    is no way to forget on a graph. Curvature and check belong to the old graph: it knows no other.
    """

    name: ClassVar[str] = "if"
    graph: Literal["remaining", "original"] = "original"
    at_rest: ClassVar[str] = "no training node is touched directly, so IF leaves the parameters as they are"

    def vector(self, problem: Problem) -> Tensor:
        """Gradient of the original loss of the touched training nodes."""
        loss = problem.at_original.loss_gradient(problem.removal.touched)
        return loss + (problem.original.mu - problem.remaining.mu) * problem.theta

    def judge(self, problem: Problem, step: Step) -> Verdict:
        """The objective that IF believes in, without the touched nodes, must fall as promised."""
        change, moved = problem.change_without(problem.removal.touched, problem.theta + step.x)
        return Verdict.GOOD if keeps_promise(problem, step, change, moved) else Verdict.BAD

"""The traditional influence function (Koh and Liang, ICML'17), as a baseline on graphs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from unweave.curvature.local import LocalProblem
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
    graph: ClassVar[Literal["remaining", "original"]] = "original"
    at_rest: ClassVar[str] = "no training node is touched directly, so IF leaves the parameters as they are"

    def vector(self, problem: Problem) -> Tensor:
        """Gradient of the original loss of the touched training nodes."""
        loss = problem.at_original.loss_gradient(problem.removal.touched)
        return loss + (problem.original.mu - problem.remaining.mu) * problem.theta

    def judge(self, problem: Problem, step: Step) -> Verdict:
        """What IF believes in must fall as promised: the objective on the old graph without the touched nodes' loss."""
        here = problem.original
        local = LocalProblem(
            problem.theta,
            problem.original_losses,
            problem.remaining.mu,
            problem.original_gradient,
            counted=~problem.removal.touched[here.nodes],
        )
        point = here.at(problem.theta + step.x)
        change, small = local.resolved(point, step.v)
        if not keeps_promise(problem, step, point, change):
            return Verdict.BAD
        return Verdict.SMALL if small else Verdict.GOOD

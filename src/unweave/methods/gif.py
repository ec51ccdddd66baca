"""GIF, the graph influence function (Wu et al., WWW'23, Theorem 2), and what it is the first step of."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from unweave._digest import tensor_digest
from unweave.curvature import GaussNewton
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Outcome, Problem
from unweave.methods.registry import register
from unweave.methods.step import InfluenceStep, Verdict
from unweave.prepared import Prepared
from unweave.solvers import LowRank, low_rank, minimise

__all__ = ["GIF"]

AUTO_STEPS = 15
ENOUGH = 0.01
"""Of the gradient it started from: further steps would not pay."""


@register
@dataclass(frozen=True)
class GIF(InfluenceStep):
    """θ̂ = θ0 + (H + δI)⁻¹ v with v = ∇ΔL(θ0), the gradient of the whole forgotten loss, and further steps like it.

    v counts the deleted nodes and also every training node whose prediction changes because a neighbour,
    an edge or a feature went. As the paper has it: ``curvature="hessian", graph="original",
    solver="neumann", scale=…``.

    The influence step is the first step of a quasi-Newton method on the remaining graph that starts with the
    curvature known from training. For a model that was trained to a minimum the method goes on, each further step at
    the price of one gradient: on L' where training ended at a minimum, on Q(θ) = L'(θ) − ⟨∇L0(θ0), θ⟩ otherwise.

    Attributes:
        steps: Gradients on the remaining graph after the first. By default one influence step, solved for, or up to 15
            prepared ones while they pay when ``prepared`` says that training ended at a minimum. An option of the
            single step (damping, solver, …) asks for that step.
        prepared: What :func:`unweave.prepare` computed once after training. Without it several steps first compute
            the curvature they need, and the receipt says what that cost.
    """

    name: ClassVar[str] = "gif"
    at_rest: ClassVar[str] = (
        "no training node's loss changes, so the parameters are already those of the remaining graph"
    )
    steps: int | None = None
    prepared: Prepared | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and not (isinstance(self.steps, int) and self.steps >= 1):
            raise MethodError(f"steps must be a whole number of at least 1, got {self.steps!r}")
        if self.steps is not None and self.steps > 1 and self._of_one_step:
            option = self._of_one_step[0]
            raise MethodError(f"{option} belongs to one influence step and does nothing with steps > 1; leave it out")

    @property
    def _of_one_step(self) -> list[str]:
        """Options given that only the solve of a single influence step knows."""
        return [f.name for f in fields(InfluenceStep) if getattr(self, f.name) != f.default]

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

    def forget(self, problem: Problem) -> Outcome:
        """Take one influence step, or restart the minimisation on the remaining graph."""
        ready = self.prepared
        if ready is not None and ready.parameters != tensor_digest(problem.original.model.named_parameters()):
            raise MethodError("prepared= belongs to other parameters; call unweave.prepare on this model")
        one = ready is None or (self.steps is None and not ready.at_minimum) or bool(self._of_one_step)
        one = one and (self.steps is None or self.steps == 1)
        if one or not bool(problem.forgotten_gradient.any()):
            return super().forget(problem)
        return self._restart(problem, ready)

    def _restart(self, problem: Problem, ready: Prepared | None) -> Outcome:
        """Prepared quasi-Newton steps on L' or Q."""
        passes = problem.meter.passes
        slope = problem.remaining_gradient + problem.forgotten_gradient  # ∇L0(θ0)
        details: dict[str, Any] = {"objective": "Q"}
        curvature: LowRank
        if ready is None:
            curvature = low_rank(GaussNewton(problem.at_remaining), problem.theta)
            details["prepared"] = f"for this request, {problem.meter.passes - passes} passes"
        else:
            curvature = ready.curvature
            details["prepared"] = "after training" + (f", {ready.age} requests ago" if ready.age else "")
            if ready.at_minimum:
                slope = slope * 0
                details["objective"] = "L'"

        def evaluate(theta: Tensor) -> tuple[float, Tensor]:
            value, gradient = problem.remaining.evaluate(theta)
            return value - float(slope @ (theta - problem.theta)), gradient - slope

        start = problem.remaining_gradient - slope
        rest = float((problem.remaining_gradient + problem.forgotten_gradient - slope).norm())
        enough = 0.0 if self.steps is not None else max(ENOUGH * float(start.norm()), rest)
        theta, found = minimise(
            evaluate,
            problem.theta,
            problem.at_remaining.value,
            start,
            curvature.solve,
            evaluations=self.steps or AUTO_STEPS,
            tolerance=enough,
        )
        if not found.steps or not math.isfinite(found.value):
            raise NoProgressError(
                "no step lowers the objective on the remaining graph; is the model trained on this graph, with this "
                "loss and weight_decay? If so use method='finetune' or 'retrain'"
            )
        details |= {
            "steps": found.steps,
            "evaluations": found.evaluations + 1,
            "gradient": f"{float(start.norm()):.4g} → {found.gradient_norm:.4g}",
        }
        return Outcome(theta, details=details)

"""One influence step, θ̂ = θ0 + (H + δI)⁻¹ v: what GIF and IF share. They differ in v alone."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Literal

from torch import Tensor

from unweave.curvature import CURVATURES
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Method, Outcome, Problem
from unweave.solvers import Operator, SolveReport, conjugate_gradients, largest_eigenvalue, neumann

__all__ = ["DAMPING_SHARE", "InfluenceStep", "Verdict"]

DAMPING_SHARE = 0.01
"""Damping by default, as a share of the largest curvature eigenvalue."""

SPECTRUM_STEPS = 8
"""Products spent on that eigenvalue."""

DAMPING_TRIES = 7
"""Damping is raised tenfold at most so often less one."""


class Verdict(Enum):
    """What a step is worth once it has been tried."""

    GOOD = "it keeps its promise"
    FAIR = "it lowers the objective, but something is left to wish for"
    BAD = "it does not lower the objective as promised"


@dataclass(frozen=True)
class InfluenceStep(Method):
    """Options of the influence step.

    Attributes:
        curvature: ``"gauss-newton"`` (positive, the default) or ``"hessian"`` (the paper's).
        graph: Where the curvature is taken: the ``"remaining"`` graph (better) or the ``"original"`` (the paper's).
        solver: ``"cg"``, conjugate gradients, or ``"neumann"``, the paper's recursion.
        iterations: At most 200 (cg) or exactly 100 (neumann) by default.
        damping: cg only. Added to the curvature; by default 1 % of its largest eigenvalue, and for GIF ten times
            more as often as the step does not lower the local objective by a quarter of what it promised, or
            leaves a larger gradient than it found.
        tolerance: cg only. Relative residual to reach, 1e-4 by default.
        scale: neumann only, and needed there. 1/λ of the paper.
    """

    at_rest: ClassVar[str]
    curvature: Literal["gauss-newton", "hessian"] = "gauss-newton"
    graph: Literal["remaining", "original"] = "remaining"
    solver: Literal["cg", "neumann"] = "cg"
    iterations: int | None = None
    damping: float | None = None
    tolerance: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        choices = {
            "curvature": tuple(CURVATURES),
            "graph": ("remaining", "original"),
            "solver": ("cg", "neumann"),
        }
        for option, allowed in choices.items():
            if getattr(self, option) not in allowed:
                raise MethodError(f"{option} must be one of {', '.join(allowed)}, got {getattr(self, option)!r}")
        idle = ("scale",) if self.solver == "cg" else ("damping", "tolerance")
        for option in idle:
            if getattr(self, option) is not None:
                raise MethodError(f"{option} does nothing with solver={self.solver!r}; leave it out")
        for option in ("iterations", "damping", "tolerance", "scale"):
            value = getattr(self, option)
            number = isinstance(value, int if option == "iterations" else int | float) and value < float("inf")
            if value is not None and not (number and (value > 0 or (value == 0 and option == "damping"))):
                kind = "whole number" if option == "iterations" else "number"
                raise MethodError(f"{option} must be a positive {kind}, got {value!r}")
        if self.tolerance is not None and self.tolerance >= 1:
            raise MethodError(f"tolerance must be below 1, got {self.tolerance}: no step at all would satisfy it")

    @abstractmethod
    def vector(self, problem: Problem) -> Tensor:
        """The right-hand side v."""

    def judge(self, problem: Problem, x: Tensor, promised: float) -> Verdict:
        """Whether a step does what its quadratic model promised; damping that was not given is raised until it does.

        Args:
            problem: The problem.
            x: The step.
            promised: The change of the objective that the model predicts, below 0.
        """
        return Verdict.GOOD

    def forget(self, problem: Problem) -> Outcome:
        """Solve for the step and take it."""
        v = self.vector(problem)
        details = {"curvature": self.curvature, "curvature_on": f"{self.graph} graph"}
        if not bool(v.any()):
            return Outcome(problem.theta.clone(), details=details, warnings=(self.at_rest,))
        at = problem.at_remaining if self.graph == "remaining" else problem.at_original
        operator = CURVATURES[self.curvature](at)
        if self.solver == "neumann":
            x, report = neumann(operator, v, scale=self._scale(operator, v), iterations=self.iterations or 100)
        else:
            x, report = self._damped(problem, operator, v)
        return Outcome(problem.theta + x, solve=report, details=details, warnings=report.warnings)

    def _damped(self, problem: Problem, operator: Operator, v: Tensor) -> tuple[Tensor, SolveReport]:
        """Conjugate gradients with the damping given, or with one that the step itself confirms."""
        damping, spent = self.damping, 0
        if damping is None:
            damping = DAMPING_SHARE * max(largest_eigenvalue(operator, v, steps=SPECTRUM_STEPS), 1e-6)
            spent = SPECTRUM_STEPS
        fair: tuple[Tensor, SolveReport] | None = None
        for _ in range(DAMPING_TRIES):
            x, report = conjugate_gradients(
                operator, v, damping=damping, tolerance=self.tolerance or 1e-4, iterations=self.iterations or 200
            )
            spent += report.products
            if self.damping is not None:
                return x, report
            verdict = self.judge(problem, x, promised=-float(v @ x + damping * (x @ x)) / 2)
            if verdict is Verdict.GOOD:
                return x, replace(report, products=spent)
            if verdict is Verdict.FAIR and fair is None:
                fair = x, report
            damping *= 10
        if fair is not None:
            return fair[0], replace(fair[1], products=spent)
        raise NoProgressError(
            f"no step of any length lowers the local objective (damping raised to {damping / 10:.3g}); is the model "
            "trained on this graph, with this loss and weight_decay? If so use method='finetune' or 'retrain'"
        )

    def _scale(self, operator: Operator, v: Tensor) -> float:
        if self.scale is not None:
            return self.scale
        top = largest_eigenvalue(operator, v)
        raise MethodError(
            f"solver='neumann' needs scale=…; the largest curvature eigenvalue is about {top:.4g}, "
            f"so try scale={1.1 * top:.4g}"
        )

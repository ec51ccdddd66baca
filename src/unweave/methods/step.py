"""One influence step, θ̂ = θ0 + (H + δI)⁻¹ v: what GIF and IF share. They differ in v and in how they judge it."""

from abc import abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

from torch import Tensor

from unweave._core.cuda_graphs import LOOKS
from unweave._core.tuning import TUNING
from unweave.curvature.damping import least_damping
from unweave.curvature.products import CURVATURES, products
from unweave.curvature.solvers import (
    Krylov,
    Operator,
    SolveReport,
    conjugate_gradients,
    krylov,
    largest_eigenvalue,
    neumann,
)
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import ASK, Problem

__all__ = ["InfluenceStep", "Step", "Verdict", "keeps_promise"]

OPERATOR = 8
"""Passes that v and the curvature take at most before the first product."""


class Verdict(Enum):
    """What a step is worth once it has been tried."""

    GOOD = "it keeps its promise"
    FAIR = "it lowers the objective, but something is left to wish for"
    BAD = "it does not lower the objective as promised"


@dataclass(frozen=True)
class Step:
    """A step that damping decided on.

    Attributes:
        x: θ̂ − θ0.
        damping: δ.
        least: The damping that was tried first.
        promised: The change of the objective that its quadratic model predicts, below 0.
        bend: xᵀHx.
        tries: Dampings tried, this one included.
        space: The products it was made from.
    """

    x: Tensor
    damping: float
    least: float
    promised: float
    bend: float
    tries: int
    space: Krylov


@dataclass(frozen=True)
class InfluenceStep(Method):
    """Options of the influence step.

    Attributes:
        curvature: ``"gauss-newton"`` (positive, the default) or ``"hessian"`` (the paper's).
        graph: Where the curvature is taken: the ``"remaining"`` graph (better) or the ``"original"`` (the paper's).
        solver: ``"cg"``, conjugate gradients, or ``"neumann"``, the paper's recursion. By default the step is solved
            for in one Krylov space, whose products serve every damping that is tried.
        iterations: At most 60 products by default, at most 200 with cg, exactly 100 with neumann.
        damping: Added to the curvature. By default the least that the spectrum and the way training stopped allow,
            and for GIF more, as often as the step does not keep what it promised. One that is given is kept.
        tolerance: Relative residual to reach; 1e-4 with a given damping, 1e-2 otherwise.
        scale: neumann only. 1/λ of the paper; by default, ``"auto"``, the largest eigenvalue, with which the recursion
            converges wherever it can (it needs more than half of that, and no negative eigenvalue).
    """

    at_rest: ClassVar[str]
    rules: ClassVar[tuple[str, ...]] = ("damping", "step")
    checks: ClassVar[bool] = False
    bounded: ClassVar[bool] = True
    curvature: Literal["gauss-newton", "hessian"] = "gauss-newton"
    graph: Literal["remaining", "original"] = "remaining"
    solver: Literal["cg", "neumann"] | None = None
    iterations: int | None = None
    damping: float | None = None
    tolerance: float | None = None
    scale: float | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        choices = {
            "curvature": tuple(CURVATURES),
            "graph": ("remaining", "original"),
            "solver": (None, "cg", "neumann"),
        }
        for option, allowed in choices.items():
            if getattr(self, option) not in allowed:
                names = ", ".join(a for a in allowed if a)
                raise MethodError(f"{option} must be one of {names}, got {getattr(self, option)!r}")
        if self.scale is not None and self.solver != "neumann":
            raise MethodError("scale goes with solver='neumann' and does nothing otherwise; leave it out")
        if self.solver == "cg" and self.damping is None:
            raise MethodError("solver='cg' needs damping=…; leave solver out to have the damping found")
        for option in ("damping", "tolerance") if self.solver == "neumann" else ():
            if getattr(self, option) is not None:
                raise MethodError(f"{option} does nothing with solver='neumann'; leave it out")
        for option in ("iterations", "damping", "tolerance", "scale"):
            value = getattr(self, option)
            if value is None or (option == "scale" and value == "auto"):
                continue
            number = isinstance(value, int if option == "iterations" else int | float) and value < float("inf")
            if not (number and (value > 0 or (value == 0 and option == "damping"))):
                kind = "whole number" if option == "iterations" else "number"
                raise MethodError(f"{option} must be a positive {kind}, got {value!r}")
        if self.tolerance is not None and self.tolerance >= 1:
            raise MethodError(f"tolerance must be below 1, got {self.tolerance}: no step at all would satisfy it")

    @abstractmethod
    def vector(self, problem: Problem) -> Tensor:
        """The right-hand side v."""

    def judge(self, problem: Problem, step: Step) -> Verdict:
        """Whether a step does what its quadratic model promised; damping is raised until it does."""
        return Verdict.GOOD

    def refine(self, problem: Problem, step: Step) -> tuple[Tensor, dict[str, Any], tuple[str, ...]]:
        """Parameters after the step, what was done to make it better, and what to warn of."""
        return problem.theta + step.x, {}, ()

    def forget(self, problem: Problem) -> Outcome:
        """Solve for the step and take it."""
        v = self.vector(problem)
        details: dict[str, Any] = {"curvature": self.curvature, "curvature_on": f"{self.graph} graph"}
        if not bool(v.any()):
            return Outcome(problem.theta.clone(), details=details, warnings=(self.at_rest,))
        at = problem.at_remaining if self.graph == "remaining" else problem.at_original
        operator = products(self.curvature, at)
        recorded = operator.record()
        if problem.meter.device.type == "cuda":
            details["recorded"] = recorded
        if self.solver == "neumann":
            x, report = neumann(operator, v, scale=self._scale(operator, v), iterations=self.iterations or 100)
        elif self.damping is not None:
            x, report = conjugate_gradients(
                operator,
                v,
                damping=self.damping,
                tolerance=self.tolerance or TUNING.step.given_tolerance,
                iterations=self.iterations or TUNING.step.given_iterations,
            )
        else:
            return self.proceed(problem, operator, v, self.space(problem, operator, v), details)
        return Outcome(problem.theta + x, solve=report, details=details, warnings=report.warnings)

    def expect(self, problem: Problem) -> Expected:
        """As many products as the solver is allowed; fewer where the step is solved for before."""
        spare = OPERATOR + (2 * LOOKS + OPERATOR if problem.meter.device.type == "cuda" else 0)
        if self.solver == "neumann":
            products = (
                (self.iterations or 100) + 1 + (TUNING.baselines.scale_products if self.scale in (None, "auto") else 0)
            )
            return Expected("one influence step by the paper's recursion", 0, spare + 2 * products)
        if self.damping is not None:
            products = 2 * (self.iterations or TUNING.step.given_iterations) + 1
            return Expected("one influence step by conjugate gradients", 0, spare + 2 * products)
        products = (self.iterations or TUNING.step.products) + 1
        return Expected("one influence step", 0, spare + 2 * (products + TUNING.damping.tries))

    def _scale(self, operator: Operator, v: Tensor) -> float:
        if isinstance(self.scale, int | float):
            return float(self.scale)
        top = largest_eigenvalue(operator, v, steps=TUNING.baselines.scale_products)
        if top > 0:
            return top
        raise NoProgressError(
            f"the curvature has no positive eigenvalue (largest met: {top:.3g}), so the recursion has no scale; is the "
            "loss linear? Use method='finetune' or 'retrain'"
        )

    def space(self, problem: Problem, operator: Operator, v: Tensor) -> Krylov:
        """The products that solve the step for every damping that may be tried."""
        tolerance, products = self.tolerance or TUNING.step.tolerance, self.iterations or TUNING.step.products

        def enough(space: Krylov) -> bool:
            return space.solve(v, least_damping(space.values, problem.theta, problem.original_gradient))[1] <= tolerance

        return krylov(operator, v, products=products, enough=enough)

    def proceed(
        self, problem: Problem, operator: Operator, v: Tensor, space: Krylov, details: dict[str, Any]
    ) -> Outcome:
        """Take the step that the space gives, and refine it."""
        step = self.choose(problem, v, space)
        tolerance, products = self.tolerance or TUNING.step.tolerance, self.iterations or TUNING.step.products
        achieved = float((v - operator(step.x) - step.damping * step.x).norm() / v.norm())
        warning = f"the step was solved only to a relative residual of {achieved:.2g}; raise iterations={products}"
        report = SolveReport(
            solver="krylov",
            settings={"damping": step.damping, "tolerance": tolerance, "iterations": products},
            iterations=space.products,
            products=space.products + 1,
            relative_residual=achieved,
            converged=achieved <= tolerance,
            smallest_curvature=float(space.values[-1]),
            largest_curvature=float(space.values[0]),
            warnings=(warning,) if achieved > max(0.1, tolerance) else (),
        )
        theta, more, warnings = self.refine(problem, step)
        warnings = (*report.warnings, *warnings)
        return Outcome(theta, solve=report, details=details | more, warnings=warnings, checked=self.checks)

    def choose(self, problem: Problem, v: Tensor, space: Krylov) -> Step:
        """The least damping whose step is good; failing that the first that is fair."""
        least = damping = least_damping(space.values, problem.theta, problem.original_gradient)
        fair: Step | None = None
        for tries in range(1, TUNING.damping.tries + 1):
            x, _ = space.solve(v, damping)
            along, length = float(v @ x), float(x @ x)
            promised, bend = -(along + damping * length) / 2, along - damping * length
            step = Step(x, damping, least, promised, bend, tries, space)
            verdict = self.judge(problem, step)
            if verdict is Verdict.GOOD:
                return step
            if verdict is Verdict.FAIR and fair is None:
                fair = step
            damping *= TUNING.damping.raised_by
        if fair is not None:
            return fair
        highest = damping / TUNING.damping.raised_by
        raise NoProgressError(
            f"no step of any length lowers the local objective (damping raised to {highest:.3g}); {ASK}"
        )


def keeps_promise(problem: Problem, step: Step, change: float, moved: float | None) -> bool:
    """Whether a step that was tried did what its quadratic model said.

    Args:
        problem: What it is a step of.
        step: The step.
        change: By how much it changed its objective.
        moved: By how much it moved the outputs (mean KL), where that is known.
    """
    # For class probabilities the Gauss-Newton matrix is the Fisher information, so it predicts the mean KL.
    decay = float((problem.remaining.mu * step.x) @ step.x)
    predicted = max(step.bend - decay, 0.0) / 2 / problem.remaining.nodes.numel()
    return change <= TUNING.damping.kept * step.promised and (
        moved is None or moved <= TUNING.damping.stretch * predicted
    )

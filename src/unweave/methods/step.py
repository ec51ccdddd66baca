"""One influence step, θ̂ = θ0 + (H + δI)⁻¹ v: what GIF and IF share. They differ in v and in how they judge it."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

from torch import Tensor

from unweave._core.cuda_graphs import LOOKS
from unweave._core.tuning import TUNING
from unweave.curvature.damping import least_damping
from unweave.curvature.products import Curvature, products
from unweave.curvature.solvers import Krylov, Operator, SolveReport, conjugate_gradients, krylov
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import ASK, Problem
from unweave.objective.objective import Point

__all__ = ["InfluenceStep", "Step", "Verdict", "check_number", "keeps_promise", "prepare_products", "spare_passes"]

OPERATOR = 8
"""Passes that v and the curvature take at most before the first product."""


class Verdict(Enum):
    """What a step is worth once it has been tried."""

    GOOD = "it keeps its promise"
    FAIR = "it lowers the objective, but something is left to wish for"
    POOR = "it lowers the objective, but not as promised"
    SMALL = "it keeps its promise by its slopes, and the objective is rounded to more than that"
    BAD = "it does not lower the objective"


@dataclass(frozen=True)
class Step:
    """A step that damping decided on.

    Attributes:
        v: What pulls, the right-hand side that it was solved for.
        x: θ̂ − θ0.
        damping: δ.
        least: The damping that was tried first.
        promised: The change of the objective that its quadratic model predicts, below 0.
        bend: xᵀHx.
        tries: Dampings tried, this one included.
        space: The products it was made from.
    """

    v: Tensor
    x: Tensor
    damping: float
    least: float
    promised: float
    bend: float
    tries: int
    space: Krylov

    @classmethod
    def solved(cls, v: Tensor, damping: float, least: float, tries: int, space: Krylov) -> "Step":
        """The step for v with a damping, from products that are there already."""
        x, _ = space.solve(v, damping)
        along, length, inside = float(v @ x), float(x @ x), (space.basis.T @ x).cpu().double()
        promised = -(along + damping * length) / 2
        bend = float(inside @ space.tridiagonal @ inside)  # vᵀx − δ‖x‖² is nothing but rounding where δ is large
        return cls(v, x, damping, least, promised, bend, tries, space)

    def raised(self) -> "Step":
        """The same with more damping."""
        damping = TUNING.damping.raised_by * self.damping
        return Step.solved(self.v, damping, self.least, self.tries + 1, self.space)


@dataclass(frozen=True)
class InfluenceStep(Method):
    """Options of the influence step. Its curvature is the Gauss-Newton matrix, which is never negative.

    Attributes:
        damping: Added to the curvature. By default the least that the spectrum and the way training stopped allow, and
            more as often as the step does not keep what it promised. One that is given is kept.
        iterations: At most 60 products, or 200 with a given damping.
        tolerance: Relative residual to reach; 1e-4 with a given damping, 1e-2 otherwise.
    """

    at_rest: ClassVar[str]
    rules: ClassVar[tuple[str, ...]] = ("damping", "step")
    checks: ClassVar[bool] = False
    bounded: ClassVar[bool] = True
    gone: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("solver", "scale", "curvature", "graph"),
        "the paper's recursion, its scale, its Hessian and its graph are options of method 'gif-published'",
    )
    graph: ClassVar[Literal["remaining", "original"]] = "remaining"
    damping: float | None = None
    iterations: int | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        check_number("damping", self.damping, zero=True)
        check_number("iterations", self.iterations, whole=True)
        check_number("tolerance", self.tolerance)
        if self.tolerance is not None and self.tolerance >= 1:
            raise MethodError(f"tolerance must be below 1, got {self.tolerance}: no step at all would satisfy it")

    @abstractmethod
    def vector(self, problem: Problem) -> Tensor:
        """The right-hand side v."""

    def judge(self, problem: Problem, step: Step) -> Verdict:
        """Whether a step does what its quadratic model promised; damping is raised until it does."""
        return Verdict.GOOD

    def refine(self, problem: Problem, step: Step) -> tuple[Step, Tensor, dict[str, Any], tuple[str, ...]]:
        """The step as it is taken, the parameters after it, what was done to make it better, and what to warn of."""
        return step, problem.theta + step.x, {}, ()

    def forget(self, problem: Problem) -> Outcome:
        """Solve for the step and take it."""
        v = self.vector(problem)
        details: dict[str, Any] = {"curvature": "gauss-newton", "curvature_on": f"{self.graph} graph"}
        if not bool(v.any()):
            return Outcome(problem.theta.clone(), details=details, warnings=(self.at_rest,))
        operator, recorded = prepare_products(problem, "gauss-newton", self.graph)
        details |= recorded
        if self.damping is None:
            return self.proceed(problem, operator, v, self.space(problem, operator, v), details)
        x, report = conjugate_gradients(
            operator,
            v,
            damping=self.damping,
            tolerance=self.tolerance or TUNING.step.given_tolerance,
            iterations=self.iterations or TUNING.step.given_iterations,
        )
        return Outcome(problem.theta + x, solve=report, details=details, warnings=report.warnings)

    def expect(self, problem: Problem) -> Expected:
        """As many products as the solver is allowed; fewer where the step is solved for before."""
        spare = spare_passes(problem)
        if self.damping is not None:
            products = 2 * (self.iterations or TUNING.step.given_iterations) + 1
            return Expected("one influence step by conjugate gradients", 0, spare + 2 * products)
        products = (self.iterations or TUNING.step.products) + 1
        return Expected("one influence step", 0, spare + 2 * (products + TUNING.damping.tries))

    def space(self, problem: Problem, operator: Operator, v: Tensor) -> Krylov:
        """The products that solve the step for every damping that may be tried."""
        tolerance = self.tolerance or TUNING.step.tolerance

        def enough(space: Krylov) -> bool:
            return space.solve(v, least_damping(space.values, problem.theta, problem.original_gradient))[1] <= tolerance

        return krylov(operator, v, products=self.iterations or TUNING.step.products, enough=enough)

    def proceed(
        self, problem: Problem, operator: Operator, v: Tensor, space: Krylov, details: dict[str, Any]
    ) -> Outcome:
        """Take the step that the space gives, and refine it."""
        step, theta, more, warnings = self.refine(problem, self.choose(problem, v, space))
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
        warnings = (*report.warnings, *warnings)
        return Outcome(theta, solve=report, details=details | more, warnings=warnings, checked=self.checks)

    def choose(self, problem: Problem, v: Tensor, space: Krylov) -> Step:
        """The least damping whose step is good; failing that the first that is fair, or the shortest that is poor.

        A small one is as good where none before it lowered the objective; a shorter one still would tell no more.
        """
        least = least_damping(space.values, problem.theta, problem.original_gradient)
        step = Step.solved(v, least, least, 1, space)
        fair: Step | None = None
        poor: Step | None = None
        while True:
            verdict = self.judge(problem, step)
            if verdict is Verdict.GOOD:
                return step
            if verdict is Verdict.SMALL:
                return fair or poor or step
            if verdict is Verdict.FAIR and fair is None:
                fair = step
            poor = step if verdict is Verdict.POOR else poor
            if step.tries == TUNING.damping.tries:
                break
            step = step.raised()
        if (chosen := fair or poor) is not None:
            return chosen
        raise NoProgressError(
            f"no step of any length lowers the local objective (damping raised to {step.damping:.3g}); {ASK}"
        )


def check_number(option: str, value: object, *, whole: bool = False, zero: bool = False) -> None:
    """Refuse an option that is given and no positive number."""
    if value is None:
        return
    number = isinstance(value, int if whole else int | float) and value < float("inf")
    if not (number and (value > 0 or (zero and value == 0))):  # type: ignore[operator]
        raise MethodError(f"{option} must be a positive {'whole number' if whole else 'number'}, got {value!r}")


def prepare_products(problem: Problem, kind: str, graph: str) -> tuple[Curvature, dict[str, Any]]:
    """Products with the curvature of a kind at θ0 on one of the graphs, and what a receipt made on a GPU says of it."""
    operator = products(kind, problem.at_remaining if graph == "remaining" else problem.at_original)
    recorded = operator.record()
    return operator, {"recorded": recorded} if problem.meter.device.type == "cuda" else {}


def spare_passes(problem: Problem) -> int:
    """Passes that a step takes at most beside its products."""
    return OPERATOR + (2 * LOOKS + OPERATOR if problem.meter.device.type == "cuda" else 0)


def keeps_promise(problem: Problem, step: Step, point: Point, change: float) -> bool:
    """Whether a step that was tried did what its quadratic model said.

    Args:
        problem: What it is a step of.
        step: The step.
        point: Where it leads, of the objective whose curvature it was made with.
        change: By how much it changed its local problem.
    """
    if change > TUNING.damping.kept * step.promised:
        return False
    # For cross-entropy the Gauss-Newton matrix is the Fisher information of the training nodes, so it predicts their
    # mean KL; of other nodes it knows nothing.
    here, moved = point.objective, problem.training_change(point)
    decay = float((here.mu * step.x) @ step.x)
    predicted = max(step.bend - decay, 0.0) / 2 / here.mass
    return moved is None or not here.loss.fisher or moved <= TUNING.damping.stretch * predicted + problem.feigned

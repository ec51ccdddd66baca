"""GIF, the graph influence function (Wu et al., WWW'23, Theorem 2), and what it is the first step of."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from unweave._core.cuda_graphs import LOOKS
from unweave._core.tuning import TUNING
from unweave.curvature.birth import PASSES
from unweave.curvature.preparation import bend
from unweave.curvature.prepared import Prepared, stationarity
from unweave.curvature.solvers import Krylov, Operator, low_rank, minimise
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Outcome
from unweave.methods.confirm import beyond, confirmed, confirming_passes, eased, restless, saturated, still_falling
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.restart import Restart
from unweave.methods.step import OPERATOR, InfluenceStep, Step, Verdict, keeps_promise

__all__ = ["GIF"]

FRESH = 68
"""Passes without a prepared state, as a rule."""


@register
@dataclass(frozen=True)
class GIF(InfluenceStep):
    """θ̂ = θ0 + (H + δI)⁻¹ v with v = ∇ΔL(θ0), the gradient of the whole forgotten loss, and further steps like it.

    v counts the deleted nodes and also every training node whose prediction changes because a neighbour,
    an edge or a feature went. The procedure as published is ``gif-published``.

    The influence step is the first step of a quasi-Newton method on the remaining graph that starts with the
    curvature known from training. For a model that was trained to a minimum the method goes on, each further step at
    the price of one gradient, on L'; where the request is small beside the little gradient g at which training ended,
    on L'(θ) − (n'/n)⟨g, θ⟩, as a retraining ends at one like it. For any other model it minimises
    Q(θ) + ½δ‖θ − θ0‖² with Q(θ) = L'(θ) − (n'/n)⟨∇L0(θ0), θ⟩ and a damping δ that the first step confirms. n'/n, the
    share of the training nodes that remain, is there because training follows the *mean* loss: short of a minimum, a
    deletion does not make the slope at which training stopped any smaller.

    Attributes:
        steps: Gradients on the remaining graph after the first, or ``"auto"``: up to 120 at a minimum, until what is
            left is little beside the whole fall, or beside what another seed differs by where that is known (beyond 2 %
            of the passes of training each has to promise a thousandth of the whole fall; where examples are pairs a
            hundredth beyond 4 %, and 5 % is the end), and 16 where the request pulls less than what training left;
            elsewhere 4 from a prepared state, or one influence step and up to 7 corrections. With 1, or with a damping
            that is given, the influence step alone; with the latter for v as in the paper.
        prepared: What :func:`unweave.prepare` computed once after training: every step then costs one gradient.
            Without it the curvature is computed for the request, and the receipt says what that cost.
    """

    name: ClassVar[str] = "gif"
    at_rest: ClassVar[str] = (
        "no training node's loss changes, so the parameters are already those of the remaining graph"
    )
    rules: ClassVar[tuple[str, ...]] = ("minimum", "damping", "step")
    checks: ClassVar[bool] = True
    changes: ClassVar[bool] = True
    steps: int | Literal["auto"] = "auto"
    prepared: Prepared | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps != "auto" and not (isinstance(self.steps, int) and self.steps >= 1):
            raise MethodError(f"steps must be 'auto' or a whole number of at least 1, got {self.steps!r}")
        if self.prepared is not None and not isinstance(self.prepared, Prepared):
            raise MethodError(
                f"prepared must be what unweave.prepare gives (or .prepared of unweave.polish), got "
                f"{type(self.prepared).__name__}"
            )
        if self.steps not in ("auto", 1) and self.damping is not None:
            raise MethodError("damping belongs to one influence step and does nothing with steps > 1; leave it out")

    def vector(self, problem: Problem) -> Tensor:
        """∇ΔL(θ0), or −∇Q(θ0) where the method sets itself; at a minimum they are the same."""
        return _pull(problem) if self.damping is None else problem.forgotten_gradient

    def judge(self, problem: Problem, step: Step) -> Verdict:
        """Q must fall by a quarter of what was promised, the outputs go no farther than predicted.

        Its gradient should not grow; along negative curvature it grows however short the step, so that alone is no
        reason to refuse.
        """
        local, point = problem.local(problem.share), problem.remaining.at(problem.theta + step.x)
        change, small = local.resolved(point, step.v)
        if not keeps_promise(problem, step, point, change):
            return Verdict.POOR if change < 0 else Verdict.BAD
        if small:
            return Verdict.SMALL
        grows = float(local.gradient(point).norm()) > float(step.v.norm())
        return Verdict.FAIR if grows else Verdict.GOOD

    def refine(self, problem: Problem, step: Step) -> tuple[Step, Tensor, dict[str, Any], tuple[str, ...]]:
        """Go on minimising Q + ½δ‖θ − θ0‖² from where the influence step led, by gradients alone.

        The damping is raised until no more of ∇Q is left than a rehearsal may leave (:mod:`unweave.curvature.damping`);
        where none does that well, the one that does best is taken.
        """
        jumps = () if self._again.polished else restless(problem, step.space.low_rank(), step.damping, step.promised)
        spent, found = step.tries, list[tuple[float, Step, Tensor, int]]()
        for _ in range(TUNING.damping.rehearsals):
            theta, gradient, steps, evaluations = self._corrected(problem, step)
            spent += evaluations
            left = float(gradient.norm() / step.v.norm())
            found.append((left if math.isfinite(left) else math.inf, step, theta, steps))
            if found[-1][0] <= TUNING.damping.left:
                break
            step = step.raised()
        _, step, theta, steps = min(found, key=lambda each: each[0])
        known, damping = step.space.low_rank(), step.damping
        theta, shortened, doubts = confirmed(problem, theta, None, lambda: still_falling(problem, known, damping))
        details = {"steps": steps, "evaluations": 1 + spent} | shortened | ({"restless": True} if jumps else {})
        return step, theta, details, (*jumps, *beyond(problem, step.damping / step.least), *doubts)

    def _corrected(self, problem: Problem, step: Step) -> tuple[Tensor, Tensor, int, int]:
        """Parameters after a step and its corrections, ∇Q there, the steps and the gradients spent."""
        local = problem.local(problem.share, step.damping)
        theta = problem.theta + step.x
        value, gradient = local.at(problem.remaining.at(theta))
        steps, spent = 1, 1
        if self.steps != 1:
            curvature, seen = step.space.low_rank(), [(theta, gradient)]

            def evaluate(theta: Tensor) -> tuple[float, Tensor]:
                height, slope = local.at(problem.remaining.at(theta))
                seen.append((theta, slope))
                return height, slope

            theta, found = minimise(
                evaluate,
                theta,
                value,
                gradient,
                lambda g: curvature.solve(g, step.damping),
                evaluations=self._corrections,
                tolerance=TUNING.step.enough * float(step.v.norm()),
                lowest=TUNING.step.drift * step.promised,
            )
            gradient = next(slope for there, slope in seen if there is theta)
            steps, spent = 1 + found.steps, 1 + found.evaluations
        return theta, gradient - step.damping * (theta - problem.theta), steps, spent

    @property
    def _again(self) -> Restart:
        return Restart(self.steps, self.prepared)

    @property
    def _corrections(self) -> int:
        """Gradients that follow the influence step."""
        return TUNING.step.corrections if self.steps == "auto" else self.steps - 1

    def forget(self, problem: Problem) -> Outcome:
        """Restart the minimisation on the remaining graph, or take one influence step and refine it."""
        ready = self._serving(problem)
        if ready is None:
            return super().forget(problem)
        damping = None if ready.at_minimum else ready.damping
        try:
            outcome = self._again.begin(problem, ready.to(problem.theta.device).curvature, damping, ready.when)
        except NoProgressError:
            if not saturated(problem):
                raise
            # What the request made of such a model has another curvature than what was prepared; this computes it.
            outcome = super().forget(problem)
            return replace(outcome, details=outcome.details | {"prepared": "of no use for this request"})
        if ready.agreement is not None:
            luck = {} if ready.luck is None else {"luck": ready.luck}
            outcome = replace(outcome, details=outcome.details | {"agreement": ready.agreement} | luck)
        if damping is not None:
            left = ready.stationarity
            taken, point, length = eased(problem, problem.local(problem.share), outcome.theta, outcome.point)
            theta, shortened, doubts = confirmed(
                problem, taken, point, (lambda: left) if left > TUNING.step.unfinished else None
            )
            eases = {"halved_to": length} if length < 1 else {}
            outcome = replace(
                outcome,
                theta=theta,
                point=point if theta is taken else None,
                details=outcome.details | eases | shortened,
                warnings=(*beyond(problem, ready.raised, ready.left), *outcome.warnings, *doubts),
            )
        worn = ready.worn(problem.original.stored_edges, problem.original.nodes.numel())
        if worn <= TUNING.minimum.worn:
            return outcome
        warning = f"{worn:.0%} of the graph went since the curvature was computed; call unweave.prepare anew"
        return replace(outcome, warnings=(*outcome.warnings, warning))

    @property
    def passes(self) -> float:
        """Two for each gradient from a prepared state; without one the curvature costs most."""
        if self.prepared is None or self.damping is not None:
            return FRESH
        usual = TUNING.step.usual if self.prepared.at_minimum else TUNING.step.damped_steps
        return 2 * (usual if self.steps == "auto" else self.steps)

    def expect(self, problem: Problem) -> Expected:
        """A gradient a step from a prepared state; without one at most what the longer of two ways would take."""
        ready, recorded = self._serving(problem), 2 * LOOKS if problem.meter.device.type == "cuda" else 0
        first = TUNING.search.first
        confirming = confirming_passes(problem, None if ready is None else ready.stationarity)
        if ready is not None:
            most = recorded + 2 * max(self._again.most(problem, damped=not ready.at_minimum), first)
            if ready.at_minimum:
                most += 0 if problem.flat else 2 * first  # once more, without the gradient that was kept
                if problem.remaining.task is not None:
                    most += PASSES + 2
                if problem.flat and self.steps == "auto" and ready.whole:
                    bound = int(TUNING.step.most * ready.whole - problem.meter.passes) - 2  # of the look at the end
                    most = min(most, max(bound, 2 * first + PASSES + 2))
                return Expected("a restart of the minimisation, with the prepared curvature", 2, most, settled=True)
            # On such a model, where that leads nowhere, the curvature is computed for the request.
            anew = (replace(self, prepared=None).expect(problem).most or 0) if saturated(problem) else 0
            how = "one damped influence step and corrections, with the prepared curvature"
            return Expected(how, 2, most + 2 * TUNING.step.halvings + confirming + anew, settled=True)
        known = super().expect(problem)
        if known.most is None or self.damping is not None or not bool(problem.forgotten_gradient.any()):
            return known
        tried = TUNING.damping.rehearsals
        if self.steps == 1:
            return replace(known, most=known.most + 2 * tried + confirming)
        corrections = tried * (2 + 2 * max(self._corrections, first)) + confirming
        restart = recorded + 2 * (TUNING.spectrum.rank + TUNING.spectrum.spare)
        restart += 2 * (max(self._again.most(problem, damped=False), first) + first)
        restart += 0 if problem.remaining.task is None else PASSES + 2
        further = OPERATOR + 2 * TUNING.spectrum.bend_products + max(corrections, restart)
        how = "one influence step and corrections, or at a minimum a restart with curvature computed for this request"
        return replace(known, how=how, most=known.most + further, settled=True)

    def _serving(self, problem: Problem) -> Prepared | None:
        """The prepared state, where it is what the steps start from; one that belongs to something else is refused."""
        ready = self.prepared
        if ready is not None and ready.parameters != problem.digest:
            raise MethodError("prepared= belongs to other parameters; call unweave.prepare on this model")
        if ready is not None:
            ready.refuse_another(problem.original_value)
        serves = ready is not None and (ready.at_minimum or ready.damping > 0) and self.damping is None
        if ready is None or not serves or not bool(problem.forgotten_gradient.any()):
            return None
        return ready.enlarged(problem.places, problem.remaining.model)

    def proceed(
        self, problem: Problem, operator: Operator, v: Tensor, space: Krylov, details: dict[str, Any]
    ) -> Outcome:
        """Find out whether training ended at a minimum, where nobody has said so."""
        if self.steps == 1 or not self._at_minimum(problem, space):
            outcome = super().proceed(problem, operator, v, space, details)
            return replace(outcome, solved=problem.local(problem.share))
        passes = problem.meter.passes
        curvature = low_rank(operator, problem.theta)
        spent = problem.meter.passes - passes + 2 * space.products
        return self._again.begin(problem, curvature, None, f"for this request, {spent} passes")

    def _at_minimum(self, problem: Problem, space: Krylov) -> bool:
        """As much as the products for this request tell."""
        left = stationarity(space.low_rank(), problem.original_gradient, problem.original_value)
        return left <= TUNING.minimum.gain and bend(problem.original, problem.theta) >= TUNING.minimum.saddle


def _pull(problem: Problem) -> Tensor:
    """−∇Q(θ0)."""
    gone = 1 - problem.share
    return problem.forgotten_gradient - gone * problem.original_gradient if gone else problem.forgotten_gradient

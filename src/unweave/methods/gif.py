"""GIF, the graph influence function (Wu et al., WWW'23, Theorem 2), and what it is the first step of."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from unweave._core.cuda_graphs import LOOKS
from unweave._core.tuning import TUNING
from unweave._core.tuning.steps import Dear
from unweave.certificate.bound import most_passes
from unweave.curvature.birth import PASSES, Born, born
from unweave.curvature.local import LocalProblem
from unweave.curvature.preparation import bend
from unweave.curvature.prepared import Prepared, stationarity
from unweave.curvature.solvers import Krylov, LowRank, MinimiseReport, Operator, low_rank, minimise
from unweave.errors import MethodError, NoProgressError
from unweave.methods.base import Expected, Outcome
from unweave.methods.confirm import beyond, confirmed, confirming_passes, eased, restless, saturated, still_falling
from unweave.methods.left import kept, left_by_training, most_to_gain
from unweave.methods.problem import ASK, Problem
from unweave.methods.registry import register
from unweave.methods.rows import passes_for_rows
from unweave.methods.step import OPERATOR, InfluenceStep, Step, Verdict, keeps_promise
from unweave.objective.objective import Point

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
        jumps = () if self._polished else restless(problem, step.space.low_rank(), step.damping, step.promised)
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
            outcome = self._restart(problem, ready.to(problem.theta.device).curvature, damping, ready.when)
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
            most = recorded + 2 * max(self._most(problem, damped=not ready.at_minimum), first)
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
        restart += 2 * (max(self._most(problem, damped=False), first) + first)
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

    def _most(self, problem: Problem, *, damped: bool) -> int:
        """Gradients that a restart may take."""
        if self.steps != "auto":
            return self.steps
        if damped:
            return TUNING.step.damped_steps
        bound = self._within(problem, TUNING.step.most, TUNING.step.pairs[-1].least + 1) if problem.flat else None
        return TUNING.step.steps if bound is None else min(TUNING.step.steps, bound)

    @property
    def _pays(self) -> float:
        """Share of the fall that may be left: so little, or little beside what seeds differ by where that is known."""
        agreement = None if self.prepared is None else self.prepared.agreement
        return TUNING.step.pays if agreement is None else max(TUNING.step.pays, TUNING.step.unseen * (1 - agreement))

    def _within(self, problem: Problem, share: float, least: int) -> int | None:
        """Gradients that a restart may still take for all passes to be a share of those of training, where known."""
        if self.prepared is None or not self.prepared.whole:
            return None
        after = passes_for_rows(problem) + most_passes(problem.remaining)  # once the restart has ended
        return max(least, int((share * self.prepared.whole - problem.meter.passes - after) // 2))

    def _rules(self, problem: Problem) -> list[Dear]:
        """When a restart is no longer cheap on this graph."""
        rules = TUNING.step.pairs if problem.flat else TUNING.step.cheap
        return [rule for rule in rules if int(problem.original.data.num_nodes) >= rule.nodes]

    def _dear(self, problem: Problem) -> list[tuple[int, float]]:
        """After how many gradients of a restart how much must still be promised."""
        after = [(self._within(problem, rule.share, rule.least), rule.worth) for rule in self._rules(problem)]
        return [(gradients, worth) for gradients, worth in after if gradients is not None]

    def _ended(self, problem: Problem, found: MinimiseReport) -> str | None:
        """After what a restart ended because it was no longer cheap, where something was left to gain."""
        if (found.promised or 0.0) <= (TUNING.step.settled if problem.flat else self._rules(problem)[-1].worth):
            return None
        whole = 0.0 if self.prepared is None else self.prepared.whole
        share = f"{problem.meter.passes / whole:.1%} of the passes of training" if whole else ""
        return f"after {share or f'{found.evaluations} gradients'}"

    def _grown(self, problem: Problem) -> Born | None:
        """Dimensions of an embedding that the request gave a use for; no gradient would tell of them."""
        task = problem.remaining.task
        if task is None or float(problem.forgotten_gradient.norm()) < float(
            left_by_training(problem, self.prepared).norm()
        ):
            return None
        axes = task.dimensions(problem.remaining.model)
        return born(problem.remaining, problem.local(0.0), problem.remaining_gradient, axes)

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
        return self._restart(problem, curvature, None, f"for this request, {spent} passes")

    def _at_minimum(self, problem: Problem, space: Krylov) -> bool:
        """As much as the products for this request tell."""
        left = stationarity(space.low_rank(), problem.original_gradient, problem.original_value)
        return left <= TUNING.minimum.gain and bend(problem.original, problem.theta) >= TUNING.minimum.saddle

    @property
    def _polished(self) -> bool:
        """Whether training ended in steps that are shortened until they lower the objective, and so in no jump."""
        return self.prepared is not None and self.prepared.whole > 0

    def _restart(self, problem: Problem, curvature: LowRank, damping: float | None, when: str) -> Outcome:
        """Quasi-Newton steps that start with curvature already known: one gradient each, and no product at all.

        At a minimum, where no damping is given, they are steps on L', but for the gradient that training left where the
        request is small beside it (:mod:`unweave.methods.left`); elsewhere on Q + ½δ‖θ − θ0‖².
        """
        most = self._most(problem, damped=damping is not None)
        if damping is not None:
            return self._followed(problem, curvature, problem.local(problem.share, damping), when, most)
        left, passes = left_by_training(problem, self.prepared), problem.meter.passes
        small = self.steps == "auto" and float((problem.remaining_gradient - left).norm()) < float(left.norm())
        if small:
            most = min(most, TUNING.step.small_steps)
        dropped, held = 0, kept(problem, left, curvature)
        if held is not None:
            with suppress(NoProgressError):
                return self._followed(problem, curvature, held, when, most)
            dropped = int(problem.meter.passes - passes) // 2
            most = max(1, most - dropped)
            if self.steps == "auto":
                most = min(most, TUNING.step.unkept if small else TUNING.step.small_steps)
        outcome = self._followed(problem, curvature, problem.local(0.0), when, most)
        return replace(outcome, details=outcome.details | {"dropped_gradients": dropped}) if dropped else outcome

    def _followed(self, problem: Problem, curvature: LowRank, local: LocalProblem, when: str, most: int) -> Outcome:
        """These steps on a local problem; an error where none helps, or where they follow what training left."""
        start, damped = problem.remaining_gradient - local.slope, local.damping > 0
        size = float(start.norm())
        enough, limit, jumps = TUNING.step.enough * size, math.inf, tuple[str, ...]()
        if not damped:
            enough = min(enough, float(left_by_training(problem, self.prepared).norm()))
            limit = most_to_gain(problem, local, curvature)
        elif not self._polished:
            promised = float(start @ curvature.solve(start, local.damping)) / 2
            jumps = restless(problem, curvature, local.damping, promised)
        pays = most >= TUNING.step.recording + LOOKS or problem.remaining.recorded
        recorded = problem.remaining.record(problem.theta) if pays else "no: it would not pay"
        best: list[tuple[float, Tensor, Point, Tensor]] = []

        def evaluate(theta: Tensor) -> tuple[float, Tensor]:
            if float(local.slope @ (theta - problem.theta)) > limit:
                raise NoProgressError("steps follow what training left of its gradient, not the request")
            point = problem.remaining.look(theta)
            change, gradient = local.at(point)
            value = problem.remaining_value + change  # rounded as the minimisation sees it, so that both keep the same
            if not best or value <= best[0][0]:
                best[:] = [(value, theta, point, gradient)]
            return value, gradient

        begin, value, gradient = problem.theta, problem.remaining_value, start
        grown = None if damped else self._grown(problem)
        if grown is not None and (there := evaluate(grown.theta))[0] < value:
            begin, value, gradient = grown.theta, *there
        else:
            grown = None
        free = self.steps == "auto" and not damped
        theta, found = minimise(
            evaluate,
            begin,
            value,
            gradient,
            lambda g: curvature.solve(g, local.damping) if grown is None else grown.solve(curvature, g),
            evaluations=min(most, self._most(problem, damped=damped)),  # fewer once something is born
            tolerance=enough if self.steps == "auto" else 0.0,
            pays=self._pays if self.steps == "auto" else 0.0,
            settled=TUNING.step.settled if free else 0.0,
            dear=self._dear(problem) if free else (),
        )
        if not (found.steps or grown is not None) or not math.isfinite(found.value):
            raise NoProgressError(f"no step lowers the objective on the remaining graph; {ASK}")
        early, stays = self._ended(problem, found) if free else None, float(local.slope.norm())
        moved = theta - problem.theta
        details = {
            "objective": "Q" if damped else "L'",
            "prepared": when,
            **({"damping": local.damping} if damped else {}),
            "steps": found.steps,
            "evaluations": found.evaluations + 1 + (grown is not None),
            **({} if grown is None else {"born": len(grown.bends)}),
            "gradient": f"{size:.4g} → {found.gradient_norm:.4g}",
            **({"kept_gradient": stays, "gained_by_it": float(local.slope @ moved)} if stays and not damped else {}),
            **({} if early is None else {"ended": early}),
            **({"restless": True} if jumps else {}),
            **({"recorded": recorded} if problem.meter.device.type == "cuda" else {}),
        }
        point = best[0][2] if best[0][1] is theta else None
        if damped:
            return Outcome(theta, details=details, warnings=jumps, checked=True, point=point, solved=local)
        left = found.gradient_norm + stays if point is None else float((best[0][3] + local.slope).norm())
        warning = (
            f"{found.evaluations} gradients lowered the objective but left a larger gradient than they found (see "
            "details); ask for more steps, or use method='retrain'"
        )
        stopped = (
            f"it ended {early}, where one more gradient promised {found.promised or 0:.2%} of all that was gained; "
            "more steps come nearer"
        )
        return Outcome(
            theta,
            details=details,
            warnings=((warning,) if found.gradient_norm > size else ()) + (() if early is None else (stopped,)),
            checked=True,
            point=point,
            solved=local,
            bent=(found.smallest_curvature, left),
        )


def _pull(problem: Problem) -> Tensor:
    """−∇Q(θ0)."""
    gone = 1 - problem.share
    return problem.forgotten_gradient - gone * problem.original_gradient if gone else problem.forgotten_gradient

"""A restart: the minimisation goes on, on the remaining graph, with curvature that is known: one gradient a step."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from unweave._core.cuda_graphs import LOOKS
from unweave._core.tuning import TUNING
from unweave._core.tuning.steps import Dear
from unweave.certificate.bound import most_passes
from unweave.curvature.birth import Born, born
from unweave.curvature.local import LocalProblem
from unweave.curvature.prepared import Prepared
from unweave.curvature.solvers import LowRank, MinimiseReport, minimise
from unweave.errors import NoProgressError
from unweave.methods.base import Outcome
from unweave.methods.confirm import restless
from unweave.methods.left import kept, left_by_training, most_to_gain
from unweave.methods.problem import ASK, Problem
from unweave.methods.rows import passes_for_rows
from unweave.objective.objective import Point

__all__ = ["Restart"]


@dataclass(frozen=True)
class Restart:
    """How far a restart goes.

    Attributes:
        steps: Gradients at most, or ``"auto"``: until they no longer pay.
        prepared: What training left, where that is known.
    """

    steps: int | Literal["auto"]
    prepared: Prepared | None

    @property
    def polished(self) -> bool:
        """Whether training ended in steps that are shortened until they lower the objective, and so in no jump."""
        return self.prepared is not None and self.prepared.whole > 0

    def begin(self, problem: Problem, curvature: LowRank, damping: float | None, when: str) -> Outcome:
        """Quasi-Newton steps that start with curvature already known: one gradient each, and no product at all.

        At a minimum, where no damping is given, they are steps on L', but for the gradient that training left where the
        request is small beside it (:mod:`unweave.methods.left`); elsewhere on Q + ½δ‖θ − θ0‖².
        """
        most = self.most(problem, damped=damping is not None)
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
        elif not self.polished:
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
            evaluations=min(most, self.most(problem, damped=damped)),  # fewer once something is born
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

    def most(self, problem: Problem, *, damped: bool) -> int:
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

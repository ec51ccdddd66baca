"""Minimise an objective from where training ended, by prepared quasi-Newton steps."""

import math
from typing import Any

from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.preparation import rank_for
from unweave.curvature.products import products
from unweave.curvature.solvers import LowRank, Memory, krylov, minimise, random_like, still_to_fall
from unweave.errors import ModelError, RequestError
from unweave.graph.draw import draw
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.running_stats import refresh
from unweave.training.adam import Progress

__all__ = ["follow", "polish_objective", "refuse_no_decay", "without_some"]


def refuse_no_decay(objective: Objective) -> None:
    """Without weight decay the minimum may lie at infinity, and there are flat directions to drift along."""
    if not bool(objective.decay.any()):
        raise ModelError("a model can be brought to a minimum only with weight_decay above 0; train it with some")


def polish_objective(
    objective: Objective, *, evaluations: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Minimise an objective in place, from the parameters its module holds; returns what was reached and spent.

    Running statistics are taken anew once, and then held: what is minimised is one function. Taken anew on the way they
    undo more than the gradients between gain, so that a polish may end higher than it began.

    Args:
        objective: With the module.
        evaluations: So many gradients; by default as many as lower the objective by something beside what following a
            typical deletion does.
        progress: Called with (gradients done, gradients at most).
    """
    passes = objective.meter.passes
    refresh(objective.model.eval(), objective.data, objective.forward)
    theta = flatten(objective.model)
    value, gradient = objective.evaluate(theta)
    before, first = value, float(gradient.norm())
    objective.record(theta)
    tolerance = TUNING.polish.tolerance * first
    spent, multiplied, due, serves, rank = 0, 0, 0, TUNING.polish.stretch, rank_for(objective)
    most = TUNING.polish.evaluations if evaluations is None else evaluations
    some = without_some(objective) if evaluations is None else None
    smallest: float | None = None
    fell, paid, followed = math.inf, True, math.inf
    while spent < most and float(gradient.norm()) > tolerance:
        if fresh := spent >= due:
            operator = products("gauss-newton", objective.at(theta))
            operator.record()
            space = krylov(operator, random_like(theta), products=rank + TUNING.spectrum.spare)
            del operator  # as large as what comes next
            curvature, multiplied = space.low_rank(rank), multiplied + space.products
            del space
            memory = Memory(theta, curvature.solve, min(TUNING.search.memory, most - spent))
            due, serves = spent + serves, min(2 * serves, TUNING.polish.refresh)
        theta, found = minimise(
            objective.evaluate,
            theta,
            value,
            gradient,
            memory,
            evaluations=min(TUNING.polish.stretch, due - spent, most - spent),
            tolerance=tolerance,
        )
        spent += found.evaluations
        load_flat(objective.model, theta)
        met = found.smallest_curvature
        smallest = met if smallest is None else smallest if met is None else min(smallest, met)
        was = value
        value, gradient = objective.evaluate(theta)
        if progress is not None:
            progress(spent, most)
        if not found.steps:
            if fresh:
                break
            due = spent
            continue
        left, fell = still_to_fall(fell, was - value), was - value
        if some is not None:
            # One poor stretch is no end: with fresh curvature the next one may fall as before.
            effect, before_that = _effect(some, theta, gradient, curvature), paid
            if left <= TUNING.polish.pays * effect and followed == math.inf:
                followed = follow(some, theta, curvature, TUNING.polish.stretch)[1]
            paid = left > TUNING.polish.pays * min(effect, followed)
            if not (paid or before_that):
                break
            due = due if paid else spent
    few = min(int(TUNING.polish.further * spent), most - spent)
    if evaluations is None and few and float(gradient.norm()) <= tolerance:
        theta, further = _closer(objective, theta, value, gradient, memory, few)
        spent, (value, gradient) = spent + further, objective.evaluate(theta)
    return {
        "gradient_norm": float(gradient.norm()),
        "gradient_norm_before": first,
        "objective": value,
        "objective_before": before,
        "smallest_curvature": smallest,
        "evaluations": spent,
        "products": multiplied,
        "passes": objective.meter.passes - passes,
    }


def _closer(
    objective: Objective, theta: Tensor, value: float, gradient: Tensor, memory: Memory, evaluations: int
) -> tuple[Tensor, int]:
    """Go on until one more step promises hardly anything; returns where that leads, and what it took."""
    little = TUNING.polish.little * abs(value)
    theta, found = minimise(
        objective.evaluate, theta, value, gradient, memory, evaluations=evaluations, tolerance=0.0, until=little
    )
    load_flat(objective.model, theta)
    return theta, found.evaluations


def without_some(objective: Objective, seed: int = 0) -> Objective | None:
    """The objective after a typical deletion, of another kind for every seed; ``None`` where nothing can be deleted."""
    first = seed % len(objective.kinds)
    for what in (*objective.kinds[first:], *objective.kinds[:first]):
        try:
            return objective.without(draw(f"{what}:{TUNING.polish.typical}", objective.data, seed=seed))
        except RequestError:  # there are none, or too few to draw one
            continue
    return None


def _effect(remaining: Objective, theta: Tensor, gradient: Tensor, curvature: LowRank) -> float:
    """By how much following a deletion lowers the objective that remains, by a quadratic model of it."""
    pull = remaining.evaluate(theta)[1] - gradient
    return float(pull @ curvature.solve(pull)) / 2


def follow(remaining: Objective, theta: Tensor, curvature: LowRank, evaluations: int) -> tuple[Tensor, float]:
    """Follow a deletion as a request would; returns where that leads, and by how much it lowers what remains.

    With little decay, much of the curvature is below what the model of it knows, and a quadratic promises far too
    much: by its measure a polish would end too early.
    """
    value, gradient = remaining.evaluate(theta)
    new, found = minimise(
        remaining.evaluate,
        theta,
        value,
        gradient,
        curvature.solve,
        evaluations=evaluations,
        tolerance=0.0,
        pays=TUNING.step.pays,
        settled=TUNING.step.settled,
    )
    return new, value - found.value

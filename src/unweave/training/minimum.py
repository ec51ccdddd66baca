"""Minimise an objective from where training ended, by prepared quasi-Newton steps."""

from typing import Any

from unweave._core.tuning import TUNING
from unweave.curvature.preparation import rank_for
from unweave.curvature.products import GaussNewton
from unweave.curvature.solvers import krylov, minimise, random_like
from unweave.errors import ModelError
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.running_stats import refresh
from unweave.training.adam import Progress

__all__ = ["polish_objective", "refuse_no_decay"]


def refuse_no_decay(objective: Objective) -> None:
    """Without weight decay the minimum may lie at infinity, and there are flat directions to drift along."""
    if not bool(objective.decay.any()):
        raise ModelError("a model can be brought to a minimum only with weight_decay above 0; train it with some")


def polish_objective(objective: Objective, *, evaluations: int, progress: Progress | None = None) -> dict[str, Any]:
    """Minimise an objective in place, from the parameters its module holds; returns what was reached and spent.

    Running statistics follow the parameters: they are taken anew whenever the curvature is.
    """
    passes = objective.meter.passes
    refresh(objective.model.eval(), objective.data, objective.forward)
    theta = flatten(objective.model)
    value, gradient = objective.evaluate(theta)
    before, first = value, float(gradient.norm())
    objective.record(theta)
    tolerance = TUNING.polish.tolerance * first
    spent, products, rank = 0, 0, rank_for(objective)
    smallest: float | None = None
    while spent < evaluations and float(gradient.norm()) > tolerance:
        operator = GaussNewton(objective.at(theta))
        operator.record()
        space = krylov(operator, random_like(theta), products=rank + TUNING.spectrum.spare)
        curvature, products = space.low_rank(rank), products + space.products
        del operator
        theta, found = minimise(
            objective.evaluate,
            theta,
            value,
            gradient,
            curvature.solve,
            evaluations=min(TUNING.polish.refresh, evaluations - spent),
            tolerance=tolerance,
        )
        spent += found.evaluations
        load_flat(objective.model, theta)
        refresh(objective.model, objective.data, objective.forward)
        met = found.smallest_curvature
        smallest = met if smallest is None else smallest if met is None else min(smallest, met)
        value, gradient = objective.evaluate(theta)
        if progress is not None:
            progress(spent, evaluations)
        if not found.steps:
            break
    return {
        "gradient_norm": float(gradient.norm()),
        "gradient_norm_before": first,
        "objective": value,
        "objective_before": before,
        "smallest_curvature": smallest,
        "evaluations": spent,
        "products": products,
        "passes": objective.meter.passes - passes,
    }

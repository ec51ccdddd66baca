"""Bring a trained model to a minimum of its objective, so that it can forget.

The theory of influence assumes that training ended at a minimum. Dropout, early stopping and a tiny weight decay leave
a point whose gradient is large and whose place is mostly luck; then an influence step cannot reproduce retraining,
because retraining itself is luck. At a minimum different seeds agree on the function, and a few quasi-Newton steps
on the remaining graph do what retraining would.
"""

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.curvature import GaussNewton
from unweave.errors import ModelError
from unweave.fitting import Progress
from unweave.losses import Loss, cross_entropy
from unweave.objective import Forward, Objective, WeightDecay, call, flatten, load_flat
from unweave.prepared import Prepared, checked_objective, prepare_objective
from unweave.solvers import low_rank, minimise

__all__ = ["POLISH", "Polished", "polish", "polish_objective", "refuse_no_decay"]

REFRESH = 60
"""Evaluations after which the curvature is computed anew."""

POLISH = 300
"""Evaluations that a polish may take."""

TOLERANCE = 1e-4
"""Share of the first gradient at which the polish is done."""


@dataclass(frozen=True)
class Polished:
    """A model at a minimum.

    Attributes:
        model: A new model; the caller's is untouched.
        prepared: The state that makes its requests cheap.
        report: Gradient norms (absolute, and by :attr:`Prepared.stationarity`), the smallest curvature met along a
            step, evaluations and passes.
    """

    model: nn.Module
    prepared: Prepared
    report: dict[str, Any]


def polish(
    model: nn.Module,
    data: Data,
    *,
    weight_decay: WeightDecay,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    evaluations: int = POLISH,
    progress: Progress | None = None,
) -> Polished:
    """Minimise L0 in eval mode from where training ended, by prepared quasi-Newton steps.

    Args:
        model: The trained module.
        data: The graph it was trained on.
        weight_decay: What it was trained with; above 0, or the minimum may lie at infinity.
        loss: Per-node loss it was trained with.
        forward: How to call it.
        evaluations: At most so many gradients.
        progress: Called with (evaluations done, evaluations).
    """
    own = copy.deepcopy(model)
    objective = checked_objective(own, data, weight_decay, loss, forward)
    refuse_no_decay(objective)
    report = polish_objective(objective, evaluations=evaluations, progress=progress)
    prepared = prepare_objective(objective, flatten(own))
    return Polished(own, prepared, report | {"stationarity": prepared.stationarity})


def refuse_no_decay(objective: Objective) -> None:
    """Without weight decay the minimum may lie at infinity, and there are flat directions to drift along."""
    if not bool(objective.decay.any()):
        raise ModelError("a model can be brought to a minimum only with weight_decay above 0; train it with some")


def polish_objective(objective: Objective, *, evaluations: int, progress: Progress | None = None) -> dict[str, Any]:
    """Minimise an objective in place, from the parameters its module holds; returns what was reached and spent."""
    passes = objective.meter.passes
    theta = flatten(objective.model)
    value, gradient = objective.evaluate(theta)
    before, first = value, float(gradient.norm())
    tolerance = TOLERANCE * first
    spent = 0
    smallest: float | None = None
    while spent < evaluations and float(gradient.norm()) > tolerance:
        curvature = low_rank(GaussNewton(objective.at(theta)), theta)
        theta, found = minimise(
            objective.evaluate,
            theta,
            value,
            gradient,
            curvature.solve,
            evaluations=min(REFRESH, evaluations - spent),
            tolerance=tolerance,
        )
        spent += found.evaluations
        met = found.smallest_curvature
        smallest = met if smallest is None else smallest if met is None else min(smallest, met)
        value, gradient = objective.evaluate(theta)
        if progress is not None:
            progress(spent, evaluations)
        if not found.steps:
            break
    load_flat(objective.model, theta)
    return {
        "gradient_norm": float(gradient.norm()),
        "gradient_norm_before": first,
        "objective": value,
        "objective_before": before,
        "smallest_curvature": smallest,
        "evaluations": spent,
        "passes": objective.meter.passes - passes,
    }

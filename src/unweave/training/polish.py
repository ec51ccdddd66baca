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

from unweave._core.tuning import TUNING
from unweave.curvature.preparation import checked_objective, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.curvature.products import GaussNewton
from unweave.curvature.solvers import krylov, minimise, random_like
from unweave.errors import ModelError
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.running_stats import refresh
from unweave.objective.scores import score
from unweave.training.adam import Progress

__all__ = ["Polished", "polish", "polish_objective", "refuse_no_decay"]


@dataclass(frozen=True)
class Polished:
    """A model at a minimum.

    Attributes:
        model: A new model; the caller's is untouched.
        prepared: The state that makes its requests cheap.
        warnings: What the user should know.
        report: Gradient norms before and after, :attr:`Prepared.stationarity`, the smallest curvature met along a
            step, F1 before and after on the masks there are, gradients, curvature products and passes spent.
    """

    model: nn.Module
    prepared: Prepared
    report: dict[str, Any]
    warnings: tuple[str, ...] = ()


def polish(
    model: nn.Module,
    data: Data,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    evaluations: int = TUNING.polish.evaluations,
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
    loss = as_loss(loss)
    objective = checked_objective(own, data, as_weight_decay(weight_decay, model), loss, forward)
    refuse_no_decay(objective)
    report = polish_objective(objective, evaluations=evaluations, progress=progress)
    prepared = prepare_objective(objective, flatten(own))
    scores = score(own, data, loss, forward)
    scores |= {f"{key}_before": value for key, value in score(copy.deepcopy(model), data, loss, forward).items()}
    return Polished(own, prepared, report | {"stationarity": prepared.stationarity} | scores, _warn(prepared, scores))


def _warn(prepared: Prepared, scores: dict[str, float]) -> tuple[str, ...]:
    warnings = []
    if not prepared.at_minimum:
        warnings.append(f"no minimum was reached ({prepared.stationarity:.2g} of the objective is left to gain)")
    before, after = scores.get("val_f1_before"), scores.get("val_f1")
    if before is not None and after is not None and after < before - TUNING.polish.lost:
        warnings.append(f"validation F1 fell from {before:.3f} to {after:.3f}; polish with more weight decay (1e-2)")
    return tuple(warnings)


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
    spent = products = 0
    smallest: float | None = None
    while spent < evaluations and float(gradient.norm()) > tolerance:
        operator = GaussNewton(objective.at(theta))
        operator.record()
        space = krylov(operator, random_like(theta), products=TUNING.polish.products)
        curvature, products = space.low_rank(), products + space.products
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

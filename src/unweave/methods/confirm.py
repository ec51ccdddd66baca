"""Whether a step can be believed on a model that fits its training nodes almost perfectly.

There the loss is saturated: a step may lower the local objective and its gradient, and still have left the region in
which the curvature at θ0 says anything. How far the outputs of the training nodes move tells. Along a step x from θ0
their mean KL is ½ xᵀFx at first, with F their Fisher information, so that an eighth of the step moves them by a
sixty-fourth; where the whole step moves them by much less than that promises, or much more, it is shortened until it
does not. What it does to nodes that were not trained on is told by nobody, so that the receipt of such a model warns.
"""

from typing import Any

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.methods.problem import Problem
from unweave.objective.objective import Point

__all__ = ["confirmed", "confirming_passes"]

PROBED = 1 / 8
"""The share of a step that tells how far the whole of it should move the outputs."""


def saturated(problem: Problem) -> bool:
    """Whether the training nodes that remain are fitted so well that their curvature may say nothing."""
    fitted = float(problem.remaining_losses.mean()) < TUNING.step.saturated
    return fitted and problem.remaining.loss.fisher


def confirming_passes(problem: Problem) -> int:
    """Passes that :func:`confirmed` takes at most."""
    return 2 + TUNING.step.shortenings if saturated(problem) else 0


def confirmed(problem: Problem, theta: Tensor, point: Point | None) -> tuple[Tensor, dict[str, Any], tuple[str, ...]]:
    """The answer as far as it can be believed, what was done to it, and what to warn of.

    Args:
        problem: What the request poses.
        theta: The answer.
        point: L' there, where it was evaluated already.
    """
    if not saturated(problem):
        return theta, {}, ()
    x, length, least = theta - problem.theta, 1.0, TUNING.step.believed
    promised = _moved(problem, _at(problem, PROBED * x)) / PROBED**2
    ratio = first = _moved(problem, _at(problem, x) if point is None else point) / max(promised, 1e-300)
    for _ in range(TUNING.step.shortenings if promised > _noise(problem) else 0):
        if least <= ratio <= 1 / least:
            break
        length *= TUNING.step.shortened
        ratio = _moved(problem, _at(problem, length * x)) / (promised * length**2)
    shortened = length < 1
    what = (
        f"; it moved their outputs {first:.2g} times as far as their curvature says, and was shortened to {length:.2g} "
        "of its length"
    )
    warning = (
        f"how near this step comes to retraining cannot be confirmed: the model fits its training nodes so well (mean "
        f"loss {float(problem.remaining_losses.mean()):.2g}) that they say little about other nodes"
        f"{what if shortened else ''}. Rehearse a deletion (Run.rehearse) to see what a step is worth here, use "
        "method='retrain' where it matters, or train with more weight decay"
    )
    details: dict[str, Any] = {"confirmed": False, **({"shortened_to": round(length, 3)} if shortened else {})}
    return problem.theta + length * x if shortened else theta, details, (warning,)


def _at(problem: Problem, x: Tensor) -> Point:
    with torch.no_grad():
        return problem.remaining.at(problem.theta + x)


def _moved(problem: Problem, point: Point) -> float:
    return problem.training_change(point) or 0.0


def _noise(problem: Problem) -> float:
    """The mean KL that rounding of the outputs may feign."""
    outputs = problem.remaining_outputs
    return 100 * (torch.finfo(outputs.dtype).eps * float(outputs.abs().max())) ** 2

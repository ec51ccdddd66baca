"""Whether a step can be believed on a model that fits its training nodes almost perfectly, or hardly yet.

In the first case the loss is saturated: a step may lower the local objective and its gradient, and still have left the
region in which the curvature at θ0 says anything. How far the outputs of the training nodes move tells. Along a step x
from θ0 their mean KL is ½ xᵀFx at first, with F their Fisher information, so that an eighth of the step moves them by a
sixty-fourth; where the whole step moves them by much less than that promises, or much more, it is shortened until it
does not.

What it does to nodes that were not trained on is told by no curvature. There the request itself is the measure: when it
changed the graph under the model it moved the outputs by so much, and the answer, which is to make up for that, may not
move them as far. A step that does is shortened as well. How near it then is to retraining nobody knows, so that the
receipt of such a model warns.

Training that was stopped long before its end is not followed to the end by a retraining either, which stops as early. A
step that solves for where training without the data would lead goes too far, and the less training had done the more;
the request is the measure there as well.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.local import LocalProblem
from unweave.curvature.solvers import LowRank, minimise
from unweave.graph.index import among
from unweave.methods.problem import Problem
from unweave.objective.objective import Point
from unweave.request import ALL

__all__ = ["beyond", "confirmed", "confirming_passes", "eased", "restless", "saturated", "still_falling"]

PROBED = 1 / 8
"""The share of a step that tells how far the whole of it should move the outputs."""


def saturated(problem: Problem) -> bool:
    """Whether the training nodes were fitted so well that their curvature may say nothing.

    That is a matter of the training: a request may well make a few of them wrong, and their mean loss large.
    """
    return _fitted(problem) < TUNING.step.saturated and problem.remaining.loss.fisher


def confirming_passes(problem: Problem, left: float | None = None) -> int:
    """Passes that :func:`confirmed` takes at most.

    Args:
        problem: What the request poses.
        left: Share of the objective that training left to be gained, where that is known.
    """
    if saturated(problem):
        return 3 + TUNING.step.shortenings
    if left is not None and left <= TUNING.step.unfinished:
        return 0
    looks = 2 * TUNING.search.first if left is None else 0
    return 1 + TUNING.step.shortenings + looks if problem.remaining.loss.classes else 0


def eased(problem: Problem, local: LocalProblem, theta: Tensor, point: Point | None) -> tuple[Tensor, Point, float]:
    """A step halved for as long as it leaves more of its own problem's pull than a rehearsal may, and half leaves less.

    Args:
        problem: What the request poses.
        local: The problem, without damping.
        theta: Where the step leads.
        point: L' there, where it was evaluated already.

    Returns:
        Where what is taken of it leads, L' there, and which share of it that is.
    """
    x, length = theta - problem.theta, 1.0
    enough = TUNING.damping.left * float((problem.remaining_gradient - local.slope).norm())
    here = problem.remaining.look(theta) if point is None else point
    left = float(local.gradient(here).norm())
    for _ in range(TUNING.step.halvings):
        if left <= enough:
            break
        there = problem.remaining.look(problem.theta + length / 2 * x)
        if (less := float(local.gradient(there).norm())) >= left:
            break
        length, here, left = length / 2, there, less
    return theta if length == 1 else problem.theta + length * x, here, length


def still_falling(problem: Problem, curvature: LowRank, damping: float) -> float:
    """The share of its objective that training left to a few gradients; 0 where it had done most of its work.

    Args:
        problem: What the request poses.
        curvature: The top of its curvature.
        damping: Of the step that is to be confirmed.
    """
    _, found = minimise(
        problem.original.evaluate,
        problem.theta,
        problem.original_value,
        problem.original_gradient,
        lambda g: curvature.solve(g, damping),
        evaluations=TUNING.search.first,
        tolerance=0.0,
    )
    share = 1 - found.value / problem.original_value
    return share if share > TUNING.step.falling else 0.0


def confirmed(
    problem: Problem, theta: Tensor, point: Point | None, left: Callable[[], float] | None
) -> tuple[Tensor, dict[str, Any], tuple[str, ...]]:
    """The answer as far as it can be believed, what was done to it, and what to warn of.

    Args:
        problem: What the request poses.
        theta: The answer.
        point: L' there, where it was evaluated already.
        left: Tells the share of the objective that was still to be gained, 0 of a training that had done most of its
            work; asked of a step that goes far. ``None`` of one that is known to have.
    """
    if saturated(problem):
        return _confirmed_saturated(problem, theta, point)
    if left is None or not (farthest := _farthest(problem)):
        return theta, {}, ()
    x, length = theta - problem.theta, 1.0
    here = _at(problem, x) if point is None else point
    first = moved = problem.function_change(here) or 0.0
    if moved <= farthest or not (unfinished := min(left(), 1.0)):
        return theta, {}, ()
    most = (1 - unfinished) * farthest
    for _ in range(TUNING.step.shortenings):
        length *= min(TUNING.step.shortened, (most / moved) ** 0.5)  # far outputs move with the square of it
        moved = problem.function_change(_at(problem, length * x)) or 0.0
        if moved <= most:
            break
    warning = (
        f"training was far from its end ({unfinished:.0%} of the objective was still to be gained), and a retraining "
        f"that ends as early follows this request only in part: the step moved outputs "
        f"{first / problem.request_change:.2g} times as far as the removal itself, and was shortened to {length:.2g} "
        "of its length. Train for longer, or use method='retrain' where it matters"
    )
    return problem.theta + length * x, {"shortened_to": float(f"{length:.3g}")}, (warning,)


def _confirmed_saturated(
    problem: Problem, theta: Tensor, point: Point | None
) -> tuple[Tensor, dict[str, Any], tuple[str, ...]]:
    x, length, least = theta - problem.theta, 1.0, TUNING.step.believed
    promised = _moved(problem, _at(problem, PROBED * x)) / PROBED**2
    here, tells, most = _at(problem, x) if point is None else point, promised > problem.feigned, _farthest(problem)
    seen: list[tuple[float, float]] = []
    while True:
        ratio = _moved(problem, here) / (promised * length**2) if tells else 1.0
        beyond = (problem.function_change(here) or 0.0) / most if most else 0.0
        seen.append((ratio, beyond))
        believed = least <= ratio <= 1 / least and beyond <= 1
        if believed or len(seen) > TUNING.step.shortenings:
            break
        length *= min(TUNING.step.shortened, max(beyond, 1.0) ** -0.5)  # far outputs move with the square of it
        here = _at(problem, length * x)
    shortened = length < 1
    what = (
        f"; it moved their outputs {seen[0][0]:.2g} times as far as their curvature says, and all outputs "
        f"{seen[0][1]:.2g} times as far as it may, and was shortened to {length:.2g} of its length"
        f"{'' if believed else ', which is still too long'}"
    )
    warning = (
        f"how near this step comes to retraining cannot be confirmed: the model fits its training nodes so well (mean "
        f"loss {_fitted(problem):.2g}) that they say little about other nodes"
        f"{what if shortened else ''}. Rehearse a deletion (Run.rehearse) to see what a step is worth here, use "
        "method='retrain' where it matters, or train with more weight decay"
    )
    details: dict[str, Any] = {"confirmed": False, **({"shortened_to": float(f"{length:.3g}")} if shortened else {})}
    details |= {} if believed else {"too_long": True}
    return problem.theta + length * x if shortened else theta, details, (warning,)


def restless(problem: Problem, curvature: LowRank, damping: float, promised: float) -> tuple[str, ...]:
    """Say so when training had not come to rest.

    Any descent settles first along the direction of largest curvature, unless its steps are too long for that: then it
    jumps to and fro there, a retraining ends at another place of the jump, and the request pulls at where this one
    ended. So it is where most of the gradient that training left lies along that direction, and what would be gained
    there, by its quadratic model, is something beside what the step promises. It may also be a training that was cut
    off, so that the step is not refused. Of a model that fits its training nodes almost perfectly :func:`confirmed`
    tells, and one with a good part of its loss to gain there has hardly been trained.

    Args:
        problem: What the request poses.
        curvature: The top of its curvature.
        damping: Of the step.
        promised: By how much the step lowers Q, by its quadratic model.
    """
    if saturated(problem):
        return ()
    gradient = problem.original_gradient
    along = float(curvature.vectors[:, 0] @ gradient) ** 2
    gain = along / (float(curvature.values[0]) + damping) / 2
    left, share = gain / max(abs(promised), 1e-30), along / max(float(gradient @ gradient), 1e-30)
    hardly_begun = gain > TUNING.step.under_way * float(problem.remaining_losses.double().sum())
    if share <= TUNING.step.jumping or left <= TUNING.step.restless or hardly_begun:
        return ()
    return (
        f"training had not come to rest, so that this step may lead away from a retrained model: {share:.0%} of the "
        f"gradient that it left lies along the direction of largest curvature, where it jumps to and fro, and that "
        f"is worth {left:.2g} times what the step gains. Use method='retrain' or 'auto', train with a smaller "
        "learning rate, or bring the model to a minimum (forgettable=True, or unweave.polish)",
    )


def beyond(problem: Problem, raised: float, left: float = 0.0) -> tuple[str, ...]:
    """Say so when the request lies beyond what influence on this model is known to reproduce.

    Args:
        problem: What the request poses.
        raised: How many times the least damping the step had to be damped with.
        left: What a rehearsed request left of the gradient of its local problem, as a share.
    """
    reasons = []
    request, nodes, columns = problem.removal.request, problem.original.nodes, problem.original.width
    trained = among(torch.tensor(list(request.features), dtype=torch.long, device=nodes.device), nodes).tolist()
    changed = (columns if cols == ALL else len(cols) for cols in request.features.values())
    rows = [count for count, counts in zip(changed, trained, strict=True) if counts]
    pairs = problem.original.stored_edges / (2 if problem.removal.undirected else 1)
    shares = {
        "training nodes": 1 - problem.share,
        "edges": len(request.edges) / max(pairs, 1),
        "training nodes' features": sum(rows) / (columns * nodes.numel()),
    }
    what, share = max(shares.items(), key=lambda item: item[1])
    if share > TUNING.step.large:
        reasons.append(f"it takes {share:.0%} of the {what}")
    if raised > TUNING.step.hard:
        reasons.append(f"the step had to be damped {raised:.0f} times as much as usual")
    if left > TUNING.damping.left:
        reasons.append(f"a request that was rehearsed left {left:.0%} of the gradient of its local problem")
    if not reasons:
        return ()
    return (
        f"this request is beyond what an influence step reproduces on a model not trained to a minimum: "
        f"{' and '.join(reasons)}. Part of the way to a retrained model is left; use method='retrain' where that "
        "matters, train with forgettable=True, or bring the model to a minimum with unweave.polish",
    )


def _fitted(problem: Problem) -> float:
    """The mean loss that training ended at, with what L0(θ0) tells of it."""
    decay = float((problem.original.mu.double() * problem.theta.double()) @ problem.theta.double()) / 2
    return (problem.original_value - decay) / problem.original.mass


def _at(problem: Problem, x: Tensor) -> Point:
    with torch.no_grad():
        return problem.remaining.at(problem.theta + x)


def _moved(problem: Problem, point: Point) -> float:
    return problem.training_change(point) or 0.0


def _farthest(problem: Problem) -> float:
    """The mean KL by which a step may move the outputs of all nodes; 0, which is no bound, where a request moves none.

    That of labels alone does not, nor that of a node without neighbours; and only class probabilities tell.
    """
    change = problem.request_change if problem.remaining.loss.classes else 0.0
    return TUNING.step.farthest * change if change > problem.feigned else 0.0

"""Limited-memory quasi-Newton minimisation that starts from curvature already known (Nocedal, 1980).

Plain L-BFGS begins with no idea of the curvature and has to learn it from gradients. Here its initial inverse is
given, so that the first step already is a Newton step and every later one costs a single gradient.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Evaluate", "MinimiseReport", "minimise"]

Evaluate = Callable[[Tensor], tuple[float, Tensor]]
"""The value of the function at a point, and its gradient there."""

SUFFICIENT = 1e-4
SHRINK = (0.1, 0.6)
SHORTEST = 1e-5
FIRST = 8
"""Evaluations that finding a first step may take."""


@dataclass(frozen=True)
class MinimiseReport:
    """How a minimisation went.

    Attributes:
        evaluations: Gradients computed, the one at the start not counted.
        steps: Steps taken.
        gradient_norm: ‖gradient‖ where it ended.
        converged: Whether that is within the tolerance.
        value: The function there.
        smallest_curvature: Smallest curvature met along a step; below 0 where the function bends down.
    """

    evaluations: int
    steps: int
    gradient_norm: float
    converged: bool
    value: float
    smallest_curvature: float | None


def minimise(
    evaluate: Evaluate,
    x: Tensor,
    value: float,
    gradient: Tensor,
    inverse: Callable[[Tensor], Tensor] | None,
    *,
    evaluations: int,
    tolerance: float,
    lowest: float = -math.inf,
    memory: int = 30,
) -> tuple[Tensor, MinimiseReport]:
    """Minimise a function from its values and gradients.

    A step is accepted when the function falls in proportion to its slope; where the fall is too small for the
    precision of the values, the slopes at both ends decide. A rejected step is shortened; when no length of a
    direction is accepted the memory is dropped, and when that does not help either the search ends.

    Args:
        evaluate: Value and gradient at a point.
        x: Where to start.
        value: The function there.
        gradient: The gradient there.
        inverse: Product with the initial inverse curvature, positive definite; ``None`` for plain L-BFGS, which begins
            with a step of length 1 and scales by the latest pair.
        evaluations: At most so many gradients; a few more where none of these gave a first step.
        tolerance: Stop when ‖gradient‖ is at most this.
        lowest: Stop when the function is below this.
        memory: Pairs of steps and gradient differences to remember.
    """
    pairs: deque[tuple[Tensor, Tensor]] = deque(maxlen=memory)
    spent = taken = 0
    smallest: float | None = None

    def may_go_on() -> bool:
        return spent < (evaluations if taken else max(evaluations, FIRST))

    while may_go_on() and float(gradient.norm()) > tolerance and value > lowest:
        direction = -_two_loops(gradient, pairs, inverse)
        slope = float(gradient @ direction)
        length, accepted = 1.0, False
        while slope < 0 and may_go_on() and length >= SHORTEST:
            candidate = x + length * direction
            height, new = evaluate(candidate)
            spent += 1
            fall, noise = height - value, torch.finfo(x.dtype).eps * abs(value)
            if abs(fall) <= noise:
                fall = length * float((gradient + new) @ direction) / 2
            if torch.isfinite(new).all() and fall <= SUFFICIENT * length * slope:
                accepted = True
                break
            length *= _shrink(fall, length * slope)
        if not accepted:
            if not pairs:
                break
            pairs.clear()
            continue
        s, y = candidate - x, new - gradient
        bend = float(s @ y) / max(float(s @ s), 1e-300)
        smallest = bend if smallest is None else min(smallest, bend)
        if float(s @ y) > 1e-8 * float(s.norm() * y.norm()):
            pairs.append((s, y))
        x, value, gradient = candidate, height, new
        taken += 1
    norm = float(gradient.norm())
    return x, MinimiseReport(spent, taken, norm, norm <= tolerance, value, smallest)


def _shrink(fall: float, promised: float) -> float:
    """Where the parabola through the value, the slope and the rejected value has its minimum, within bounds."""
    least, most = SHRINK
    bend = fall - promised
    return min(max(-promised / (2 * bend), least), most) if math.isfinite(bend) and bend > 0 else least


def _two_loops(
    gradient: Tensor, pairs: deque[tuple[Tensor, Tensor]], inverse: Callable[[Tensor], Tensor] | None
) -> Tensor:
    """The inverse curvature times the gradient, with the remembered pairs on top of the initial inverse."""
    q = gradient.clone()
    weights = []
    for s, y in reversed(pairs):
        weight = (s @ q) / (s @ y)
        weights.append(weight)
        q = q - weight * y
    if inverse is not None:
        r = inverse(q)
    elif pairs:
        r = q * float(pairs[-1][0] @ pairs[-1][1]) / float(pairs[-1][1] @ pairs[-1][1])
    else:
        r = q / float(q.norm())
    for (s, y), weight in zip(pairs, reversed(weights), strict=True):
        r = r + (weight - (y @ r) / (s @ y)) * s
    return r

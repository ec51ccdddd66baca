"""Limited-memory quasi-Newton minimisation that starts from curvature already known (Nocedal, 1980).

Plain L-BFGS begins with no idea of the curvature and has to learn it from gradients. Here its initial inverse is
given, so that the first step already is a Newton step and every later one costs a single gradient.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unweave._core.tuning import TUNING

__all__ = ["Evaluate", "Memory", "MinimiseReport", "minimise", "still_to_fall"]

Evaluate = Callable[[Tensor], tuple[float, Tensor]]
"""The value of the function at a point, and its gradient there."""


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
        promised: What one more step promised, as a share of the whole fall, where it ended because that was too little,
            or no more gradients were allowed.
    """

    evaluations: int
    steps: int
    gradient_norm: float
    converged: bool
    value: float
    smallest_curvature: float | None
    promised: float | None = None


def still_to_fall(before: float, now: float) -> float:
    """What a function still falls by, at least ``now``, if its falls go on to shrink as from one stretch to the next.

    Args:
        before: Its fall over a stretch.
        now: That over the next one of the same length.
    """
    if now <= 0:
        return 0.0
    return max(now, now * now / (before - now)) if now < before else math.inf


def minimise(
    evaluate: Evaluate,
    x: Tensor,
    value: float,
    gradient: Tensor,
    inverse: "Callable[[Tensor], Tensor] | Memory | None",
    *,
    evaluations: int,
    tolerance: float,
    until: float = 0.0,
    lowest: float = -math.inf,
    pays: float = 0.0,
    settled: float = 0.0,
    dear: Sequence[tuple[int, float]] = (),
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
            with a step of length 1 and scales by the latest pair; or the memory of a minimisation that ended here, to
            go on with.
        evaluations: At most so many gradients; a few more where none of these gave a first step.
        tolerance: Stop when ‖gradient‖ is at most this.
        until: Stop when the next step, by the curvature known so far, promises a fall of no more than this.
        lowest: Stop when the function is below this.
        pays: Stop when what is left to fall, by the last two stretches of ``TUNING.search.window`` evaluations, is less
            than this share of all so far.
        settled: Stop when the next step, by the curvature known so far, promises a fall of less than this share of all
            so far.
        dear: After how many evaluations which other share takes the place of ``settled``, the first one first.
    """
    most = min(TUNING.search.memory, max(evaluations, TUNING.search.first))
    pairs = inverse if isinstance(inverse, Memory) else Memory(x, inverse, most)
    spent = taken = 0
    smallest: float | None = None
    promised: float | None = None

    def may_go_on() -> bool:
        return spent < (evaluations if taken else max(evaluations, TUNING.search.first))

    norm = float(gradient.norm())
    gained, marked, at, fell = 0.0, 0.0, 0, math.inf
    while may_go_on() and norm > tolerance and value > lowest:
        if pays and spent - at >= TUNING.search.window:
            before, fell = fell, gained - marked
            if taken and still_to_fall(before, fell) < pays * gained:
                break
            marked, at = gained, spent
        direction = -pairs.times(gradient)
        slope = float(gradient @ direction)
        if 0 < -slope / 2 <= until:
            break
        least = next((share for after, share in reversed(dear) if spent >= after), settled)
        if taken and least and -slope / 2 <= least * gained:
            promised = -slope / 2 / gained
            break
        length, accepted = 1.0, False
        while slope < 0 and may_go_on() and length >= TUNING.search.shortest:
            candidate = x + length * direction
            height, new = evaluate(candidate)
            spent += 1
            fall, noise = height - value, torch.finfo(x.dtype).eps * abs(value)
            if abs(fall) <= noise:
                fall = length * float((gradient + new) @ direction) / 2
            if fall <= TUNING.search.sufficient * length * slope and math.isfinite(size := float(new.norm())):
                accepted = True
                break
            length *= _shrink(fall, length * slope)
        if not accepted:
            if not len(pairs):
                break
            pairs.clear()
            continue
        s, y = candidate - x, new - gradient
        sy, ss, yy = torch.stack([s @ y, s @ s, y @ y]).tolist()
        bend = sy / max(ss, 1e-300)
        smallest = bend if smallest is None else min(smallest, bend)
        if sy > 1e-8 * math.sqrt(ss) * math.sqrt(yy):
            pairs.add(s, y)
        x, value, gradient, norm = candidate, height, new, size
        gained, taken = gained - fall, taken + 1
    if settled and taken and not may_go_on() and norm > tolerance and gained > 0:
        promised = float(gradient @ pairs.times(gradient)) / 2 / gained
    return x, MinimiseReport(spent, taken, norm, norm <= tolerance, value, smallest, promised)


def _shrink(fall: float, promised: float) -> float:
    """Where the parabola through the value, the slope and the rejected value has its minimum, within bounds."""
    least, most = TUNING.search.shrink
    bend = fall - promised
    return min(max(-promised / (2 * bend), least), most) if math.isfinite(bend) and bend > 0 else least


class Memory:
    """The latest pairs of steps s and gradient differences y, and the inverse curvature that they give.

    The two loops of L-BFGS run over numbers, not over vectors: with the products s_i·y_j and y_i·H₀y_j known, a
    direction takes two products with the remembered vectors and two sums of them, however many there are. These
    products are differences of those with two gradients, and cost nothing.

    Args:
        like: A vector of the length, type and device of those to come.
        inverse: Product with H₀; ``None`` for the identity, scaled by the latest pair.
        size: Pairs to remember, as far as there is room for them.
    """

    def __init__(self, like: Tensor, inverse: Callable[[Tensor], Tensor] | None, size: int) -> None:
        self._inverse = inverse
        size = min(size, max(TUNING.search.fewest, TUNING.search.numbers // (2 * like.numel())))
        self._vectors = like.new_empty(2, size, like.numel())  # s and H₀y of each pair
        self._across = np.zeros((2, size, size))  # s_i·y_j of i no later than j, and y_i·H₀y_j
        self._used: list[int] = []
        self._last, self._along = like, np.zeros((2, 0))  # H₀g, s_i·g and y_i·H₀g of the last gradient g
        self._next: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._used)

    def clear(self) -> None:
        """Forget every pair."""
        self._used.clear()
        self._along = np.zeros((2, 0))
        self._next = None

    def add(self, s: Tensor, y: Tensor) -> None:
        """Remember a pair, in place of the oldest where there is no room.

        Args:
            s: A step from where the last vector of :meth:`times` was the gradient.
            y: What is to be added to that gradient for the next.
        """
        self._next = s, y

    def times(self, g: Tensor) -> Tensor:
        """The inverse curvature times a gradient."""
        hg = g if self._inverse is None else self._inverse(g)
        steps, changed = self._vectors[:, : len(self._used)]
        along = _numbers(steps @ g, changed @ g)
        if self._next is not None:
            along = self._store(*self._next, g, hg, along)
            self._next = None
        self._last, self._along = hg, along
        if not self._used:
            return hg if self._inverse is not None else g / g.norm()
        order, n = np.array(self._used), len(self._used)
        steps, changed = self._vectors[:, :n]
        sy, yhy = (part[np.ix_(order, order)] for part in self._across)
        along_s, along_y = along[:, order]
        scale = 1.0 if self._inverse is not None else sy[-1, -1] / yhy[-1, -1]
        alpha, beta = np.zeros(n), np.zeros(n)
        for i in reversed(range(n)):
            alpha[i] = (along_s[i] - sy[i, i + 1 :] @ alpha[i + 1 :]) / sy[i, i]
        base = scale * (along_y - yhy @ alpha)
        for i in range(n):
            beta[i] = (base[i] + sy[:i, i] @ (alpha[:i] - beta[:i])) / sy[i, i]
        weights = np.zeros((2, n))
        weights[0, order], weights[1, order] = alpha - beta, -scale * alpha
        first, second = torch.from_numpy(weights).to(g)
        result: Tensor = scale * hg + first @ steps + second @ changed
        return result

    def _store(self, s: Tensor, y: Tensor, g: Tensor, hg: Tensor, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Keep a pair; returns what ``along`` is with it."""
        hy = y if self._inverse is None else hg - self._last
        with_y = along - self._along
        size = self._vectors.size(1)
        slot = self._used.pop(0) if len(self._used) == size else len(self._used)
        self._used.append(slot)
        n = len(self._used)
        self._vectors[0, slot], self._vectors[1, slot] = s, hy
        sy, yhy, sg, yhg = _numbers(s @ y, y @ hy, s @ g, hy @ g)
        with_y, along = (np.pad(known, ((0, 0), (0, n - known.shape[1]))) for known in (with_y, along))
        with_y[:, slot], along[:, slot] = (sy, yhy), (sg, yhg)
        self._across[0, :n, slot] = with_y[0]
        self._across[1, :n, slot] = self._across[1, slot, :n] = with_y[1]
        return along


def _numbers(*found: Tensor) -> NDArray[np.float64]:
    """Vectors of one length as numbers, with one look at the device."""
    return torch.stack(found).double().cpu().numpy()

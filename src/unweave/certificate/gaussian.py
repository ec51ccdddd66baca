"""How far Gaussian noise hides a shift: the exact (ε, δ) of the Gaussian mechanism.

Two Gaussians of the same σ whose means are ``ratio`` · σ apart can be told from each other by no test better than

    δ(ε) = Φ(ratio/2 − ε/ratio) − e^ε Φ(−ratio/2 − ε/ratio)

allows, and the best test reaches it (Balle and Wang, ICML'18, Theorem 5). Only the length of the shift counts, not how
many coordinates there are. What is seen k times, each time with noise of its own, is one shift of √k · ratio, also
where what is asked next depends on what was seen before (Dong, Roth and Su, 2022).
"""

import math
from collections.abc import Callable

from scipy.optimize import brentq
from scipy.special import log_ndtr

from unweave.errors import MethodError

__all__ = ["check_promise", "delta_of", "epsilon_of", "ratio_of"]

SAFE = 1 - 1e-9
"""Taken off a ratio, so that the solver's tolerance errs on the side of more noise."""


def check_promise(epsilon: object, delta: object) -> tuple[float, float]:
    """(ε, δ) as numbers: ε above 0, δ between 0 and 1."""
    numbers = [x for x in (epsilon, delta) if isinstance(x, int | float) and not isinstance(x, bool)]
    if len(numbers) != 2 or not (0 < numbers[0] < math.inf and 0 < numbers[1] < 1):
        raise MethodError(
            f"certified removal needs ε above 0 and δ between 0 and 1, e.g. 1 and 1e-5; got {epsilon!r} and {delta!r}. "
            "Train with certify=(1, 1e-5) (--certify 1,1e-5), or give epsilon= and delta= (-o epsilon=1 -o delta=1e-5)"
        )
    return float(numbers[0]), float(numbers[1])


def delta_of(epsilon: float, ratio: float) -> float:
    """The smallest δ for an ε, at a shift of ``ratio`` standard deviations."""
    if ratio <= 0:
        return 0.0
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return max(0.0, -math.exp(first) * math.expm1(second - first)) if second < first else 0.0


def ratio_of(epsilon: float, delta: float) -> float:
    """The largest shift, in standard deviations, that is (ε, δ)."""
    epsilon, delta = check_promise(epsilon, delta)
    return SAFE * _root(lambda log: delta_of(epsilon, math.exp(log)) - delta)


def epsilon_of(delta: float, ratio: float) -> float:
    """The smallest ε for a δ, at a shift of ``ratio`` standard deviations; 0 where even that holds."""
    if delta_of(0.0, ratio) <= delta:
        return 0.0
    return _root(lambda log: delta - delta_of(math.exp(log), ratio)) / SAFE


def _root(rising: Callable[[float], float]) -> float:
    """Where a function of a logarithm, below 0 far down and above 0 far up, crosses 0."""
    low, high = -30.0, 10.0
    return math.exp(brentq(rising, low, high, xtol=1e-13, rtol=1e-13))

"""Predict from a few examples, with an interval that holds for the next one drawn like them.

The interval is the jackknife+ (`Barber et al. <https://arxiv.org/abs/1905.02928>`_): every example is predicted without
itself, and how far those predictions were off says how far the next one may be. It assumes nothing of the errors but
that the next example is drawn as these were.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVEL", "Jackknife"]

LEVEL = 0.9
"""How often an interval is to hold."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Jackknife:
    """Ridge regression, fitted with and without each example.

    Attributes:
        rows: What is known of each example, ``[n, p]``.
        targets: What was measured, ``[n]``.
        penalty: Ridge of each column, ``[p]``: as many examples as it takes to believe in it.
    """

    rows: Array
    targets: Array
    penalty: Array

    @cached_property
    def weights(self) -> Array:
        """The fit to all examples."""
        return np.asarray(np.linalg.solve(self._gram, self.rows.T @ self.targets))

    @cached_property
    def _gram(self) -> Array:
        return np.asarray(self.rows.T @ self.rows + np.diag(self.penalty))

    @cached_property
    def _without(self) -> Array:
        """The fits without each example, ``[n, p]``."""
        grams = self._gram - self.rows[:, :, None] * self.rows[:, None, :]
        sides = (self.rows.T @ self.targets)[None] - self.rows * self.targets[:, None]
        return np.asarray(np.linalg.solve(grams, sides[..., None])[..., 0])

    @cached_property
    def errors(self) -> Array:
        """How far each example was off when it was predicted without itself."""
        return np.asarray(np.abs(self.targets - (self.rows * self._without).sum(axis=1)))

    def predict(self, row: Array) -> float:
        """What is expected of the next example."""
        return float(row @ self.weights)

    def interval(self, row: Array) -> tuple[float, float] | None:
        """Where the next example lies, nine times in ten; ``None`` with fewer than nine examples to tell from."""
        count = self.targets.size
        beyond = int((1 - LEVEL) * (count + 1) + 1e-9)
        if beyond < 1:
            return None
        there = self._without @ row
        low, high = np.sort(there - self.errors), np.sort(there + self.errors)
        return float(low[beyond - 1]), float(high[count - beyond])

"""Predict from a few examples, with an interval that holds for the next one drawn like them.

The interval is the jackknife+ (`Barber et al. <https://arxiv.org/abs/1905.02928>`_): every example is predicted without
itself, and how far those predictions were off says how far the next one may be. It assumes nothing of the errors but
that the next example is drawn as these were.

Errors of one size for all would make intervals that hold on average, too narrow for some examples and far too wide for
others. So they are first divided by the size that is usual for an example like it, a line through their logarithms
(the locally weighted conformal score of `Lei et al. <https://arxiv.org/abs/1604.04173>`_).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unweave._core.tuning import TUNING
from unweave.receipt.estimate import LEVEL

__all__ = ["Jackknife"]


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Jackknife:
    """Ridge regression, fitted with and without each example.

    Attributes:
        rows: What is known of each example, ``[n, p]``.
        targets: What was measured, ``[n]``.
        penalty: Ridge of each column, ``[p]``: as many examples as it takes to believe in it.
        spread: The column that the size of the errors depends on, where one does.
    """

    rows: Array
    targets: Array
    penalty: Array
    spread: int | None = None

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

    @cached_property
    def _line(self) -> tuple[float, float, float]:
        """Centre of the column of the spread, and slope of log |error| over it; believed in as tuning says."""
        if self.spread is None:
            return 0.0, 0.0, 0.0
        at = self.rows[:, self.spread]
        logs = np.log(self.errors + 1e-2 * self.errors.mean() + 1e-12)
        away = at - at.mean()
        slope = float(away @ logs) / (float(away @ away) + TUNING.ladder.spread)
        return float(at.mean()), slope, float(np.abs(away).max())

    def scale(self, row: Array) -> float:
        """How far examples like it are usually off, relative to the typical one; not beyond what was seen."""
        centre, slope, most = self._line
        return 1.0 if self.spread is None else float(np.exp(slope * np.clip(row[self.spread] - centre, -most, most)))

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
        off = self.errors * self.scale(row) / np.array([self.scale(example) for example in self.rows])
        low, high = np.sort(there - off), np.sort(there + off)
        return float(low[beyond - 1]), float(high[count - beyond])

"""Find blocks of nodes whose work fits a budget: by what small ones held, and by counting the bytes of every one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import nnls
from torch import Tensor

from unweave._core.memory import OverBudget, TensorBytes

__all__ = ["Fitting"]

T = TypeVar("T")

TRIED = 0.25, 0.5
"""The share of the budget, and that of the graph, up to which small blocks are tried. Each is four times the one
before, so that together they cost two thirds of an evaluation at most, once."""

MORE = 1.5
"""How many times as many nodes must fit, by a block of the size that was found, for that size to be found anew."""

FULL = 0.9
"""The share of the budget that a block is foretold to take at most: one that takes more than all is done again."""


@dataclass(frozen=True)
class Fitting(Generic[T]):
    """Some work on blocks that may hold so much.

    Attributes:
        do: The work on a block.
        extent: What it holds rows for: how many nodes lie within 0, 1, … steps of a block, how many edges join them.
        limit: Bytes that it may hold.
        refuse: Says what a single node needs that does not fit.
    """

    do: Callable[[Tensor], T]
    extent: Callable[[Tensor], Sequence[int]]
    limit: float
    refuse: Callable[[Tensor, int], None]

    def through(self, nodes: Tensor, largest: int) -> Iterator[tuple[Tensor, T, int]]:
        """Blocks in order, what the work gave on each, and the most bytes it held; what does not fit is halved."""
        at, size = 0, largest
        while at < nodes.numel():
            block = nodes[at : at + size]
            try:
                result, peak = self._count(block)
            except OverBudget:
                if block.numel() == 1:
                    self.refuse(block, self._count(block, limited=False)[1])
                size = max(1, block.numel() // 2)
                continue
            yield block, result, peak
            at += block.numel()
            size = largest  # of what was halved only the one block was too large

    def largest(self, nodes: Tensor) -> int:
        """As many nodes to a block as will fit.

        Every tensor has so many bytes for each node within some steps of the block, or for each edge. So what a block
        holds is a sum of these counts, with weights of at least zero that small blocks tell. The counts of a large one
        cost little beside the work on it. Small blocks are trees, of as many edges as nodes, so that they may not tell
        which of them it was; a block of the size that is found does, and where many more would fit, more are taken.
        """
        tried: list[list[float]] = []
        everything, size = self._counts(nodes), 1
        while size < nodes.numel():
            counts = self._counts(nodes[:size])
            much = any(here > TRIED[1] * all_of for here, all_of in zip(counts[1:], everything[1:], strict=False))
            if tried and (much or self._foretold(tried, counts) > TRIED[0] * self.limit):
                break
            try:
                tried.append([*counts, self._count(nodes[:size])[1]])
            except OverBudget:
                break
            size *= 4
        size = self._foreseen(nodes, tried) if tried else 1
        while 1 < size < nodes.numel():
            try:
                tried.append([*self._counts(nodes[:size]), self._count(nodes[:size])[1]])
            except OverBudget:
                return max(1, size // 2)
            larger = self._foreseen(nodes, tried)
            if larger < MORE * size:
                break
            size = larger
        return size

    def _foreseen(self, nodes: Tensor, tried: list[list[float]]) -> int:
        """How many nodes to a block will fit, by blocks that were tried."""
        blocks = 1
        while (size := ceil(nodes.numel() / blocks)) > 1:
            expected = self._foretold(tried, self._counts(nodes[:size])) / (FULL * self.limit)
            if expected <= 1:
                break
            blocks = max(ceil(1.25 * blocks), ceil(blocks * min(expected, 2.0)))
        return max(1, size)

    def _counts(self, block: Tensor) -> list[float]:
        """One, for what does not grow, and the extent of a block; without end where that alone is too much."""
        try:
            with TensorBytes(self.limit):
                return [1.0, *self.extent(block)]
        except OverBudget:
            return [inf]

    def _foretold(self, tried: list[list[float]], counts: list[float]) -> float:
        """Bytes that a block of some counts will hold, by those that were tried, each as important as the others."""
        if not tried or counts[-1] == inf:
            return inf
        known = np.array(tried)
        weights, _ = nnls(known[:, :-1] / known[:, -1:], np.ones(len(tried)))
        return float(np.dot(counts, weights))

    def _count(self, block: Tensor, *, limited: bool = True) -> tuple[T, int]:
        """What the work gives, and the most bytes it held."""
        with TensorBytes(self.limit if limited else float("inf")) as counted:
            result = self.do(block)
        return result, counted.peak

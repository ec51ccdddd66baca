"""Find blocks of nodes whose work fits a budget, by trying."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from unweave._core.memory import OverBudget, TensorBytes

__all__ = ["Fitting"]

T = TypeVar("T")


@dataclass(frozen=True)
class Fitting(Generic[T]):
    """Some work on blocks that may hold so much.

    Attributes:
        do: The work on a block.
        limit: Bytes that it may hold.
        refuse: Says what a single node needs that does not fit.
    """

    do: Callable[[Tensor], T]
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
        """The largest power of two, or all nodes, that half the budget says will fit."""
        size = 1
        while size < nodes.numel():
            try:
                _, peak = self._count(nodes[:size])
            except OverBudget:
                return max(1, size // 2)
            if 2 * peak > self.limit:
                return size
            size *= 2
        return max(1, nodes.numel())

    def _count(self, block: Tensor, *, limited: bool = True) -> tuple[T, int]:
        """What the work gives, and the most bytes it held."""
        with TensorBytes(self.limit if limited else float("inf")) as counted:
            result = self.do(block)
        return result, counted.peak

"""An objective in blocks at one θ."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from unweave._core import ranks
from unweave._core.mapped import blank
from unweave.graph.view import GraphView
from unweave.objective.objective import Held, Objective, Point
from unweave.objective.parts.sharing import Shares

__all__ = ["BlockPoint", "InBlocks", "T", "Work"]

T = TypeVar("T")
Work = Callable[[Objective, Tensor], T]
"""What is done on a block, given its objective, whose first nodes are those of the block, and their ids."""


class InBlocks(Objective):
    """An objective that is evaluated a block of nodes at a time, by this rank and by others.

    Attributes:
        view: The graph.
        shares: Who evaluates which nodes.
    """

    view: GraphView
    shares: Shares
    _limit: float
    _spent: float

    @property
    def keeps(self) -> bool:
        """Whether blocks are kept, those of a rank without a budget."""
        return self._limit == math.inf

    def over_blocks(self, kind: str, work: Work[T], *, others: bool = False) -> Iterator[T]:
        """Do some work on every block of this rank's training nodes, or others, in order."""
        raise NotImplementedError

    def sweep(self, kind: str, theta: Tensor | None = None) -> AbstractContextManager[None]:
        """A sweep that every rank does its part of, and of which :meth:`added` then tells the sum."""
        return ranks.together(kind, theta)

    def added(self, own: Tensor) -> Tensor:
        """The sum over the ranks of some numbers in double precision; their passes are added and counted with them."""
        if not ranks.joined():
            return own
        found = ranks.total(torch.cat([own, own.new_tensor([self._spent])]))
        self.meter.passes += round(float(found[-1]), 6)  # shares of whole passes
        self._spent = 0.0
        return found[:-1]


class Swept(NamedTuple):
    """What a sweep over the blocks gave.

    Attributes:
        losses: Of this rank's training nodes.
        outputs: Of this rank's nodes.
        loss: The summed loss of all ranks.
        slope: Its gradient, where that was taken.
    """

    losses: Tensor
    outputs: Tensor
    loss: float
    slope: Tensor


class BlockPoint(Point):
    """An objective at one θ, evaluated in blocks when something is asked of it.

    The gradient is taken in the sweep that gives the losses, unless the point was made without derivatives. Ranks add
    the summed loss and its gradient; what there is of every node they gather when somebody asks for it.
    """

    objective: InBlocks

    def __init__(self, objective: InBlocks, theta: Tensor) -> None:
        self.objective = objective
        self.theta = theta.detach().clone()
        self._with_gradient = torch.is_grad_enabled()

    @cached_property
    def _swept(self) -> Swept:
        total = torch.zeros(1 + self.theta.numel() * self._with_gradient, device=self.theta.device, dtype=torch.float64)
        losses, rows = [], []
        objective = self.objective
        with objective.sweep("gradient" if self._with_gradient else "losses", self.theta):
            for found in objective.over_blocks("gradient", self._settled) if self._with_gradient else self._looks():
                losses.append(found[0])
                rows.append(found[1])
                total[0] += found[0].sum(dtype=torch.float64)
                total[1:] += found[2]
        total = objective.added(total)
        return Swept(torch.cat(losses), torch.cat(rows), float(total[0]), total[1:].to(self.theta))

    @cached_property
    def losses(self) -> Tensor:  # type: ignore[override]  # set by the base class, computed here
        """Loss of each training node."""
        own = self._swept.losses
        with self.objective.sweep("losses of all"):
            pass
        return self.objective.shares.trained.all_rows(own)

    @property
    def value(self) -> float:
        """L(θ)."""
        return self._swept.loss + float((self.objective.mu.double() * self.theta.double().square()).sum()) / 2

    def loss_change(self, known: Tensor) -> float:
        """By how much the summed loss differs from known losses of the training nodes, each rank for its own."""
        own = self._swept.losses
        with self.objective.sweep("change of the losses"):
            change = (own.double() - self.objective.shares.trained.my_rows(known).double()).sum()
        return float(self.objective.added(change.reshape(1)))

    @cached_property
    def outputs(self) -> Tensor:  # type: ignore[override]  # set by the base class, computed here
        """Model outputs of all nodes; those of nodes not trained on are computed when they are asked for."""
        objective, own = self.objective, self._swept.outputs
        if objective.shares.whole:
            with objective.sweep("outputs"):
                pass
            return objective.shares.of().all_rows(own)
        outputs = blank(own, objective.view.size)
        with objective.sweep("outputs", self.theta):
            for block, rows in objective.over_blocks("outputs", self._others, others=True):
                outputs[block] = rows
        objective.added(outputs.new_zeros(0, dtype=torch.float64))
        outputs[objective.nodes] = objective.shares.of().all_rows(own)
        if ranks.joined():
            rest = objective.shares.of(others=True)
            outputs[rest.nodes.sort().values] = rest.all_rows(outputs[rest.mine])
        return outputs

    def held(self) -> Held:
        """What this rank has of the outputs: those of its own nodes, where these come with the losses."""
        shares, size = self.objective.shares, self.objective.view.size
        if not ranks.joined():
            return super().held()
        if shares.whole:
            return Held(shares.of().mine, self._swept.outputs, size)
        nodes = torch.arange(size, device=self.theta.device).tensor_split(ranks.size())[ranks.rank()]
        return Held(nodes, self.outputs[nodes], size)

    def settle(self) -> "BlockPoint":
        """There is no graph of derivatives to let go."""
        return self

    def loss_gradient(self, mask: Tensor | None = None) -> Tensor:
        """Gradient of the summed loss, over the training nodes in a node mask where one is given."""
        if mask is None:
            return self._slope

        def some(part: Objective, block: Tensor) -> Tensor:
            here = torch.zeros(part.data.num_nodes, dtype=torch.bool, device=block.device)
            here[: block.numel()] = mask[block]
            return part.at(self.theta).loss_gradient(here)

        return self.total("gradient of some", some)

    def total(self, kind: str, work: Work[Tensor]) -> Tensor:
        """The sum over the blocks of vectors as long as θ, in double precision on the way."""
        total = torch.zeros_like(self.theta, dtype=torch.float64)
        with self.objective.sweep(kind, self.theta):
            for found in self.objective.over_blocks(kind, work):
                total += found
        return self.objective.added(total).to(self.theta)

    @cached_property
    def _slope(self) -> Tensor:
        if self._with_gradient:
            return self._swept.slope
        return self.total("gradient", lambda part, block: self._settled(part, block)[2])

    def _settled(self, part: Objective, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            point = part.look(self.theta)
        return point.losses, self._rows(part, block, point.outputs), point.loss_gradient()

    def _rows(self, part: Objective, block: Tensor, outputs: Tensor) -> Tensor:
        """Outputs of the training nodes, or of all nodes of the block where others are among them."""
        if not self.objective.shares.whole:
            return outputs.index_select(0, part.nodes)
        return outputs if outputs.size(0) == block.numel() else outputs[: block.numel()].clone()

    def _looks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        none = self.theta[:0]

        def look(part: Objective, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.no_grad():
                point = part.at(self.theta)
            return point.losses, self._rows(part, block, point.outputs), none

        return self.objective.over_blocks("losses", look)

    def _others(self, part: Objective, block: Tensor) -> tuple[Tensor, Tensor]:
        part.meter.passes += 1
        with torch.no_grad():
            return block, part.outputs(self.theta)[: block.numel()].clone()

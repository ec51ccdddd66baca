"""How training nodes answer a removal: what each of them pulls at the parameters with, before and after it."""

from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.inspection.leverage import Leverage, bends, settled
from unweave.objective.losses import Loss, with_slope

__all__ = ["Answers", "flat", "times"]

NEAR = 0.1
"""How far a node's output may be moved back, in units of the output, for one linear step to be as good."""


class Answers:
    """The training nodes of a model, of which a quantity gave the direction s.

    Args:
        data: The graph.
        loss: Per-node loss.
        outputs: Of all nodes.
        along: J s, how they move with the parameters along s, flat.
        leverage: How training nodes move; ``None`` where that is not to be known.

    Attributes:
        slope: r of each training node, flat.
        bent: T J s.
        reach: How far a node moves its own output as its slope moves by 1: the trace of K = J H₋⁻¹ Jᵀ.
        place: Of a training node among them.
    """

    def __init__(self, data: Data, loss: Loss, outputs: Tensor, along: Tensor, leverage: Leverage | None) -> None:
        self._labels, self._mask, self._loss, self._leverage = data.y, data.train_mask, loss, leverage
        self._along, self.place = along[self._mask], self._mask.cumsum(0) - 1
        self.slope = flat(with_slope(loss, outputs[self._mask], self._labels[self._mask])[1])
        if leverage is None:
            none = torch.zeros_like(self._along)
            self.bent, self._freed, self._blocks, self.reach = none, none, none[:, :, None], none[:, 0]
            return
        spread = leverage.spread
        self.bent = times(leverage.inner, self._along)
        self._freed = times(spread, self.bent)
        self._blocks = spread + spread @ leverage.inner @ spread
        self.reach = self._blocks.diagonal(dim1=1, dim2=2).sum(dim=1)

    @cached_property
    def pulls(self) -> Tensor:
        """⟨s_u, Jᵀr⟩ of each node, zero for those that were not trained on."""
        found = self.slope.new_zeros(self._mask.numel())
        found[self._mask] = ((self._along + self._freed) * self.slope).sum(dim=1)
        return found

    def pulled(self, nodes: Tensor, outputs: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
        """⟨s_u, J'ᵀr''⟩ of some training nodes, from z' and J' s, with J for J' where r'' needs it.

        Also about how far each moves its own output.
        """
        place = self.place[nodes]
        slope = self.slope[place]
        new = flat(with_slope(self._loss, outputs, self._labels[nodes])[1])
        found = (along * new + self._freed[place] * slope).sum(dim=1)  # to first order the answer is of no account
        moved = self.reach[place] * (new - slope).norm(dim=1)
        far = (moved > NEAR).nonzero().flatten()
        if far.numel():
            there, blocks = place[far], self._blocks[place[far]]
            pull = times(blocks, slope[far])
            last = settled(self._loss, outputs[far], self._labels[nodes[far]], pull, blocks)
            found[far] = ((along[far] + self._freed[there]) * last).sum(dim=1)
        return found, moved

    def settled(self, nodes: Tensor, outputs: Tensor, pushed: Tensor) -> tuple[Tensor, Tensor]:
        """r'' of some training nodes from z' and J' x, and what J' s gains as the curvature of each is left out."""
        assert self._leverage is not None
        known, place = self._leverage, self.place[nodes]
        inner, slope = known.inner[place], self.slope[place]
        cross = pushed.mT @ known.pushed[place]
        pull = times(cross, slope + times(inner, times(known.spread[place], slope)))
        blocks = pushed.mT @ pushed + cross @ inner @ cross.mT
        return settled(self._loss, outputs, self._labels[nodes], pull, blocks), times(cross, self.bent[place])

    def slopes(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """How −Σ ⟨J s, r⟩ over the training nodes begins to change with the outputs of all nodes, and with J s."""
        by_along = outputs.new_zeros(outputs.size(0), self.slope.size(1))
        by_outputs = torch.zeros_like(by_along)
        by_along[self._mask] = -self.slope
        by_outputs[self._mask] = -times(bends(self._loss, outputs[self._mask], self._labels[self._mask]), self._along)
        return by_outputs, by_along


def times(blocks: Tensor, rows: Tensor) -> Tensor:
    """A block times a vector, of every row."""
    return (blocks @ rows[:, :, None])[:, :, 0]


def flat(outputs: Tensor) -> Tensor:
    """One row a node, whatever the shape of an output."""
    return outputs.flatten(1) if outputs.dim() > 1 else outputs[:, None]

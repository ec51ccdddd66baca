"""How training nodes answer a removal: what each of them pulls at the parameters with, before and after it."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.inspection.bends import bends
from unweave.inspection.leverage import Leverage, eye, settled
from unweave.objective.losses import Loss, with_slope

__all__ = ["Answer", "Answers", "flat", "times"]


class Answer(NamedTuple):
    """How some training nodes answer a removal.

    Attributes:
        pull: ⟨s_u, J'ᵀr''⟩.
        step: The step δ_u of the parameters that each causes by itself, as its products with all x.
        heed: How the effect that each has changes with a step of others, in the same way: ⟨heed, δ⟩.
        rows: J x.
        inner: T.
        felt: J'₋ x, where J'₋ = J' H₋⁻¹ H is J' as it is felt without the curvature of the node.
        give: How r'' moves with the output.
    """

    pull: Tensor
    step: Tensor
    heed: Tensor
    rows: Tensor
    inner: Tensor
    felt: Tensor
    give: Tensor

    def respond(self, others: Tensor) -> Tensor:
        """How the step that each causes changes with a step of others, to first order."""
        bent = times(self.rows, times(self.inner, times(self.rows.mT, others)))
        return bent - times(self.felt, times(self.give, times(self.felt.mT, others)))


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
        """⟨s_u, J'ᵀr(z')⟩ of some training nodes, from z' and J' s: to first order how they answer is of no account.

        Also about how far each moves its own output, or would: beyond a little it is to be known (:meth:`answer`).
        """
        place = self.place[nodes]
        slope = self.slope[place]
        new = flat(with_slope(self._loss, outputs, self._labels[nodes])[1])
        found = (along * new + self._freed[place] * slope).sum(dim=1)
        return found, self.reach[place] * (new - slope).norm(dim=1)

    def answer(self, nodes: Tensor, outputs: Tensor, along: Tensor, pushed: Tensor | None = None) -> "Answer":
        """How some training nodes answer, from z', J' s and J' x, with J for J' where no J' x is given."""
        assert self._leverage is not None
        place = self.place[nodes]
        known, slope, inner = self._leverage, self.slope[place], self._leverage.inner[place]
        before = known.pushed[place]
        pushed = before if pushed is None else pushed
        cross = pushed.mT @ before
        shift = times(cross, slope + times(inner, times(known.spread[place], slope)))
        blocks = pushed.mT @ pushed + cross @ inner @ cross.mT
        labels = self._labels[nodes]
        last = settled(self._loss, outputs, labels, shift, blocks)
        felt = along + times(cross, self.bent[place])
        step = times(before, slope) - times(pushed, last)
        step = step + times(before, times(inner, times(before.mT, step)))
        there = (flat(outputs) + shift - times(blocks, last)).reshape(outputs.shape)
        bend = bends(self._loss, there, labels)
        give, seen = torch.linalg.solve(eye(bend) + bend @ blocks, bend), pushed + before @ inner @ cross.mT
        heed = times(before, self.bent[place]) - times(seen, times(give, felt))
        return Answer((felt * last).sum(dim=1), step, heed, before, inner, seen, give)

    def left(self, nodes: Tensor) -> "Answer":
        """What some training nodes do whose labels go."""
        assert self._leverage is not None
        place = self.place[nodes]
        pushed, inner = self._leverage.pushed[place], self._leverage.inner[place]
        step = times(pushed, self.slope[place])
        step = step + times(pushed, times(inner, times(pushed.mT, step)))
        heed = times(pushed, self.bent[place])
        return Answer(self.pulls[nodes], step, heed, pushed, inner, torch.zeros_like(pushed), torch.zeros_like(inner))

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

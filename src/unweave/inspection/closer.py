"""A closer look at the nodes that removals move far: what the Jacobian J' of their outputs is without the item."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unweave.inspection.answers import Answers, times
from unweave.inspection.counted import Counted
from unweave.inspection.leverage import Leverage
from unweave.inspection.removals import Removals

__all__ = ["Closer", "Far", "joined_far"]


class Far(NamedTuple):
    """Nodes of removals to look at closely: removal, node, z', J' s, the pull that was counted, whether trained on."""

    which: Tensor
    nodes: Tensor
    after: Tensor
    along: Tensor
    felt: Tensor
    trained: Tensor


def joined_far(parts: Sequence[Far]) -> Far:
    """Several as one."""
    return Far(*(torch.cat(each) for each in zip(*parts, strict=True)))


class Closer:
    """What nodes that were moved far really do.

    On what remains the quantity has another slope too, and a deleted node no part in it: ⟨∇q' − ∇q, δ⟩ is added, which
    with δ = H⁻¹ Σ_u (Jᵀr − J'ᵀr'') is known from the products of both with all x.

    Args:
        answers: How training nodes answer.
        counted: What nodes add to the quantity.
        leverage: How training nodes move.
        pushes: J' x of some nodes of removals, given by sorted keys, ``[keys, samples, outputs]``.
        pushed: J x of some nodes on the graph as it is.
        outputs: Of all nodes.
    """

    def __init__(
        self,
        answers: Answers,
        counted: Counted,
        leverage: Leverage,
        pushes: Callable[[Removals, Tensor], Tensor],
        pushed: Callable[[Tensor], Tensor],
        outputs: Tensor,
    ) -> None:
        self._answers, self._counted, self._leverage, self._pushes = answers, counted, leverage, pushes
        nodes = counted.mask.nonzero().flatten()
        self._before = times(pushed(nodes), counted.slopes(outputs[nodes], nodes))  # of ∇q, with all x
        self._size = outputs.size(0)

    def correct(self, found: Tensor, removals: Removals, far: Far, train: Tensor) -> None:
        """Put what nodes really do in the place of what was counted for them."""
        chosen, number = torch.unique(far.which, return_inverse=True)
        some = removals.some(chosen)
        pushed = self._pushes(some, number * self._size + far.nodes)
        pull = pushed.new_zeros(chosen.numel(), pushed.size(1))
        other, slope = torch.zeros_like(pull), self._answers.slope
        mine = far.trained.nonzero().flatten()
        place = self._answers.place[far.nodes[mine]]
        last, felt = self._answers.settled(far.nodes[mine], far.after[mine], pushed[mine])
        found.index_add_(0, far.which[mine], far.felt[mine] - ((far.along[mine] + felt) * last).sum(dim=1))
        was = times(self._leverage.pushed[place], slope[place])
        pull.index_add_(0, number[mine], was - times(pushed[mine], last))
        gone = some.labels[:, train[some.labels[1]]]
        place = self._answers.place[gone[1]]
        pull.index_add_(0, gone[0], times(self._leverage.pushed[place], slope[place]))
        mine = self._counted.mask[far.nodes].nonzero().flatten()
        now = self._counted.slopes(far.after[mine], far.nodes[mine])
        was = self._before[self._counted.place[far.nodes[mine]]]
        other.index_add_(0, number[mine], times(pushed[mine], now) - was)
        gone = some.nodes[:, self._counted.mask[some.nodes[1]]]
        other.index_add_(0, gone[0], -self._before[self._counted.place[gone[1]]])
        found.index_add_(0, chosen, (pull * other).sum(dim=1))

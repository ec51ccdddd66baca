"""A closer look at the nodes that removals move far: what the Jacobian J' of their outputs is without the item."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unweave.inspection.answers import Answer, Answers, times
from unweave.inspection.counted import Counted
from unweave.inspection.leverage import Leverage
from unweave.inspection.removals import Removals

__all__ = ["Closer", "Far", "joined_far"]


class Far(NamedTuple):
    """Nodes that removals move far: removal, node, z', J' s, and the pull that was counted.

    Also whether they are trained on, and whether J' is to be looked at.
    """

    which: Tensor
    nodes: Tensor
    after: Tensor
    along: Tensor
    felt: Tensor
    trained: Tensor
    close: Tensor


def joined_far(parts: Sequence[Far]) -> Far:
    """Several as one."""
    return Far(*(torch.cat(each) for each in zip(*parts, strict=True)))


class Closer:
    """What nodes that were moved far really do.

    They answer to each other: where node u by itself causes the step δ_u and its effect changes by ⟨h_u, e⟩ with a step
    e of others, Σ_u ⟨h_u, Σ_{w≠u} δ_w⟩ is added, and what answers to these do. On what remains the quantity has
    another slope too, and a deleted node no part in it: ⟨∇q' − ∇q, δ⟩ is added, with δ the sum of all steps. All these
    are known from products with all x.

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
        some, known, counted = removals.some(chosen), self._answers, self._counted
        steps = far.after.new_zeros(chosen.numel(), self._leverage.directions.size(0))
        heeds, other, alone = torch.zeros_like(steps), torch.zeros_like(steps), steps[:, 0].clone()

        answers = list[tuple[Tensor, Answer]]()

        def count(which: Tensor, answer: Answer) -> None:
            steps.index_add_(0, which, answer.step)
            heeds.index_add_(0, which, answer.heed)
            alone.index_add_(0, which, (answer.step * answer.heed).sum(dim=1))
            answers.append((which, answer))

        looked = far.close.nonzero().flatten()
        pushed = self._looked_at(removals, far, looked)
        near = (far.trained & ~far.close).nonzero().flatten()
        mine = far.trained[looked].nonzero().flatten()
        for rows, along in ((near, None), (looked[mine], pushed[mine])):
            answer = known.answer(far.nodes[rows], far.after[rows], far.along[rows], along)
            found.index_add_(0, far.which[rows], far.felt[rows] - answer.pull)
            count(number[rows], answer)
        gone = some.labels[:, train[some.labels[1]]]
        count(gone[0], known.left(gone[1]))
        mine = counted.mask[far.nodes[looked]].nonzero().flatten()
        rows = looked[mine]
        now = counted.slopes(far.after[rows], far.nodes[rows])
        other.index_add_(0, number[rows], times(pushed[mine], now) - self._before[counted.place[far.nodes[rows]]])
        gone = some.nodes[:, counted.mask[some.nodes[1]]]
        other.index_add_(0, gone[0], -self._before[counted.place[gone[1]]])
        first = (steps * heeds).sum(dim=1) - alone
        again, alone = torch.zeros_like(steps), torch.zeros_like(alone)
        for which, answer in answers:
            more = answer.respond(steps[which] - answer.step)
            again.index_add_(0, which, more)
            alone.index_add_(0, which, (more * answer.heed).sum(dim=1))
        second = (again * heeds).sum(dim=1) - alone
        # Answers against each other are a series 1 − g + g² − …, which is 1 / (1 + g); of others two terms are taken.
        share = torch.where(first * second < 0, first / (first - second), torch.ones_like(first))
        steps += share[:, None] * again
        found.index_add_(0, chosen, first + share * second + (steps * other).sum(dim=1))

    def _looked_at(self, removals: Removals, far: Far, rows: Tensor) -> Tensor:
        """J' x of some of these nodes."""
        if not rows.numel():
            return self._leverage.pushed[:0]
        chosen, number = torch.unique(far.which[rows], return_inverse=True)
        return self._pushes(removals.some(chosen), number * self._size + far.nodes[rows])

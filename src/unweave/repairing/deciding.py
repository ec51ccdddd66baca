"""How good a model is on validation nodes, which of some ways they like, and whether that is more than chance."""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.objective.scores import log_probabilities
from unweave.repairing.fitting import fit
from unweave.run.run import Run

__all__ = ["Score", "better", "crossed", "liked", "moved", "same", "score_on"]


@dataclass(frozen=True, eq=False)
class Score:
    """How good a model is on some nodes.

    Attributes:
        losses: Of each node, the squared error of the probabilities of all classes (Brier score): 0 where the model is
            sure and right, 2 where it is sure and wrong, so that no few nodes outweigh the others. At the temperature
            that the other half of the nodes wants.
        right: Whether each is predicted as it is labelled.
    """

    losses: Tensor = field(repr=False)
    right: Tensor = field(repr=False)

    @property
    def loss(self) -> float:
        """Mean squared error of the probabilities."""
        return float(self.losses.mean())

    @property
    def f1(self) -> float:
        """Micro-F1."""
        return float(self.right.double().mean())

    def part(self, nodes: Tensor) -> "Score":
        """The same of some of the nodes."""
        return Score(self.losses[nodes], self.right[nodes])


def score_on(run: Run, halves: tuple[Tensor, Tensor]) -> Score:
    """How good a run is on the validation nodes, each half at the temperature that the other wants.

    A temperature takes out how sure of itself a model is, which removing data changes for reasons of its own.

    Args:
        run: A run.
        halves: Masks of the two halves.
    """
    said = log_probabilities(run.model, run.data, run.forward).detach().double()
    labels, losses = run.data.y, said.new_zeros(said.size(0))
    for mine, other in (halves, halves[::-1]):
        scaled = F.softmax(_sureness(said[other], labels[other]) * said[mine], dim=-1)
        losses[mine] = (scaled - F.one_hot(labels[mine], said.size(1))).square().sum(dim=1)
    nodes = halves[0] | halves[1]
    return Score(losses[nodes].cpu(), (said.argmax(dim=1) == labels)[nodes].cpu())


def _sureness(said: Tensor, labels: Tensor) -> Tensor:
    """What log-probabilities are to be multiplied with, so that they predict labels best."""

    def loss(free: Tensor) -> Tensor:  # as if one observation spoke for leaving them as they are
        return F.cross_entropy(free.exp() * said, labels, reduction="sum") + free.square().sum() / 2

    return fit(loss, said.new_zeros(1)).exp()


def liked(ways: list[Score], sizes: list[int], before: Score, *, larger: bool) -> int:
    """Which way the nodes like: the middle one, by size, of those that are as good as the best.

    As good is a loss within one standard error of the least (Breiman and others, 1984), among the ways by which no
    fewer nodes are right. The loss changes slowly with the size: which is least is much by chance, the smallest leaves
    much that is wrong in place, and the largest loses much that is right. Of two in the middle it is the ``larger``, or
    the smaller.
    """
    fit = [i for i, way in enumerate(ways) if way.f1 >= before.f1] or list(range(len(ways)))
    of_size = {sizes[i]: i for i in sorted(fit, key=lambda i: -ways[i].loss)}  # of each size, the least loss
    best = ways[min(fit, key=lambda i: ways[i].loss)]
    near = [of_size[size] for size in sorted(of_size) if moved(best.losses, ways[of_size[size]].losses) <= 1]
    return near[(len(near) - (not larger)) // 2]


def crossed(before: Score, ways: list[Score], sizes: list[int], dealt: Tensor, *, larger: bool) -> Tensor:
    """The losses of the nodes of each fold by the way that all others like: what choosing among them is worth.

    Args:
        before: To do nothing, which is liked where nothing has a lower loss.
        ways: What is chosen from.
        sizes: How much goes by each.
        dealt: The fold of each node, ``[deals, nodes]``; the mean over the deals is taken.
        larger: Which of two in the middle is liked.
    """
    found = before.losses.repeat(dealt.size(0), 1)
    for losses, fold in zip(found, dealt, strict=True):
        for number in torch.unique(fold).tolist():
            mine = fold == number
            seen, old = [way.part(~mine) for way in ways], before.part(~mine)
            if min(way.loss for way in seen) < old.loss:
                losses[mine] = ways[liked(seen, sizes, old, larger=larger)].losses[mine]
    return found.mean(dim=0)


def better(before: Score, chosen: Score, judged: Tensor) -> bool:
    """Whether a choice is better by more than chance, and by it no fewer nodes are right.

    The losses as judged by nodes that did not choose are lower by more than two standard errors of the difference, node
    by node; or by more than one, and more nodes are right.
    """
    far, more = moved(before.losses, judged), chosen.f1 - before.f1
    return chosen.loss < before.loss and ((far < -2 and more >= 0) or (far < -1 and more > 0))


def same(before: Score, after: Score) -> bool:
    """Whether a loss is no higher than chance makes it: two standard errors of the difference, node by node.

    A backdoor does nothing to nodes that do not carry its pattern, so that validation nodes can only tell that nothing
    is lost.
    """
    return moved(before.losses, after.losses) <= 2


def moved(before: Tensor, after: Tensor) -> float:
    """How far losses have moved, in standard errors of the difference, node by node."""
    change = after - before
    return float(change.mean() / (change.std() / math.sqrt(change.numel())).clamp(min=torch.finfo(change.dtype).tiny))

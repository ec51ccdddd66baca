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


def liked(ways: list[Score], sizes: list[int], begun: Score) -> int:
    """Which way the nodes like: the smallest that is as good as the best of those by which no fewer are right."""
    fit = [i for i, way in enumerate(ways) if way.f1 >= begun.f1] or list(range(len(ways)))
    return fit[_smallest([ways[i].losses for i in fit], [sizes[i] for i in fit])]


def _smallest(losses: list[Tensor], sizes: list[int]) -> int:
    """The smallest of some ways whose loss is within one standard error of the least (Breiman and others, 1984)."""
    best = min(losses, key=lambda one: float(one.mean()))
    near = [i for i, one in enumerate(losses) if moved(best, one) <= 1]
    return min(near, key=lambda i: (sizes[i], float(losses[i].mean())))


def crossed(ways: list[Score], sizes: list[int], halves: tuple[Tensor, Tensor]) -> Score:
    """Each half of the nodes by the way that the other half likes: what choosing among them is worth.

    The first way is to do nothing, which is liked where nothing has a lower loss.
    """
    first = halves[0][halves[0] | halves[1]].cpu()
    losses, right = ways[0].losses.clone(), ways[0].right.clone()
    for mine in (first, ~first):
        seen = [way.losses[~mine] for way in ways]
        if min(float(one.mean()) for one in seen[1:]) < float(seen[0].mean()):
            best = ways[1 + _smallest(seen[1:], sizes[1:])]
            losses[mine], right[mine] = best.losses[mine], best.right[mine]
    return Score(losses, right)


def better(before: Score, after: Score) -> bool:
    """Whether a loss is lower by more than two standard errors of the difference, node by node; or F1 is higher too."""
    far = moved(before.losses, after.losses)
    return far < -2 or (far < 0 and after.f1 > before.f1)


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

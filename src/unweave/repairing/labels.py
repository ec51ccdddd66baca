"""Which labels are wrong, and what they should be.

Three things speak of a node's class: its label, what the model says unseen (:mod:`unweave.repairing.unseen`), and the
labels of its neighbours, by how classes mix along the edges of this graph (so that a graph whose neighbours differ is
served too). The last two are joined by a conditional logit of three weights, fitted to the training labels themselves;
one temperature is fitted to validation labels, so that a probability means what it says.

Labels go wrong at a rate ε, each to class b with probability in proportion to p(b)^γ: to any class for γ = 0, to
classes that the node is like for larger γ. Both are found by maximum likelihood. Then Bayes' rule says for every node
how probable each class is, and so how probable it is that its label is wrong.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.index import distinct_edges
from unweave.repairing.fitting import fit
from unweave.repairing.unseen import Unseen

__all__ = ["Labels", "fitted_weights", "judge_labels"]

FLOOR = -30.0
"""A log-probability below which a class is out of the question."""

MANY = 5_000_000
"""Numbers that may be held for every node and pair of classes."""


@dataclass(frozen=True)
class Labels:
    """What is believed of the labels of a graph.

    Attributes:
        log_p: Log-probabilities of the classes of every node, by all but its own label.
        log_class: The same by its own label too, for labelled nodes.
        wrong: How probable it is that the label is wrong; 0 where there is none.
        rate: How many of the labels are believed to be wrong.
        pull: γ, how much a wrong label is one that the node is like.
        around: Σ log P(label of a neighbour | class) of each node, over its labelled neighbours.
        count: How many those are.
        weights: Of the model's word, of the neighbours' labels (sum and mean), and the temperature.
    """

    log_p: Tensor
    log_class: Tensor
    wrong: Tensor
    rate: float
    pull: float
    around: Tensor
    count: Tensor
    weights: tuple[float, ...]


def neighbour_evidence(data: Data, fold: Tensor, classes: int, known: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j log P(label of j | class) over labelled neighbours, for every node and class; and their number.

    The mixing of the classes is counted for each fold on edges of which no end is in that fold.
    """
    ends = distinct_edges(data)
    ends = ends[ends[:, 0] != ends[:, 1]]
    both = torch.cat([ends, ends.flip(1)])
    target, source = both[known[both[:, 1]]].t()
    labels = data.y[source]
    total = torch.zeros(data.num_nodes, classes, dtype=torch.double, device=data.y.device)
    count = torch.zeros(data.num_nodes, dtype=torch.double, device=data.y.device)
    count.index_add_(0, target, torch.ones_like(target, dtype=torch.double))
    inside = known[target]
    for number in torch.unique(fold).tolist():
        counted = inside & (fold[target] != number) & (fold[source] != number)
        pairs = data.y[target[counted]] * classes + labels[counted]
        table = torch.bincount(pairs, minlength=classes * classes).double().reshape(classes, classes)
        share = torch.bincount(labels[counted], minlength=classes).double() + 1
        table += share / share.sum() * classes  # a class of which little is known has neighbours like any
        mixing = (table / table.sum(dim=1, keepdim=True)).log() - (share / share.sum()).log()
        here = fold[target] == number
        total.index_add_(0, target[here], mixing[:, labels[here]].t())
    return total, count


def judge_labels(data: Data, seen: Unseen, trusted: Tensor, kept: Tensor | None = None) -> Labels:
    """Judge every training label.

    Args:
        data: The graph.
        seen: What the model says unseen.
        trusted: Mask of the validation nodes that may be used.
        kept: Mask of the training nodes whose labels are used as evidence for others; all by default.
    """
    train, y = data.train_mask, data.y.clamp(min=0)
    kept = train if kept is None else kept
    around, count = neighbour_evidence(data, seen.fold, seen.log_p.size(1), kept)
    channels = torch.stack([seen.log_p, around, around / count.clamp(min=1)[:, None]])
    weights = fitted_weights(channels[:, kept], y[kept])
    mixed = (weights[:, None, None] * channels).sum(dim=0)
    heat = fitted_weights(mixed[None, trusted], y[trusted]) if bool(trusted.any()) else mixed.new_ones(1)
    log_p = F.log_softmax(heat * mixed, dim=-1)
    rate, pull = _noise(log_p[train], y[train])
    joint = _joint(log_p, y, rate, pull)
    log_class = torch.where(train[:, None], F.log_softmax(joint, dim=-1), log_p)
    own = log_class.gather(1, y[:, None]).flatten()
    wrong = torch.where(train, -torch.expm1(own), 0.0)
    return Labels(log_p, log_class, wrong, rate, pull, around, count, (*weights.tolist(), *heat.tolist()))


def fitted_weights(channels: Tensor, labels: Tensor) -> Tensor:
    """Weights above 0 of some log-probabilities, so that their weighted sum predicts labels best."""
    start = torch.full((channels.size(0),), -3.0, dtype=torch.double, device=labels.device)
    start[0] = 0.0

    def loss(free: Tensor) -> Tensor:
        mixed = (free.exp()[:, None, None] * channels).sum(dim=0)
        # As if one observation spoke for a weight of one: with few labels nothing runs away.
        return F.cross_entropy(mixed, labels, reduction="sum") + free[0].square() / 2

    return fit(loss, start).exp()


def _joint(
    log_p: Tensor, labels: Tensor, rate: Tensor | float, pull: Tensor | float, *, whole: bool | None = None
) -> Tensor:
    """log P(class a, label b) of each node for its label b and every class a.

    A label is right with probability 1 − ε, and else b with probability p(b)^γ / Σ_{c≠a} p(c)^γ.

    Args:
        log_p: Log-probabilities of the classes.
        labels: The label of each node.
        rate: ε.
        pull: γ.
        whole: Sum over the other classes one by one, which takes memory for every pair of classes; by default where
            that is little. Else they are what is left of all.
    """
    rate, pull = (torch.as_tensor(value, dtype=torch.double, device=log_p.device) for value in (rate, pull))
    classes, own = log_p.size(1), labels[:, None]
    drawn = pull * log_p.clamp(min=FLOOR)
    if whole if whole is not None else classes * log_p.numel() <= MANY:
        away = torch.eye(classes, dtype=torch.bool, device=log_p.device)
        rest = torch.logsumexp(drawn[:, None, :].masked_fill(away, -torch.inf), dim=2)
    else:
        top = drawn.max(dim=1, keepdim=True).values
        power = (drawn - top).exp()
        rest = top + (power.sum(dim=1, keepdim=True) - power).clamp(min=1e-12).log()
    wrong = rate.log() + log_p + drawn.gather(1, own) - rest
    return wrong.scatter(1, own, (torch.log1p(-rate) + log_p).gather(1, own))


def _noise(log_p: Tensor, labels: Tensor) -> tuple[float, float]:
    """ε and γ of maximum likelihood."""

    def loss(free: Tensor) -> Tensor:
        rate, pull = free[0].sigmoid(), free[1].exp()
        value = -torch.logsumexp(_joint(log_p, labels, rate, pull), dim=1).sum()
        # One observation each way keeps ε off 0 and 1, and γ where it began when nothing is known of it.
        return value - (rate.log() + torch.log1p(-rate)) + (free[1] + 1).square() / 2

    found = fit(loss, torch.tensor([-3.0, -1.0], dtype=torch.double, device=log_p.device))
    return float(found[0].sigmoid()), float(found[1].exp())

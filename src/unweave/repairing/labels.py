"""Which labels are wrong, and what they should be.

Four things speak of a node's class: its label; what the model says unseen (:mod:`unweave.repairing.unseen`); the
labels of its neighbours, by how classes mix along the edges of this graph (so that a graph whose neighbours differ is
served too); and what features and labels say when they go along the edges
(:func:`unweave.repairing.beliefs.along_edges`), which is a second opinion: to take away what contradicts a model only
makes it surer of its own mistakes. All but its label are joined by a conditional logit of four weights and a
constant for each class. They are fitted to validation labels: what predicts training labels best also predicts how they
went wrong.

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
from unweave.repairing.beliefs import along_edges, by_label
from unweave.repairing.features import feature_rows, said_by_features
from unweave.repairing.fitting import fit
from unweave.repairing.unseen import Unseen

__all__ = ["Labels", "fitted", "judge_labels"]

FLOOR = -30.0
"""A log-probability below which a class is out of the question."""

FIRST_RATE = 0.1
"""Share of wrong labels that is believed before anything was looked at."""

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
        rows: The features, as classifiers take them.
        by_features: Log-probabilities of the classes by features alone.
        weights: Of the model's word, of the neighbours' labels (sum and mean), and of what goes along the edges.
    """

    log_p: Tensor
    log_class: Tensor
    wrong: Tensor
    rate: float
    pull: float
    around: Tensor
    count: Tensor
    rows: Tensor
    by_features: Tensor
    weights: tuple[float, ...]

    @property
    def doubted(self) -> Tensor:
        """Mask of the labels that are rather wrong than right."""
        return self.wrong > 0.5


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


def second_opinion(data: Data, rows: Tensor, believed: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """What features and labels say along the edges of each node, but for its own label.

    What a neighbour is told of a node does not come back from it, so that to take the label off what is believed in the
    end is to have been without it, but for what comes round by circles of edges.

    Args:
        data: The graph.
        rows: Its features, as classifiers take them.
        believed: Log-probabilities of the classes of training nodes, to learn from what features say.
        rate: The share of labels that is believed to be wrong.

    Returns:
        Log-probabilities of the classes by features alone, and along the edges.
    """
    train = data.train_mask
    said = said_by_features(rows, train, believed).to(believed.device)
    ends = distinct_edges(data)
    ends = ends[ends[:, 0] != ends[:, 1]]
    if not ends.numel():
        return said, said
    told = by_label(data.y, train, rate, said.size(1))
    own = F.log_softmax(said + told, dim=1)
    log_q, _, _ = along_edges(own, ends, said.new_zeros(ends.size(0)), train[ends].sum(dim=1))
    return said, F.log_softmax(log_q - told, dim=1)


def judge_labels(
    data: Data, seen: Unseen, trusted: Tensor, rows: Tensor | None = None, before: Labels | None = None
) -> Labels:
    """Judge every training label.

    Args:
        data: The graph.
        seen: What the model says unseen.
        trusted: Mask of the validation nodes that may be used.
        rows: Features, as classifiers take them (:func:`~unweave.repairing.features.feature_rows`), where
            they are known.
        before: What was believed at a look before: labels that were doubted then speak for no neighbour now.
    """
    train, y, classes = data.train_mask, data.y.clamp(min=0), seen.log_p.size(1)
    kept = train if before is None else train & ~before.doubted
    around, count = neighbour_evidence(data, seen.fold, classes, kept)
    believed = by_label(y, train, 0.0, classes) if before is None else before.log_class
    rows = feature_rows(data.x) if rows is None else rows
    rate = FIRST_RATE if before is None else before.rate
    said, along = second_opinion(data, rows, believed, rate)
    channels = torch.stack([seen.log_p, around, around / count.clamp(min=1)[:, None], along])
    weights, lean = fitted(channels[:, trusted], y[trusted])
    log_p = F.log_softmax((weights[:, None, None] * channels).sum(dim=0) + lean, dim=-1)
    rate, pull = _noise(log_p[train], y[train])
    joint = _joint(log_p, y, rate, pull)
    log_class = torch.where(train[:, None], F.log_softmax(joint, dim=-1), log_p)
    own = log_class.gather(1, y[:, None]).flatten()
    wrong = torch.where(train, -torch.expm1(own), 0.0)
    return Labels(log_p, log_class, wrong, rate, pull, around, count, rows, said, tuple(weights.tolist()))


def fitted(channels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Weights above 0 of some log-probabilities, and a constant for each class, so that their sum predicts labels best.

    Wrong labels change how often a class is said at all; the constants put that right.
    """
    count, classes = channels.size(0), channels.size(2)
    start = torch.zeros(count + classes, dtype=torch.double, device=labels.device)
    start[1:count] = -3.0

    def loss(free: Tensor) -> Tensor:
        mixed = (free[:count].exp()[:, None, None] * channels).sum(dim=0) + free[count:]
        # As if one observation spoke for each number that it began with: with few labels nothing runs away.
        return F.cross_entropy(mixed, labels, reduction="sum") + (free - start).square().sum() / 2

    found = fit(loss, start)
    return found[:count].exp(), found[count:]


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

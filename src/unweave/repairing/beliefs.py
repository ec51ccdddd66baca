"""What is believed of the classes of nodes without trusting any one edge."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "FEW",
    "along_edges",
    "by_label",
    "chance_share",
    "lift_of",
    "propagate",
    "spread_out",
    "weigh",
    "with_labels",
]

SWEEPS = 6
"""Of beliefs along the edges: as far as most graphs are wide."""

FEW = 1e-3
"""Share of chance edges below which nothing is to be told from none."""

RIDGE = 0.1
"""Weight decay of the regression that weighs evidence: enough that what all edges have in common runs nowhere."""

NEWTON, SMALL = 30, 1e-9
"""Most steps of that regression, and the part of its loss that one must bring."""

FIRST, EVEN = 0.1, 0.5
"""Share of chance edges that is believed at first; and for good where edges are judged, since planted ones agree on the
class of their target and so pass for right ones."""

LEVELS = (0.5, 0.25, 0.1, 0.05)
"""Quantiles of chance below which what is there is counted."""

PRIOR = 10.0
"""Edges that a kind of which nothing is known has seen: as the others are, on the whole."""


def with_labels(said: Tensor, known: Tensor, log_class: Tensor) -> Tensor:
    """The same, joined by what is believed of a label where there is one."""
    return torch.where(known[:, None], F.log_softmax(said + log_class, dim=1), said)


def by_label(labels: Tensor, known: Tensor, rate: float, classes: int) -> Tensor:
    """Log-probabilities of the classes by a label that is wrong at some rate; none where there is no label."""
    rate = min(max(rate, FEW), 0.5)
    found = labels.new_full((labels.numel(), classes), math.log(rate / max(classes - 1, 1)), dtype=torch.double)
    found.scatter_(1, labels.clamp(min=0)[:, None], math.log1p(-rate))
    return torch.where(known[:, None], found, torch.zeros_like(found))


def spread_out(x: Tensor) -> Tensor:
    """Features of length 1, each column by its spread, so that what is rare counts more."""
    spread = x.double().std(dim=0)
    return F.normalize(x * torch.where(spread > 0, 1 / spread, 0.0).to(x.dtype), dim=1)


def weigh(evidence: Tensor, real: Tensor, kind: Tensor | None = None) -> Tensor:
    """log density ratio of what is there and of chance: a logistic regression on evidence.

    Each evidence counts one way: somebody may have planted many of one kind that are odder than chance, and a curve
    that turns, or one for each kind, would make the oddest of all look usual.

    Args:
        evidence: What speaks for each.
        real: Which are there.
        kind: Where it is given, nobody is taken to have aimed at a kind: evidence may weigh more or less in each than
            it does in all, and its curve may turn.
    """
    scaled = (evidence - evidence.mean(dim=0)) / evidence.std(dim=0).clamp(min=1e-12)
    wide = torch.cat([torch.tanh(scaled), scaled.new_ones(scaled.size(0), 1)], dim=1)
    if kind is None:
        kind = torch.zeros_like(real, dtype=torch.long)
    else:
        wide = torch.cat([scaled, wide], dim=1)
        wide = torch.cat([wide, *((kind == number)[:, None] * wide for number in torch.unique(kind).tolist())], dim=1)
    drift = wide @ _logistic(wide, real.double())
    even = torch.stack([torch.bincount(kind[some], minlength=3).clamp(min=1) for some in (real, ~real)]).double().log()
    return drift - (even[0] - even[1])[kind]


def _logistic(x: Tensor, target: Tensor) -> Tensor:
    """Weights of a logistic regression, by Newton's method with steps that are halved where they do not help."""
    weight = x.new_zeros(x.size(1))

    def loss(at: Tensor) -> float:
        missed = F.binary_cross_entropy_with_logits(x @ at, target, reduction="sum")
        return float(missed + RIDGE * at.square().sum() / 2)

    value = loss(weight)
    for _ in range(NEWTON):
        p = torch.sigmoid(x @ weight)
        slope = x.t() @ (p - target) + RIDGE * weight
        bend = (x * (p * (1 - p))[:, None]).t() @ x + RIDGE * torch.eye(x.size(1), dtype=x.dtype)
        step = torch.linalg.solve(bend, slope)
        size = 1.0
        while (lower := loss(weight - size * step)) > value and size > SMALL:
            size /= 2
        if value - lower <= SMALL * abs(value):
            break
        weight, value = weight - size * step, lower
    return weight


def _means(values: Tensor, kind: Tensor) -> Tensor:
    """The mean of some numbers in each of the three kinds, as if a few of each were like all."""
    total, count = values.new_zeros(3).index_add_(0, kind, values), torch.bincount(kind, minlength=3)
    return (total + PRIOR * values.mean()) / (count + PRIOR)


def _quantile(values: Tensor, level: float) -> Tensor:
    """The value that a share of them does not exceed; torch's own takes no more than 16 million."""
    return values.kthvalue(max(1, round(level * values.numel()))).values


def chance_share(likely: Tensor, real: Tensor, kind: Tensor) -> tuple[float, Tensor]:
    """The share of what is there that looks like chance, and how probable each is to be that (Storey, 2002).

    What lies below a low quantile of chance is chance, but for what belongs and is odd all the same: so each quantile
    gives a share that is too high, and the least of them, each by one standard error more than was seen, is nearest.
    """
    shares = []
    for level in LEVELS:
        low = _quantile(likely[~real], level).expand(3).clone()
        for number in torch.unique(kind[~real]).tolist():
            low[number] = _quantile(likely[~real & (kind == number)], level)
        below = (likely <= low[kind]).double()
        seen, usual = _means(below[real], kind[real]), _means(below[~real], kind[~real]).clamp(min=level)
        counts = [torch.bincount(kind[some], minlength=3) + PRIOR for some in (real, ~real)]
        error = (seen * (1 - seen) / counts[0] + (seen / usual).square() * usual * (1 - usual) / counts[1]).sqrt()
        shares.append((seen + error + 1 / counts[0]) / usual)
    rate = torch.stack(shares).amin(dim=0).clamp(max=1.0)[kind[real]]
    return float(rate.mean()), (rate * (-likely[real]).exp()).clamp(max=1.0)


def lift_of(u: Tensor, v: Tensor, good: Tensor | None = None) -> Tensor:
    """M(a, b) / (π(a) π(b)): how much oftener classes meet along edges than by chance, from beliefs of both ends."""
    mixing = (u if good is None else good[:, None] * u).t() @ v
    mixing = mixing + mixing.t()
    share = mixing.sum(dim=1)
    # As if so many edges by chance had been seen as there are classes: a class of few edges is not believed far.
    mixing = mixing + share[:, None] * share[None, :] / share.sum() ** 2 * share.numel()
    share = mixing.sum(dim=1)
    return mixing * mixing.sum() / (share[:, None] * share[None, :])


def along_edges(own: Tensor, ends: Tensor, early: Tensor, kind: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Beliefs of the classes of nodes that go along the edges (sum-product), where no single neighbour decides.

    Each edge may be one by chance that says nothing, and is less likely so where other evidence speaks for it.

    Args:
        own: Log-probabilities of the classes by each node alone.
        ends: The edges; at least one.
        early: log density ratio of each edge by other evidence.
        kind: How many ends of each edge were trained on; how many of each kind are by chance is then found. Where it is
            ``None``, each is as likely to be by chance as not (:data:`EVEN`).

    Returns:
        Log-probabilities of the classes of every node; how well the classes of both ends of each edge go together, by
        beliefs that the edge had no part in; and how much oftener classes meet along edges than by chance.
    """
    count, classes = ends.size(0), own.size(1)
    source, target = torch.cat([ends, ends.flip(1)]).t()
    rate, trust = torch.full_like(early, EVEN if kind is None else FIRST), early.clamp(-20, 20).exp()
    log_q, bad = own, rate / (rate + (1 - rate) * trust)
    message = own.new_zeros(2 * count, classes)
    for _ in range(SWEEPS):
        q = log_q.exp()
        lift = lift_of(q[ends[:, 0]], q[ends[:, 1]], 1 - bad)
        away = torch.cat([bad, bad])[:, None]
        back = torch.cat([message[count:], message[:count]])
        hollow = F.softmax(log_q[source] - back, dim=1)
        message = ((1 - away) * (hollow @ lift) + away).log()
        log_q = F.log_softmax(own + torch.zeros_like(own).index_add_(0, target, message), dim=1)
        left = F.softmax(log_q[ends[:, 0]] - message[count:], dim=1)
        right = F.softmax(log_q[ends[:, 1]] - message[:count], dim=1)
        fit = ((left @ lift) * right).sum(dim=1)
        bad = rate / (rate + (1 - rate) * fit * trust)
        if kind is not None:
            rate = _means(bad, kind).clamp(FEW, EVEN)[kind]
    return log_q, fit, lift


def propagate(own: Tensor, ends: Tensor, chance: Tensor, early: Tensor) -> Tensor:
    """How well the classes of both ends go together, of edges and then of chance pairs (see :func:`along_edges`).

    Args:
        own: Log-probabilities of the classes by each node alone.
        ends: The edges.
        chance: Pairs that are none, to compare with.
        early: log density ratio of each edge by other evidence.

    Returns:
        log Σ_ab q_u(a) q_v(b) M(a, b) / (π(a) π(b)) of the edges and then of the pairs.
    """
    log_q, fit, lift = along_edges(own, ends, early)
    q = log_q.exp()
    rest = ((q[chance[:, 0]] @ lift) * q[chance[:, 1]]).sum(dim=1)
    return torch.cat([fit, rest]).clamp(min=1e-6).log()

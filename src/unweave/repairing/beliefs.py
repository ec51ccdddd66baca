"""What is believed of the classes of nodes without trusting any one edge."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from unweave.repairing.fitting import fit
from unweave.repairing.labels import Labels

__all__ = [
    "FEW",
    "chance_share",
    "lift_of",
    "propagate",
    "said_by_features",
    "spread_out",
    "weigh",
    "with_labels",
]

FOLDS = 5
"""A classifier of features is fitted without each fifth of the nodes in turn."""

WIDE = 256
"""Directions of features that are looked at, those of most spread; more is noise to a linear classifier."""

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Weight decays that the first fold chooses from."""

SWEEPS = 6
"""Of beliefs along the edges: as far as most graphs are wide."""

FEW = 1e-3
"""Share of chance edges below which nothing is to be told from none."""

PRIOR = 10.0
"""Edges that a kind of which nothing is known has seen: as the others are, on the whole."""


def said_by_features(data: Data, labels: Labels, generator: torch.Generator) -> Tensor:
    """Log-probabilities of the classes by features alone, by classifiers of other nodes."""
    x = F.normalize(data.x.cpu().float(), dim=1)
    if min(x.shape) > WIDE:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _, _, directions = torch.svd_lowrank(x, q=WIDE, niter=2)
        x = x @ directions
    x = torch.cat([x.double(), x.new_ones(x.size(0), 1).double()], dim=1)
    known, log_class = data.train_mask.cpu(), labels.log_class.cpu()
    target = log_class.exp()
    fold = torch.randperm(data.num_nodes, generator=generator) % FOLDS
    fits = {s: _said(x, target, known, fold == 0, s) for s in STRENGTHS}
    judged = known & (fold == 0)
    best = max(STRENGTHS, key=lambda s: float((fits[s][judged[fold == 0]] * target[judged]).sum()))
    said = torch.zeros_like(log_class)
    for number in range(FOLDS):
        mine = fold == number
        said[mine] = fits[best] if number == 0 else _said(x, target, known, mine, best)
    return said


def with_labels(said: Tensor, data: Data, labels: Labels) -> Tensor:
    """The same, joined by what is believed of a label where there is one."""
    known = data.train_mask.cpu()
    return torch.where(known[:, None], F.log_softmax(said + labels.log_class.cpu(), dim=1), said)


def spread_out(x: Tensor) -> Tensor:
    """Features of length 1, each column by its spread, so that what is rare counts more."""
    spread = x.double().std(dim=0)
    return F.normalize(x * torch.where(spread > 0, 1 / spread, 0.0).to(x.dtype), dim=1)


def _said(x: Tensor, target: Tensor, known: Tensor, mine: Tensor, strength: float) -> Tensor:
    """What a classifier of the other nodes says of some."""
    return F.log_softmax(x[mine] @ _logistic(x[known & ~mine], target[known & ~mine], strength), dim=1)


def _logistic(x: Tensor, target: Tensor, strength: float) -> Tensor:
    """Weights of a multinomial logistic regression to probabilities."""

    def loss(weight: Tensor) -> Tensor:
        return F.cross_entropy(x @ weight, target, reduction="sum") + strength * weight.square().sum() / 2

    return fit(loss, torch.zeros(x.size(1), target.size(1), dtype=x.dtype), iterations=50)


def weigh(evidence: Tensor, real: Tensor, kind: Tensor) -> Tensor:
    """log density ratio of edges and chance pairs of their kind: a logistic regression on evidence, straight and bent.

    Evidence may weigh more or less in each kind than it does in all.
    """
    scaled = (evidence - evidence.mean(dim=0)) / evidence.std(dim=0).clamp(min=1e-12)
    wide = torch.cat([scaled, torch.tanh(scaled), scaled.new_ones(scaled.size(0), 1)], dim=1)
    wide = torch.cat([wide, *((kind == number)[:, None] * wide for number in torch.unique(kind).tolist())], dim=1)
    drift = wide @ _logistic(wide, torch.stack([~real, real], dim=1).double(), 0.1)
    even = torch.stack([torch.bincount(kind[some], minlength=3).clamp(min=1) for some in (real, ~real)]).double().log()
    return drift[:, 1] - drift[:, 0] - (even[0] - even[1])[kind]


def _means(values: Tensor, kind: Tensor) -> Tensor:
    """The mean of some numbers in each of the three kinds, as if a few of each were like all."""
    total, count = values.new_zeros(3).index_add_(0, kind, values), torch.bincount(kind, minlength=3)
    return (total + PRIOR * values.mean()) / (count + PRIOR)


def chance_share(likely: Tensor, real: Tensor, kind: Tensor) -> tuple[float, Tensor]:
    """The share of what is there that looks like chance, and how probable each is to be that (Storey, 2002).

    Below the middle of chance of its kind hardly anything belongs, so that what lies there is chance but for little:
    the share is an upper one.
    """
    low = likely[~real].median().expand(3).clone()
    for number in torch.unique(kind[~real]).tolist():
        low[number] = likely[~real & (kind == number)].median()
    below = (likely <= low[kind]).double()
    share = _means(below[real], kind[real]) / _means(below[~real], kind[~real]).clamp(min=0.5)
    rate = share.clamp(max=1.0)[kind[real]]
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


def propagate(own: Tensor, ends: Tensor, chance: Tensor, early: Tensor, kind: Tensor) -> Tensor:
    """How well the classes of both ends go together, by beliefs that the edge between them had no part in.

    Beliefs go along the edges (sum-product), and each edge may be one by chance that says nothing: with a
    probability before that its kind has, and less where other evidence speaks for it. So no single neighbour decides.

    Args:
        own: Log-probabilities of the classes by each node alone.
        ends: The edges.
        chance: Pairs that are none, to compare with.
        early: log density ratio of each edge by other evidence.
        kind: The kind of each edge: how many of its ends were trained on.

    Returns:
        log Σ_ab q_u(a) q_v(b) M(a, b) / (π(a) π(b)) of the edges and then of the pairs.
    """
    count, classes = ends.size(0), own.size(1)
    source, target = torch.cat([ends, ends.flip(1)]).t()
    rate, trust = torch.full_like(early, 0.1), early.clamp(-20, 20).exp()
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
        rate = _means(bad, kind).clamp(FEW, 0.5)[kind]
    q = log_q.exp()
    rest = ((q[chance[:, 0]] @ lift) * q[chance[:, 1]]).sum(dim=1)
    return torch.cat([fit, rest]).clamp(min=1e-6).log()

"""Which edges join what does not belong together.

An edge is looked at as if it were not there: would the rest of the graph expect it? Evidence is what holds for edges of
*this* graph more often than for pairs of nodes drawn by chance, so that no graph is taken to be like another:

=============== ======================================================================================================
``classes``     the classes of both ends and how classes mix along edges here, by beliefs that the edge had no part in
                (:mod:`unweave.repairing.beliefs`)
``alone``       the same by labels and features alone, which no edge can deceive
``features``    how alike the features of both ends are
``neighbours``  neighbours that both ends have in common
=============== ======================================================================================================

A logistic regression of edges against chance pairs weighs them. The share of edges that look like chance pairs is found
as Storey (2002) finds the share of true null hypotheses; then Bayes' rule says how probable each edge is to be one.

Who plants edges need not plant them evenly: attacks are aimed at nodes that are predicted, not at those that were
trained on. So edges are of three kinds, by how many of their ends were trained on, and each kind is compared with
chance pairs of its own and has a share of its own. Evidence weighs the same in all: of one kind more edges may be
planted than not, and there the odd would seem usual.

A node that loses its last edge hears nothing more, which costs a model far more than one edge less of many. So each
node holds the edge that looks most like one, if it looks rather like an edge than like a chance pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.index import distinct_edges, edge_keys
from unweave.repairing.beliefs import (
    chance_share,
    lift_of,
    propagate,
    spread_out,
    weigh,
    with_labels,
)
from unweave.repairing.labels import Labels

__all__ = ["EVIDENCE", "Edges", "judge_edges"]

EVIDENCE = ("classes", "alone", "features", "neighbours")

ROWS = 65_536
"""Pairs looked at in one go."""


@dataclass(frozen=True)
class Edges:
    """What is believed of the edges of a graph.

    Attributes:
        pairs: The distinct edges without loops, ``[edges, 2]``.
        evidence: What speaks for each of them, ``[edges, kinds]``, in the order of :data:`EVIDENCE`.
        usual: The same of chance pairs.
        wrong: How probable it is that an edge joins its ends by chance.
        rate: The share of such edges.
        held: The edges that one of their ends is not to be without: the likeliest it has, and rather an edge than not.
    """

    pairs: Tensor
    evidence: Tensor
    usual: Tensor
    wrong: Tensor
    rate: float
    held: Tensor


def judge_edges(data: Data, labels: Labels, *, seed: int = 0) -> Edges:
    """Judge every edge.

    Args:
        data: The graph.
        labels: What is believed of its labels.
        seed: Draws the chance pairs.
    """
    ends = distinct_edges(data).cpu()
    ends = ends[ends[:, 0] != ends[:, 1]]
    generator = torch.Generator().manual_seed(seed)
    trained = data.train_mask.cpu()
    chance = _chance(ends, trained, generator)
    if not chance.size(0):  # no edge, or every pair is one
        none = torch.zeros(0, len(EVIDENCE), dtype=torch.double)
        wrong = none.new_zeros(ends.size(0))
        return Edges(ends, none.new_zeros(ends.size(0), len(EVIDENCE)), none, wrong, 0.0, wrong == 0)
    pairs = torch.cat([ends, chance])
    real = torch.arange(pairs.size(0)) < ends.size(0)
    kind = trained[pairs].sum(dim=1)
    alike, common = _alike(data.x.cpu(), pairs), _common(ends, pairs, data.num_nodes)
    own = with_labels(labels.by_features.cpu(), trained, labels.log_class.cpu())
    early = weigh(torch.stack([alike, common], dim=1), real)[real]
    classes = propagate(own, ends, chance, early)
    evidence = torch.stack([classes, _together(own, ends, pairs), alike, common], dim=1)
    likely = weigh(evidence, real)
    rate, wrong = chance_share(likely, real, kind)
    return Edges(ends, evidence[real], evidence[~real], wrong, rate, _held(likely[real], ends, data.num_nodes))


def _held(likely: Tensor, ends: Tensor, size: int) -> Tensor:
    """The edges that are the likeliest of one of their ends and more like an edge than like a chance pair."""
    most = likely.new_zeros(size).scatter_reduce(0, ends.flatten(), likely.repeat_interleave(2), "amax")
    return (likely > 0) & (likely[:, None] == most[ends]).any(dim=1)


def _chance(ends: Tensor, trained: Tensor, generator: torch.Generator) -> Tensor:
    """About as many pairs as there are edges of each kind, drawn by the degrees of the nodes, none of them an edge."""
    size, found = trained.numel(), []
    known = edge_keys(ends[:, 0], ends[:, 1], size, ordered=True)
    kind = trained[ends].sum(dim=1)
    for number in torch.unique(kind).tolist():
        some = ends[kind == number]
        sides = (some[trained[some]], some[~trained[some]]) if number == 1 else (some.flatten(), some.flatten())
        count = (4 * some.size(0) + 64,)
        drawn = [side[torch.randint(side.numel(), count, generator=generator)] for side in sides]
        keys = edge_keys(drawn[0], drawn[1], size, ordered=True)
        fit = (drawn[0] != drawn[1]) & ~torch.isin(keys, known)
        found.append(torch.stack(drawn, dim=1)[fit][: some.size(0)])
    return torch.cat(found) if found else ends


def _together(log_q: Tensor, ends: Tensor, pairs: Tensor) -> Tensor:
    """log Σ_ab q_u(a) q_v(b) M(a, b) / (π(a) π(b)), with M the mixing of classes along edges."""
    q = log_q.exp()
    lift = lift_of(q[ends[:, 0]], q[ends[:, 1]])
    found = [((q[u] @ lift) * q[v]).sum(dim=1) for u, v in _parts(pairs)]
    return torch.cat(found).clamp(min=1e-6).log()


def _alike(x: Tensor, pairs: Tensor) -> Tensor:
    """Cosine of the features of both ends, each column by its spread."""
    rows = spread_out(x)
    return torch.cat([(rows[u] * rows[v]).sum(dim=1).double() for u, v in _parts(pairs)])


def _common(ends: Tensor, pairs: Tensor, size: int) -> Tensor:
    """Neighbours in common, those of few neighbours counting more (Adamic and Adar, 2003)."""
    row, column = torch.cat([ends, ends.flip(1)]).t().numpy()
    degree = np.bincount(row, minlength=size)
    matrix = scipy.sparse.csr_matrix((1 / np.sqrt(np.log(degree[column] + 1.0)), (row, column)), shape=(size, size))
    found = [matrix[u.numpy()].multiply(matrix[v.numpy()]).sum(axis=1) for u, v in _parts(pairs)]
    return torch.from_numpy(np.concatenate([np.asarray(part).ravel() for part in found])).log1p()


def _parts(pairs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Both ends of the pairs, so many at a time."""
    for some in torch.split(pairs, ROWS):
        yield some[:, 0], some[:, 1]

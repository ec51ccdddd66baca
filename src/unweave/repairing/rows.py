"""Features that are out of place: those of another node, it seems.

A node's features are looked at as if they were not there: would its label and its neighbours expect them? Evidence is
what holds for the features of nodes of *this* graph more often than for the features of another node, drawn by chance
and put in their place:

============== =======================================================================================================
``classes``    the class that the features speak for, and the one that the label and the neighbours do
``neighbours`` how alike the features are to those of the neighbours
============== =======================================================================================================

Weighed and turned into probabilities as for edges (:mod:`unweave.repairing.edges`).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.index import distinct_edges
from unweave.repairing.beliefs import by_label, chance_share, lift_of, spread_out, weigh, with_labels
from unweave.repairing.labels import Labels

__all__ = ["Rows", "judge_rows"]


@dataclass(frozen=True)
class Rows:
    """What is believed of the features of the nodes.

    Attributes:
        wrong: How probable it is that the features of a node are those of another; 0 where nothing speaks of it.
        rate: The share of such nodes.
        alike: How alike the features are to the neighbours' (cosine).
        usual: The same with features of another node.
        says: The class that the features speak for.
        expected: The class that the rest speaks for.
    """

    wrong: Tensor
    rate: float
    alike: Tensor
    usual: Tensor
    says: Tensor
    expected: Tensor


def judge_rows(data: Data, labels: Labels, *, seed: int = 0) -> Rows:
    """Judge the features of every node that has a label or neighbours.

    Args:
        data: The graph.
        labels: What is believed of its labels.
        seed: Draws the features to compare with.
    """
    size, trained = data.num_nodes, data.train_mask.cpu()
    generator = torch.Generator().manual_seed(seed)
    said = labels.by_features.cpu()
    ends = distinct_edges(data).cpu()
    ends = ends[ends[:, 0] != ends[:, 1]]
    both = torch.cat([ends, ends.flip(1)])
    source, target = both.t()
    rows = spread_out(data.x.cpu())
    around = F.normalize(torch.zeros_like(rows).index_add_(0, target, rows[source]), dim=1)
    expected = by_label(data.y.cpu(), trained, labels.rate, said.size(1))
    if ends.numel():
        q = with_labels(said, trained, labels.log_class.cpu()).exp()
        lift = lift_of(q[ends[:, 0]], q[ends[:, 1]])
        expected = expected.index_add(0, target, (q[source] @ lift).log())
    expected = F.log_softmax(expected, dim=1)
    own = torch.arange(size)
    other = (own + torch.randint(1, max(size, 2), (size,), generator=generator)) % size
    common = said.exp().mean(dim=0).log()
    evidence = torch.stack(
        [
            torch.cat([torch.logsumexp(said[who] + expected - common, dim=1) for who in (own, other)]),
            torch.cat([(rows[who] * around).sum(dim=1).double() for who in (own, other)]),
        ],
        dim=1,
    )
    real = torch.arange(2 * size) < size
    there = trained | (torch.bincount(target, minlength=size) > 0)
    used, kind = torch.cat([there, there]), torch.cat([trained, trained]).long()
    wrong = torch.zeros(size, dtype=torch.double)
    rate, wrong[there] = chance_share(weigh(evidence[used], real[used], kind[used]), real[used], kind[used])
    alike, usual = evidence[:, 1].chunk(2)
    return Rows(wrong, rate, alike, usual, said.argmax(dim=1), expected.argmax(dim=1))

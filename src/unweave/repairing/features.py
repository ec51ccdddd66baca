"""What features alone say of the classes of nodes.

A ridge regression of the classes on the features: what it says of a node that it was fitted to is what it would say
without that node, which has a closed form, so that all nodes and all strengths cost one decomposition.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.repairing.fitting import fit

__all__ = ["feature_rows", "said_by_features"]

WIDE = 256
"""Directions of features that are looked at, those of most spread; more is noise to a linear classifier."""

STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-4, 7))
"""Weight decays that are chosen from."""


def feature_rows(x: Tensor) -> Tensor:
    """Features as a linear classifier takes them: of length 1, in the directions of most spread, and a constant."""
    x = F.normalize(x.cpu().float(), dim=1)
    if min(x.shape) > WIDE:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _, _, directions = torch.svd_lowrank(x.to_sparse(), q=WIDE, niter=2)
        x = x @ directions
    return torch.cat([x.double(), x.new_ones(x.size(0), 1).double()], dim=1)


def said_by_features(x: Tensor, known: Tensor, log_class: Tensor) -> Tensor:
    """Log-probabilities of the classes of every node, by a regression that the node itself had no part in.

    Without node i the residual of i is r / (1 - h), with h its leverage. The strength is that of the least mean square
    of those residuals, and a temperature and a constant for each class turn what is said into probabilities.

    Args:
        x: Features (:func:`feature_rows`).
        known: Mask of the nodes whose classes are learnt from.
        log_class: What is believed of their classes.
    """
    known, target = known.cpu(), log_class.cpu().exp()[known.cpu()]
    spread, turned = torch.linalg.eigh(x[known].t() @ x[known])
    z = x @ turned
    left = {strength: without(z[known], spread, target, strength) for strength in STRENGTHS}
    best = min(STRENGTHS, key=lambda strength: float((target - left[strength]).square().sum()))
    score = z @ (z[known].t() @ target / (spread.clamp(min=0) + best)[:, None])
    score[known] = left[best]

    def loss(free: Tensor) -> Tensor:
        # As if one observation spoke for each number that it began with: a class that nobody has does not run away.
        missed = F.cross_entropy(free[0].exp() * score[known] + free[1:], target, reduction="sum")
        return missed + free.square().sum() / 2

    found = fit(loss, torch.zeros(1 + target.size(1), dtype=x.dtype))
    return F.log_softmax(found[0].exp() * score + found[1:], dim=1)


def without(z: Tensor, spread: Tensor, target: Tensor, strength: float) -> Tensor:
    """What a ridge regression without each node says of it.

    Args:
        z: The nodes, in directions in which Σ z zᵀ is diagonal.
        spread: That diagonal.
        target: What is regressed on them.
        strength: Weight decay.
    """
    scale = 1 / (spread.clamp(min=0) + strength)
    said = z @ (scale[:, None] * (z.t() @ target))
    free = (1 - z.square() @ scale).clamp(min=1e-9)[:, None]
    return target - (target - said) / free

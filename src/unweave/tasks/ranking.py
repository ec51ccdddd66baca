"""How good predicted links and recommendations are: AUC, hits@k, recall@k and nDCG@k."""

import torch
from torch import Tensor

__all__ = ["auc", "hits_at", "ndcg_at", "recall_at"]


def auc(positive: Tensor, negative: Tensor) -> float:
    """How often a true pair scores higher than one that is not; a tie counts half."""
    scores = torch.cat([positive, negative]).double()
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    rank = (count.cumsum(0) - (count - 1) / 2)[place]
    n, m = positive.numel(), negative.numel()
    return float((rank[:n].sum() - n * (n + 1) / 2) / (n * m))


def hits_at(k: int, positive: Tensor, negative: Tensor) -> float:
    """The share of true pairs that score higher than the k-th best of those that are not."""
    if negative.numel() < k:
        return 1.0
    return float((positive > negative.topk(k).values[-1]).double().mean())


def recall_at(k: int, hit: Tensor, relevant: Tensor) -> float:
    """The mean over users of the share of what they chose that is among their first k.

    Args:
        k: How many are recommended.
        hit: Whether each recommendation was chosen, ``[users, k]``, best first.
        relevant: How many things each user chose.
    """
    return float((hit[:, :k].double().sum(dim=1) / relevant.double()).mean())


def ndcg_at(k: int, hit: Tensor, relevant: Tensor) -> float:
    """The same, counting a hit at place r as 1 / log2(r + 1), as a share of the best order."""
    places = min(k, hit.size(1))
    gain = 1 / torch.log2(torch.arange(2, places + 2, dtype=torch.float64, device=hit.device))
    best = gain.cumsum(0)[relevant.clamp(max=places) - 1]
    return float(((hit[:, :places].double() @ gain) / best).mean())

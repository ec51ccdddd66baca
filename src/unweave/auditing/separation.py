"""How well a score tells two sets apart: area under the ROC curve, true positives at few false ones, intervals."""

from dataclasses import dataclass

import numpy as np

__all__ = ["FALSE_POSITIVES", "Apart", "auc", "auc_interval", "hits_at"]

FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Apart:
    """Scores of the items that a request takes, and of others that they are to be told from.

    Attributes:
        inside: Those of the request.
        outside: The others.
    """

    inside: np.ndarray
    outside: np.ndarray

    @classmethod
    def first(cls, scores: np.ndarray, count: int, chosen: np.ndarray | None = None) -> "Apart":
        """The first items, or some of them, and all after those."""
        inside = scores[:count]
        return cls(inside if chosen is None else inside[chosen], scores[count:])


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: np.ndarray = (np.cumsum(count) - (count - 1) / 2)[place]
    return found


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    found = ranks(np.concatenate([positive, negative]))[: len(positive)]
    return float((found.sum() - len(positive) * (len(positive) + 1) / 2) / (len(positive) * len(negative)))


def hits_at(positive: np.ndarray, negative: np.ndarray, rate: float = FALSE_POSITIVES) -> float:
    """The share of positives above the threshold that at most ``rate`` of the negatives exceed."""
    allowed = int(rate * len(negative))
    threshold = np.sort(negative)[::-1][allowed]
    return float((positive > threshold).mean())


def auc_interval(positive: np.ndarray, negative: np.ndarray) -> tuple[float, float] | tuple[None, None]:
    """95 % interval of the area by the variance of DeLong et al. (Biometrics 1988); none for a single item."""
    if min(len(positive), len(negative)) < 2:
        return None, None
    above = (ranks(np.concatenate([positive, negative]))[: len(positive)] - ranks(positive)) / len(negative)
    below = (ranks(np.concatenate([negative, positive]))[: len(negative)] - ranks(negative)) / len(positive)
    spread = 1.96 * float(np.sqrt(above.var(ddof=1) / len(positive) + below.var(ddof=1) / len(negative)))
    middle = float(above.mean())
    return max(0.0, middle - spread), min(1.0, middle + spread)

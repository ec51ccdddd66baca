"""The likelihood-ratio attack on shadow models.

After Carlini et al., "Membership inference attacks from first principles" (IEEE S&P 2022). For every item some shadow
models saw it and some did not. What a model says of the item (one or several numbers that are near normal over models)
is compared with both groups,

    Λ = log N(φ; μ_in, σ_in) − log N(φ; μ_out, σ_out),

summed over the numbers. The means are the item's own. The deviations are those of all items together, as the paper
advises for few shadow models; the error of a mean of m models is in them (σ² (1 + 1/m)).
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unweave.auditing.case import Shadow, Subject

__all__ = ["LikelihoodRatio", "confidence"]

SMALLEST = 1e-6


def confidence(log_probabilities: Tensor, labels: Tensor) -> np.ndarray:
    """log(p / (1 − p)) of a label: near normal over models."""
    p = log_probabilities.gather(1, labels[:, None]).flatten()
    found: np.ndarray = (p - torch.log1p(-p.exp().clamp(max=1 - 1e-12))).cpu().numpy()
    return found


class LikelihoodRatio:
    """An attack that was fitted to shadow models.

    Args:
        shadows: The models.
        seen: For every model which items it saw, ``[models, items]``.
        look: What a model says of the items, ``[items, numbers]``.
    """

    def __init__(self, shadows: tuple[Shadow, ...], seen: np.ndarray, look: Callable[[Subject], np.ndarray]) -> None:
        said = np.stack([look(shadow.subject) for shadow in shadows])
        self._look, self.normals = look, [_normal(said, mask) for mask in (seen, ~seen)]

    def __call__(self, subject: Subject) -> np.ndarray:
        """How much likelier each item is for a model that saw it."""
        said = self._look(subject)
        inside, outside = (-(((said - mean) / spread) ** 2) / 2 - np.log(spread) for mean, spread in self.normals)
        ratio: np.ndarray = (inside - outside).sum(axis=1)
        return ratio


def _normal(said: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of each item ``[items, numbers]`` and deviations of all ``[numbers]`` over the models of a mask."""
    weight = mask[:, :, None]
    count = np.maximum(weight.sum(axis=0), 1)
    mean = (said * weight).sum(axis=0) / count
    left = (((said - mean) ** 2) * weight).sum(axis=(0, 1)) / max(1, (np.maximum(mask.sum(axis=0) - 1, 0)).sum())
    return mean, np.sqrt(np.maximum(left * (1 + 1 / count.mean()), SMALLEST))

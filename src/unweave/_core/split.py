"""The split of the paper: 90 % of the examples to train on, 10 % to test, at random by seed."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["parts_of"]


def parts_of(size: int, seed: int) -> dict[str, Tensor]:
    """Numbers of the examples of each part: a tenth for the test, of the others a tenth for validation."""
    order = torch.from_numpy(np.random.default_rng([seed, 90]).permutation(size))
    test = round(0.1 * size)
    val = round(0.1 * (size - test))
    return {"test": order[:test], "val": order[test : test + val], "train": order[test + val :]}

"""The split of the paper: 90 % of the nodes to train on, 10 % to test, at random by seed."""

import numpy as np
import torch
from torch_geometric.data import Data

__all__ = ["split"]


def split(data: Data, *, seed: int = 0) -> Data:
    """Set the three masks of ``data`` in place and return it.

    A tenth of the nodes is for the test; of the others a tenth is held out for validation.
    """
    size = data.num_nodes
    order = torch.from_numpy(np.random.default_rng([seed, 90]).permutation(size))
    test = round(0.1 * size)
    val = round(0.1 * (size - test))
    parts = {
        "test_mask": order[:test],
        "val_mask": order[test : test + val],
        "train_mask": order[test + val :],
    }
    for name, members in parts.items():
        mask = torch.zeros(size, dtype=torch.bool, device=data.x.device)
        mask[members.to(mask.device)] = True
        data[name] = mask
    return data

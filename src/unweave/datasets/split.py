"""The split of the paper: 90 % of the nodes to train on, 10 % to test, at random by seed."""

import torch
from torch_geometric.data import Data

from unweave._core.split import parts_of
from unweave.errors import DataError
from unweave.tasks.task import Task

__all__ = ["split"]


def split(data: Data, *, seed: int = 0) -> Data:
    """Set the three masks of ``data`` in place and return it.

    A tenth of the nodes is for the test; of the others a tenth is held out for validation.
    """
    if isinstance(data, Task):
        raise DataError(f"not all nodes of a {type(data).__name__} are examples; its masks are given when it is made")
    for name, members in parts_of(data.num_nodes, seed).items():
        mask = torch.zeros(data.num_nodes, dtype=torch.bool, device=data.x.device)
        mask[members.to(mask.device)] = True
        data[f"{name}_mask"] = mask
    return data

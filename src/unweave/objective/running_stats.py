"""Running statistics of normalisation layers: what a model remembers of its graph beside its parameters."""

from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from unweave.objective.objective import Forward

__all__ = ["refresh", "running"]


def running(model: nn.Module) -> dict[str, Any]:
    """The layers that keep running statistics, by name."""
    return {name: module for name, module in model.named_modules() if getattr(module, "running_mean", None) is not None}


def refresh(model: nn.Module, data: Data, forward: Forward) -> bool:
    """Take running statistics anew, over one pass with the parameters as they are; whether there were any."""
    norms = running(model)
    if not norms:
        return False
    momenta = {name: norm.momentum for name, norm in norms.items()}
    for norm in norms.values():
        norm.reset_running_stats()
        norm.momentum = None  # a plain average, here over one pass
        norm.train()
    with torch.no_grad():
        forward(model, data)
    for name, norm in norms.items():
        norm.momentum = momenta[name]
        norm.eval()
    return True

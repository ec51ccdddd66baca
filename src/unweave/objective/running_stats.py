"""Running statistics of normalisation layers: what a model remembers of its graph beside its parameters."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.objective.objective import Forward
from unweave.objective.parameters import duplicate

__all__ = ["carry", "foreign", "refresh", "running"]


def running(model: nn.Module) -> dict[str, Any]:
    """The layers that keep running statistics, by name."""
    return {name: module for name, module in model.named_modules() if getattr(module, "running_mean", None) is not None}


def foreign(norm: nn.Module) -> bool:
    """Whether statistics are kept in another way than torch's layers do, so that nobody here can take them anew."""
    return not all(hasattr(norm, name) for name in ("running_var", "momentum", "reset_running_stats"))


def _ours(model: nn.Module) -> dict[str, Any]:
    return {name: norm for name, norm in running(model).items() if not foreign(norm)}


def carry(model: nn.Module, before: nn.Module, old: Data, data: Data, forward: Forward) -> None:
    """Move running statistics by what a pass tells apart between two graphs.

    Statistics are a moving average of a training, often of one on sampled neighbourhoods, and differ from those of one
    pass on the whole graph by more than a request changes. So only the difference of two passes is carried over to
    them. Both are with the old parameters, and before any step: a step takes the statistics as given, so that those
    have to be what the new model will have, and statistics that followed the step would undo a part of it.

    Args:
        model: A model with the old statistics, which are changed in place.
        before: The old model; it stays as it is.
        old: The graph that they come from.
        data: The graph that they are for now.
        forward: How the model is called.
    """
    norms = _ours(model)
    if not norms:
        return
    again = duplicate(before)
    refresh(again, old, forward)
    was = {name: (norm.running_mean.clone(), norm.running_var.clone()) for name, norm in _ours(again).items()}
    refresh(again, data, forward)
    for name, now in _ours(again).items():
        mean, variance = was[name]
        norms[name].running_mean += now.running_mean - mean
        norms[name].running_var.copy_(_moved(norms[name].running_var, variance, now.running_var))


def _moved(kept: Tensor, was: Tensor, now: Tensor) -> Tensor:
    """Variances moved by a ratio: a polish that holds them leaves weights, and a pass, of another scale than theirs.

    Where they grow from next to nothing a ratio knows no bounds, and the difference is the lesser of the two.
    """
    ratio = kept * now / was.clamp(min=torch.finfo(was.dtype).tiny)
    return torch.minimum(ratio, kept + (now - was).clamp(min=0))


def refresh(model: nn.Module, data: Data, forward: Forward) -> bool:
    """Take running statistics anew, over one pass with the parameters as they are; whether there were any."""
    norms = _ours(model)
    if not norms:
        return False
    momenta = {name: norm.momentum for name, norm in norms.items()}
    for norm in norms.values():
        norm.reset_running_stats()
        norm.momentum = 1.0  # what this one pass gives
        norm.train()
    with torch.no_grad():
        forward(model, data)
    for name, norm in norms.items():
        norm.momentum = momenta[name]
        norm.eval()
    return True

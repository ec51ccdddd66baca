"""Running statistics of normalisation layers: what a model remembers of its graph beside its parameters."""

from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from unweave.objective.losses import mean_of
from unweave.objective.objective import Forward, Objective
from unweave.objective.parameters import duplicate

__all__ = ["harm_of_refresh", "refresh", "running"]

CHANGED = 0.05
"""Share of the variance of the outputs by which statistics that are taken anew may change them. For GCN and GraphSAGE
with BatchNorm and dropout on two graphs it was at most 0.036 after 30 to 200 epochs of full-batch training, and for GCN
on sampled neighbourhoods, whose degrees are others, 0.09 to 2.2."""

WORSE = 0.02
"""Share by which they may raise the training loss. Full-batch training never raised it by more than 0.013; GraphSAGE on
five or ten sampled neighbours by 0.04 to 0.5, where it also lost accuracy."""


def running(model: nn.Module) -> dict[str, Any]:
    """The layers that keep running statistics, by name."""
    return {name: module for name, module in model.named_modules() if getattr(module, "running_mean", None) is not None}


def harm_of_refresh(objective: Objective) -> str:
    """Why taking statistics anew on the whole graph would spoil a model there, in words; empty where it would not.

    A training on the whole graph sees its statistics in every step, so that taking them anew gives a model what it was
    trained with, but for the last few steps. One on sampled neighbourhoods leaves others, and has learnt with those.

    Args:
        objective: The trained module and the graph its statistics come from. Both stay as they are.
    """
    own, data, forward = duplicate(objective.model).eval(), objective.data, objective.forward
    with torch.no_grad():
        outputs = [forward(own, data)]
        refresh(own, data, forward)
        outputs.append(forward(own, data))
        before, after = (float(mean_of(objective.node_losses(each), objective.mass)) for each in outputs)
    objective.meter.passes += 3
    first, second = (each.double() for each in outputs)
    change = float((second - first).square().sum() / (first - first.mean(dim=0)).square().sum().clamp(min=1e-30))
    if change > CHANGED:
        return f"they would change the old model's own outputs by {change:.2g} of their variance"
    if after - before > WORSE * abs(before):
        return f"they would raise the old model's own training loss from {before:.3g} to {after:.3g}"
    return ""


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

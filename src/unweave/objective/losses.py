"""Per-node losses: each takes the outputs and targets of n nodes and returns n numbers."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Loss", "binary_cross_entropy", "cross_entropy", "squared_error", "with_slope"]

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(outputs)[target]; outputs may be logits or log-probabilities."""
    return F.cross_entropy(outputs, targets, reduction="none")


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Multi-label loss on logits, summed over the labels of a node."""
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(dim=-1)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """½‖outputs − targets‖², for regression; targets may be given as a column or as a vector."""
    difference = outputs - targets.view_as(outputs)
    return difference.square().sum(dim=-1) / 2


def with_slope(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each node and its derivative by the outputs; that of cross-entropy is written out."""
    if loss is cross_entropy:
        logs = F.log_softmax(outputs, dim=-1)
        chosen = targets[:, None]
        return -logs.gather(1, chosen)[:, 0], logs.exp().scatter_add_(1, chosen, torch.full_like(logs[:, :1], -1.0))
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        losses = loss(leaf, targets)
        (slope,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), slope

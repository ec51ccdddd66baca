"""The curvature of the loss by the outputs of each node."""

from collections.abc import Callable

import torch
from torch import Tensor

from unweave.objective.losses import Loss

__all__ = ["bends", "bends_of", "eigh_of_many", "root_of"]

AT_ONCE = 2**14
"""Small matrices whose eigenvalues are found side by side: cuSOLVER fails on more than about 32,000."""


def bends(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """∇²ℓ of some nodes by their outputs, ``[rows, outputs, outputs]``; outputs are ``[rows, …]``."""
    if loss.plain:
        shares = torch.softmax(outputs.flatten(1), dim=-1)
        return torch.diag_embed(shares) - shares[:, :, None] * shares[:, None, :]
    return bends_of(lambda rows: loss(rows, targets), outputs)


def bends_of(function: Callable[[Tensor], Tensor], outputs: Tensor) -> Tensor:
    """The same of any function that gives a number for each row."""
    flat = outputs.flatten(1) if outputs.dim() > 1 else outputs[:, None]
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
        slope = slope.reshape(flat.shape)
        if not slope.requires_grad:  # it is linear in the outputs
            return flat.new_zeros(*flat.shape, flat.size(1))
        rows = [
            torch.autograd.grad(slope[:, i].sum(), leaf, retain_graph=True, allow_unused=True)[0]
            for i in range(flat.size(1))
        ]
    found = [torch.zeros_like(flat) if row is None else row.reshape(flat.shape) for row in rows]
    return torch.stack(found, dim=1).detach()


def root_of(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """A with A Aᵀ = ∇²ℓ, or what of it is not negative."""
    if loss.plain:
        shares = torch.softmax(outputs, dim=-1)
        return torch.diag_embed(shares.sqrt()) - shares[:, :, None] * shares.sqrt()[:, None, :]
    values, vectors = eigh_of_many(bends(loss, outputs, targets))
    found: Tensor = vectors * values.clamp(min=0).sqrt()[:, None, :]
    return found


def eigh_of_many(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of symmetric matrices, ``[many, n, n]``, of however many."""
    found = [torch.linalg.eigh(some) for some in torch.split(matrices, AT_ONCE)]
    values, vectors = (torch.cat(each) for each in zip(*found, strict=True))
    return values, vectors

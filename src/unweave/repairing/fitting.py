"""Small convex fits of a few weights."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["fit"]

ITERATIONS = 100
"""Of L-BFGS; the problems here end long before."""


def fit(loss: Callable[[Tensor], Tensor], start: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The weights that make a smooth loss smallest, by L-BFGS from some start."""
    free = start.detach().clone().requires_grad_()
    optimiser = torch.optim.LBFGS([free], max_iter=iterations, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(free)
        torch.autograd.backward(value)
        return value

    with torch.enable_grad():
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    return free.detach()

"""The functions between the layers of a built-in model."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.errors import ModelError

__all__ = ["ACTIVATIONS", "activation_of"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
"""By the name that models and the command line use. All but ``relu`` are smooth, which a polish needs to get far."""


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """An activation by name."""
    if name not in ACTIVATIONS:
        raise ModelError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]

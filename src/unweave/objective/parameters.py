"""The trained parameters of a module as one flat vector, and copies of modules."""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from math import prod

import torch
from torch import Size, Tensor, nn

from unweave._core.compat import knowledge_of_code

__all__ = ["duplicate", "flatten", "load_flat", "split", "trained", "unflatten"]


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name; those with ``requires_grad=False`` are constants."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def flatten(model: nn.Module) -> Tensor:
    """All trained parameters as one vector, in the order of ``named_parameters``."""
    return torch.cat([p.detach().reshape(-1) for p in trained(model).values()])


def split(shapes: Mapping[str, Size], theta: Tensor) -> dict[str, Tensor]:
    """A flat vector as named parameters of given shapes."""
    pieces = torch.split(theta, [prod(shape) for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def unflatten(model: nn.Module, theta: Tensor) -> dict[str, Tensor]:
    """A flat vector as the trained parameters of ``model``, by name."""
    return split({name: parameter.shape for name, parameter in trained(model).items()}, theta)


def load_flat(model: nn.Module, theta: Tensor) -> None:
    """Write a flat vector back into the trained parameters of ``model``."""
    with torch.no_grad():
        for parameter, piece in zip(trained(model).values(), unflatten(model, theta).values(), strict=True):
            parameter.copy_(piece)


def duplicate(model: nn.Module) -> nn.Module:
    """A copy of a module with parameters and buffers of its own; what PyG knows of its layers' code is shared."""
    shared = {id(known): known for known in knowledge_of_code(model)}
    for module in model.modules():
        # Hooks that nobody has set are most of what there is to copy.
        shared |= {id(value): type(value)() for value in vars(module).values() if _nothing(value)}
    return copy.deepcopy(model, shared)


def _nothing(value: object) -> bool:
    return type(value) in (dict, OrderedDict, set) and not value

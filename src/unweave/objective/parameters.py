"""The trained parameters of a module as one flat vector, and copies of modules."""

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from math import prod

import torch
from torch import Size, Tensor, nn

from unweave._core.compat import TABLES, knowledge_of_code
from unweave.errors import ModelError

__all__ = [
    "duplicate",
    "flatten",
    "load_flat",
    "places_in",
    "split",
    "tensors_on",
    "trained",
    "unflatten",
    "with_history",
]


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


def places_in(before: nn.Module, after: nn.Module) -> Tensor | None:
    """Where the parameters of a model lie in θ of the same with more rows at the end of some; ``None`` without any."""
    old, new = trained(before), trained(after)
    if all(old[name].shape == value.shape for name, value in new.items()):
        return None
    found, start = [], 0
    for name, value in new.items():
        found.append(start + torch.arange(old[name].numel(), device=value.device))
        start += value.numel()
    return torch.cat(found)


def duplicate(model: nn.Module) -> nn.Module:
    """A copy of a module with parameters and buffers of its own; what PyG knows of its layers' code is shared.

    A tensor with a history, such as a hidden layer that ``forward`` leaves on the module, is copied without it.

    Raises:
        ModelError: The module cannot be copied.
    """
    shared = {id(known): known for known in knowledge_of_code(model)}
    for module in model.modules():
        # Hooks that nobody has set are most of what there is to copy.
        shared |= {id(value): type(value)() for value in vars(module).values() if _nothing(value)}
    shared |= {id(value): value.detach().clone() for _, value in tensors_on(model) if not value.is_leaf}
    try:
        return copy.deepcopy(model, shared)
    except Exception as error:  # whatever hangs on a module of anyone's
        raise ModelError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}), and the model given is never "
            "changed; keep nothing on it that copy.deepcopy cannot copy"
        ) from error


def with_history(model: nn.Module) -> bool:
    """Whether something on a module still holds on to the graph of derivatives it came from."""
    return any(not value.is_leaf for _, value in tensors_on(model))


def tensors_on(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that a module holds: parameters, buffers, and those that merely hang on it, by name."""
    for path, module in model.named_modules():
        held = ((name, value) for name, value in vars(module).items() if not _nothing(value))
        for name, value in held:
            for inner, tensor in _inside(value) if isinstance(value, _HOLDING) else ():
                names = [path, *([] if name in TABLES else [name]), *inner]
                yield ".".join(filter(None, names)), tensor


_HOLDING = (Tensor, list, tuple, dict)


def _inside(value: object) -> Iterator[tuple[list[str], Tensor]]:
    """The tensors in lists, tuples and dictionaries, with the way to them."""
    if isinstance(value, Tensor):
        yield [], value
    elif isinstance(value, list | tuple | dict):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            for inner, tensor in _inside(part):
                yield [str(key), *inner], tensor


def _nothing(value: object) -> bool:
    return type(value) in (dict, OrderedDict, set) and not value

"""How a model of anyone's takes what a task gives it: by the names of its arguments."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import ModelError

__all__ = ["Offer", "called", "rows_of", "takes"]

Offer = tuple[str, tuple[str, ...], Any]
"""Something more than the first arguments: what it is, the names a model may call it by, and itself."""


def takes(model: nn.Module, name: str) -> bool:
    """Whether a model has an argument of this name."""
    return name in _accepted(getattr(model.forward, "__func__", model.forward), inspect.ismethod(model.forward))[0]


def called(model: nn.Module, first: tuple[Any, ...], words: str, offers: tuple[Offer, ...]) -> Any:
    """Call a model with its first arguments by position, and with more by name.

    Args:
        model: The module.
        first: Its first arguments.
        words: How that reads, for the one who has to change it.
        offers: What the data has beside; a model that does not take it is refused.
    """
    function, bound = getattr(model.forward, "__func__", model.forward), inspect.ismethod(model.forward)
    named: dict[str, Any] = {}
    accepted, anything = _accepted(function, bound)
    for what, names, value in offers:
        name = next((name for name in names if name in accepted), names[0] if anything else None)
        if name is None:
            raise ModelError(
                f"the data has {what}, but {type(model).__name__}.forward({', '.join(accepted)}) takes none; add the "
                f"argument {names[0]}, delete it from the data, or pass forward=lambda model, data: …"
            )
        named[name] = value
    wrong = _unfit(function, bound, len(first), tuple(named))
    if wrong:
        raise ModelError(
            f"{type(model).__name__} cannot be called as model({words}): {wrong}; write it so, or pass "
            "forward=lambda model, data: …"
        )
    # What forward raises by itself is its author's, with its own traceback.
    return model(*first, **named)


def rows_of(found: object, model: nn.Module, places: Tensor, size: int, what: str) -> Tensor:
    """The outputs of a model on the rows of a plain graph that they belong to; all other rows are zero."""
    if not isinstance(found, Tensor) or not found.dim() or found.size(0) != places.numel():
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ModelError(
            f"{type(model).__name__} must give one row for each of {places.numel()} {what}, got {got}; pass "
            "forward=lambda model, data: … to choose or reshape its output"
        )
    return torch.zeros(size, *found.shape[1:], dtype=found.dtype, device=found.device).index_copy(0, places, found)


@lru_cache(maxsize=64)
def _accepted(function: Callable[..., object], bound: bool) -> tuple[tuple[str, ...], bool]:
    """The names of the arguments of a function, and whether it takes any other."""
    try:
        takes = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in another language: it will tell
        return (), True
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values())
    return tuple(takes)[bound:], anything


@lru_cache(maxsize=64)
def _unfit(function: Callable[..., object], bound: bool, first: int, named: tuple[str, ...]) -> str:
    """What keeps a function from being called with so many arguments and these by name; empty where nothing does."""
    try:
        inspect.signature(function).bind(*range(first + bound), **dict.fromkeys(named))
    except TypeError as error:
        return str(error)
    except ValueError:
        return ""
    return ""

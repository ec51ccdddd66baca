"""What tells one piece of a user's code from another of the same name, so that a cache does not mistake them."""

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import nn

__all__ = ["code_of", "model_code"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))
LIBRARIES = ("torch", "torch_geometric", "unweave")


def code_of(value: Any) -> list[Any]:
    """A function, class or callable object: its name, its source where that is known, and the plain values it uses."""
    if isinstance(value, partial):
        return [code_of(value.func), _plain(dict(enumerate(value.args))), _plain(value.keywords)]
    named = value if hasattr(value, "__qualname__") else type(value)
    found: list[Any] = [named.__module__, named.__qualname__, _source(named)]
    own = getattr(value, "__self__", None) if inspect.ismethod(value) else value if named is not value else None
    if own is not None:
        found.append(_plain(getattr(own, "__dict__", {})))
    function = inspect.unwrap(getattr(value, "__func__", value))
    if inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        found += [_plain(used.nonlocals), _plain(used.globals), _plain(dict(enumerate(function.__defaults__ or ())))]
        found.append(_plain(function.__kwdefaults__ or {}))
    return found


def model_code(model: nn.Module) -> list[Any]:
    """The classes of a model that are not a library's, and the types and shapes of all it holds."""
    own = {type(m).__qualname__: type(m) for m in model.modules() if type(m).__module__.split(".")[0] not in LIBRARIES}
    tensors = [(name, list(t.shape), str(t.dtype)) for name, t in model.state_dict().items() if hasattr(t, "shape")]
    return [[code_of(own[name]) for name in sorted(own)], tensors]


def _plain(values: Mapping[Any, Any]) -> dict[str, str]:
    """Of some values those whose text is the same in every process."""
    return {str(name): repr(value) for name, value in values.items() if isinstance(value, PLAIN)}


def _source(named: Any) -> str | None:
    try:
        return inspect.getsource(named)
    except (OSError, TypeError):
        return None  # typed in by hand, or not Python

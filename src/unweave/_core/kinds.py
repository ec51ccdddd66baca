"""Values of the kinds that a class says they are: what was read from a file may be anything."""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from unweave._core.text import printable

__all__ = ["check_fields", "fits", "shown"]

LARGEST = 2**63
"""Whole numbers from here on are no sizes, seeds or counts."""


def check_fields(instance: Any) -> None:
    """Refuse a dataclass of which a field, or a field of what is in it, is not of the kind it is declared to be.

    Raises:
        TypeError: The first such field, and what is there.
    """
    own: Any = type(instance)
    for name, kind in _fields(own).items():
        value = getattr(instance, name)
        if not fits(value, kind):
            raise TypeError(f"{name!r} of {type(instance).__name__} is {shown(value)}")


def fits(value: Any, kind: Any) -> bool:  # noqa: PLR0911 (one for each kind)
    """Whether a value is of a kind, given as a type annotation. Numbers are finite, and True is none."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str | int) and value in inner
    if kind is None or kind is type(None):
        return value is None
    if kind in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
        return whole or (kind is float and isinstance(value, float) and math.isfinite(value))
    if origin is tuple:
        same = len(inner) == 2 and inner[1] is ...
        each = inner[:1] * len(value) if same and isinstance(value, tuple) else inner
        return isinstance(value, tuple) and len(value) == len(each) and all(map(fits, value, each))
    if origin in (list, Sequence):
        return isinstance(value, list | tuple) and all(fits(one, inner[0]) for one in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin is Callable:
        return callable(value)
    if not isinstance(value, kind):
        return False
    own: Any = type(value)
    return not is_dataclass(kind) or all(fits(getattr(value, name), one) for name, one in _fields(own).items())


def shown(value: Any) -> str:
    """A value for an error: short, and harmless to a terminal."""
    try:
        text = printable(repr(value))
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or lists in lists in lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"


@cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}

"""The numbers by which a user of a task names things: checked before they become those of the plain graph."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from unweave._core.words import listed, shown
from unweave.errors import RequestError

__all__ = ["check_columns", "check_given", "numbers", "tuples", "within"]


def numbers(some: Any, what: str) -> list[int]:
    """A list of whole numbers."""
    if isinstance(some, str | bytes | Mapping) or not isinstance(some, Iterable):
        raise RequestError(f"{what} must be a list of numbers, got {shown(some)}")
    if str(getattr(some, "dtype", "")).endswith("bool"):
        raise RequestError(f"{what} must be a list of numbers, got a boolean mask; pass mask.nonzero().flatten()")
    return [_number(value, what) for value in some]


def tuples(some: Any, length: int, what: str, form: str) -> list[tuple[int, ...]]:
    """A list of tuples of so many whole numbers."""
    if isinstance(some, str | bytes | Mapping) or not isinstance(some, Iterable):
        raise RequestError(f"{what} must be a list of {form}, got {shown(some)}")
    found = []
    for entry in some:
        if isinstance(entry, str | bytes) or not isinstance(entry, Iterable) or len(values := list(entry)) != length:
            raise RequestError(f"{what}: {shown(entry)} is not {form}")
        found.append(tuple(_number(value, what) for value in values))
    return found


def within(some: Iterable[int], size: int, what: str) -> None:
    """Refuse numbers of things that are not there."""
    outside = sorted({number for number in some if not 0 <= number < size})
    if outside:
        known = f"whose numbers are 0 … {size - 1}" if size else "of which there is none"
        raise RequestError(f"{what} {listed(outside)} {'is' if len(outside) == 1 else 'are'} not there, {known}")


def check_given(given: Mapping[str, Any], examples: Mapping[str, str]) -> None:
    """Refuse what is not a mapping, with how to write it."""
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise RequestError(f"{name} must be a mapping, e.g. {name}={examples[name]}, got {shown(value)}")


def check_columns(columns: Any, width: int, what: str) -> Any:
    """Columns of a node's features that are there; ``"all"`` as it is."""
    if isinstance(columns, str):
        return columns
    some = numbers(columns, f"features of {what}")
    within(some, width, f"features: column of {what}")
    return some


def _number(value: Any, what: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise RequestError(f"{what}: {shown(value)} is not a whole number") from None

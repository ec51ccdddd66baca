"""Values in the words of an error: short, and without characters that a terminal would obey."""

from collections.abc import Sequence
from typing import Any

__all__ = ["listed", "shown"]


def shown(value: Any) -> str:
    """A value as Python writes it, at most a line of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"


def listed(entries: Sequence[Any]) -> str:
    """The first five of several."""
    return ", ".join(map(str, entries[:5])) + (", …" if len(entries) > 5 else "")

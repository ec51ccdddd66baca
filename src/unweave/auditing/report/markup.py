"""HTML and SVG as text: whatever is not markup already is escaped."""

from html import escape

__all__ = ["Markup", "join", "tag"]

VOID = frozenset({"col", "link", "meta"})
"""HTML elements without an end."""


class Markup(str):
    """Text that is markup; all other text is escaped when it becomes part of an element."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """An element.

    Args:
        name: Of the element.
        *children: Its content; text is escaped, :class:`Markup` is not.
        **attributes: ``class_`` is written ``class`` and ``data_label`` ``data-label``.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(f"{value:g}" if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: "tuple[str, ...] | list[str]", between: str = "") -> Markup:
    """Parts one after another, those that are text escaped."""
    return Markup(between.join(part if isinstance(part, Markup) else escape(part) for part in parts))

"""Single values of a change: numbers, ids, edges; what is none of them is refused with what to write instead."""

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from unweave._core.reading import refuse_twice
from unweave._core.words import shown
from unweave.errors import RequestError

__all__ = [
    "Edge",
    "Label",
    "as_edges",
    "as_id",
    "as_items",
    "as_label",
    "as_number",
    "as_row",
    "by_id",
    "only",
]


class Edge(NamedTuple):
    """Source, target, weight (``None`` where the graph has none), and the relation where one is named."""

    source: int
    target: int
    weight: float | None = None
    kind: str | None = None

    def content(self) -> list[Any]:
        """As JSON has it."""
        return [self.source, self.target] if self.weight is None else [self.source, self.target, self.weight]


Label = int | float | tuple[float, ...]


def plain(value: Any) -> Any:
    """A tensor or an array as Python has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def as_id(value: Any, where: str) -> int:
    """A node, a column: a whole number of at least 0; JSON has its keys as texts."""
    value = plain(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise RequestError(f"{where}: {shown(value)} is not a whole number") from None
    if found < 0:
        raise RequestError(f"{where}: {found} is below 0; ids are those of the rows of the graph")
    return found


def as_number(value: Any, where: str) -> float:
    """A finite number."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{where}: {shown(value)} is not a number")
    if not math.isfinite(value):
        raise RequestError(f"{where}: {value} is not finite; a graph holds no NaN and no infinity")
    return float(value)


def as_row(value: Any, where: str) -> tuple[float, ...]:
    """A whole row of features."""
    return tuple(as_number(entry, where) for entry in as_items(plain(value), where))


def as_label(value: Any, where: str) -> Label:
    """A class, a number, or a number for each of several outputs."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return as_row(value, where)
    if isinstance(value, bool):
        raise RequestError(f"{where}: {shown(value)} is no label; write the number of a class")
    if isinstance(value, int):
        return int(value)
    return as_number(value, where)


def as_edge(value: Any, where: str, kind: str | None = None) -> Edge:
    """``(u, v)``, or ``(u, v, weight)``."""
    parts = plain(value)
    if not isinstance(parts, list | tuple) or len(parts) not in (2, 3):
        raise RequestError(f"{where}: {shown(value)} is not an edge; write [u, v], or [u, v, weight]")
    u, v = (as_id(end, where) for end in parts[:2])
    return Edge(u, v, as_number(parts[2], where) if len(parts) == 3 else None, kind)


def as_edges(entries: Any, where: str) -> list[Edge]:
    """A list of edges, or one for each relation, each edge named once; sorted."""
    if isinstance(entries, Mapping):
        named = {kind if isinstance(kind, str) else " ".join(map(str, kind)): some for kind, some in entries.items()}
        edges = [as_edge(e, where, kind) for kind, some in named.items() for e in as_items(some, f"{where} of {kind}")]
    else:
        edges = [as_edge(edge, where) for edge in as_items(entries, where)]
    refuse_twice(where, [(edge.kind or "", *edge[:2]) if edge.kind else edge[:2] for edge in edges])
    return sorted(edges, key=lambda edge: (*edge[:2], edge.kind or ""))


def as_items(entries: Any, where: str) -> list[Any]:
    """A list, whatever it comes as."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise RequestError(f"{where} must be a list, got {shown(entries)}")
    return list(entries)


def by_id(entries: Any, where: str, example: str) -> dict[int, Any]:
    """A mapping by node or column, each named once."""
    if not isinstance(entries, Mapping):
        raise RequestError(f"{where} must map ids to values, got {shown(entries)}; write {example}")
    ids = [as_id(key, where) for key in entries]
    refuse_twice(where, ids)
    return dict(sorted(zip(ids, entries.values(), strict=True), key=lambda item: item[0]))


def only(document: Any, known: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """A JSON object that has these keys alone."""
    if not isinstance(document, Mapping):
        raise RequestError(f"{where} must be an object with {', '.join(known)}; got {shown(document)}")
    unknown = sorted(set(document) - set(known), key=str)
    if unknown:
        raise RequestError(f"unknown key {shown(unknown[0])} in {where}; known: {', '.join(known)}")
    return document

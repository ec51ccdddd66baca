"""What a submission adds and corrects, in its owner's words, and the change that it is in numbers.

A new subject has no number before it is carried out: until then it is written as :data:`FIRST` and the numbers after.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unweave.changes import Change
from unweave.errors import EmptyRequestError, RequestError, ServiceError

__all__ = ["LONGEST", "Altering", "as_id", "carried", "change_of", "read_altering", "wrong"]

LONGEST = 255
"""Characters of an id."""

FIRST = 10**17
"""The number that stands for the first new subject of a submission; no graph has as many nodes."""

PARTS = {"add": ("nodes", "edges"), "correct": ("features", "labels", "edge_weights")}
OF_NODE = ("id", "features", "label", "mask", "edges")


@dataclass(frozen=True)
class Altering:
    """What is added and corrected.

    Attributes:
        document: As it was submitted, with the keys ``add`` and ``correct``.
        new: Ids of new subjects, in order.
        known: All other ids that it names.
        count: How many things it names.
    """

    document: Mapping[str, Any]
    new: tuple[str, ...]
    known: tuple[str, ...]
    count: int

    def counts(self) -> dict[str, int]:
        """How much of each."""
        parts = {
            f"{kind}_{part}": len(entries) for kind, some in self.document.items() for part, entries in some.items()
        }
        return {name: number for name, number in parts.items() if number}


def read_altering(document: Mapping[str, Any]) -> Altering | None:
    """The part of a submission that adds and corrects; ``None`` where there is none.

    Raises:
        ServiceError: It is not as it has to be.
    """
    found: dict[str, dict[str, Any]] = {}
    for kind, names in PARTS.items():
        given = document.get(kind) or {}
        strange = sorted(map(str, set(given) - set(names))) if isinstance(given, Mapping) else ["it"]
        if strange:
            raise wrong(f"{kind} has {' and '.join(names)}; {strange[0]!r} is not known")
        for name in names:
            entries, mapped = given.get(name), kind == "correct" and name != "edge_weights"
            if entries and not isinstance(entries, Mapping if mapped else list | tuple):
                raise wrong(f"{kind}.{name} must be {'an object by id' if mapped else 'a list'}")
            if entries:
                found.setdefault(kind, {})[name] = entries
    if not found:
        return None
    if not _finite(found):
        raise wrong("a number in it is not finite; a feature is a finite number")
    add, correct = found.get("add", {}), found.get("correct", {})
    new = [_node(node) for node in add.get("nodes", ())]
    if len(set(new)) < len(new):
        raise wrong("add.nodes: two new ones have the same id")
    ends = [end for edge in add.get("edges", ()) for end in _ends(edge, "add.edges")]
    ends += [end for node in add.get("nodes", ()) for end in map(_neighbour, node.get("edges") or ())]
    ends += [end for edge in correct.get("edge_weights", ()) for end in _ends(edge, "correct.edge_weights")]
    ends += [as_id(key, "correct") for name in ("features", "labels") for key in correct.get(name, ())]
    known = tuple(dict.fromkeys(end for end in ends if end not in set(new)))
    count = sum(len(entries) for part in found.values() for entries in part.values())
    return Altering(found, tuple(new), known, count)


def change_of(
    altering: Altering, nodes: Mapping[str, int], columns: Sequence[str], forget: Mapping[str, Any], salt: str
) -> dict[str, Any] | None:
    """The document of a change, in numbers; what is about somebody who is gone is left out.

    Args:
        altering: What is added and corrected.
        nodes: The numbers of those who are there.
        columns: Names of the features, in order.
        forget: What goes, as a request has it.
        salt: That nobody can guess the values by the digest of the change.

    Raises:
        ServiceError: It makes no change; the message says why.
    """
    number = dict(nodes) | {key: FIRST + place for place, key in enumerate(altering.new)}
    add, correct = altering.document.get("add", {}), altering.document.get("correct", {})

    def joined(edges: Sequence[Any]) -> list[list[Any]]:
        return [[number[e[0]], number[e[1]], *e[2:]] for e in edges if e[0] in number and e[1] in number]

    document: dict[str, Any] = {
        "add": {
            "nodes": [_newcomer(node, number, columns) for node in add.get("nodes", ())],
            "edges": joined(add.get("edges", ())),
        },
        "correct": {
            "features": {
                str(number[key]): _values(value, columns, f"correct.features of {key!r}")
                for key, value in correct.get("features", {}).items()
                if key in number
            },
            "labels": {str(number[key]): label for key, label in correct.get("labels", {}).items() if key in number},
            "edge_weights": joined(correct.get("edge_weights", ())),
        },
    }
    going = {kind: entries for kind, entries in forget.items() if entries}
    try:
        return Change(**document, forget=going or None, salt=salt).to_dict()
    except EmptyRequestError:
        return None
    except RequestError as error:
        raise wrong(str(error)) from error


def carried(document: Mapping[str, Any], size: int) -> Change:
    """A change that :func:`change_of` wrote; new subjects get the numbers after the last node of the graph."""

    def moved(node: int) -> int:
        return node - FIRST + size if node >= FIRST else node

    def ends(edges: Any) -> list[list[Any]]:
        return [[moved(edge[0]), moved(edge[1]), *edge[2:]] for edge in edges]

    found = {key: value for key, value in document.items() if key != "add"}
    add = document.get("add", {})
    nodes = [
        node | {"edges": [_moved_end(end, moved) for end in node.get("edges", ())]} for node in add.get("nodes", ())
    ]
    return Change.from_dict({**found, "add": {"nodes": nodes, "edges": ends(add.get("edges", ()))}})


def _moved_end(end: Any, moved: Any) -> Any:
    return [moved(end[0]), end[1]] if isinstance(end, list) else moved(end)


def _newcomer(node: Mapping[str, Any], number: Mapping[str, int], columns: Sequence[str]) -> dict[str, Any]:
    """A new subject as a change has it."""
    where = f"add.nodes: {node['id']!r}"
    row = _values(node.get("features"), columns, where)
    if isinstance(row, Mapping):
        if len(row) != len(columns):
            raise wrong(f"{where} has {len(row)} of {len(columns)} columns; give all of them")
        row = [row[str(place)] for place in range(len(columns))]
    near = [
        (end if isinstance(end, str) else end[0], [] if isinstance(end, str) else end[1:])
        for end in node.get("edges") or ()
    ]
    edges = [number[key] if not weight else [number[key], *weight] for key, weight in near if key in number]
    more = {key: node[key] for key in ("label", "mask") if node.get(key) is not None}
    return {"features": row, "edges": edges, **more}


def _values(given: Any, columns: Sequence[str], where: str) -> Any:
    """A row of numbers, or numbers by column."""
    places = {name: place for place, name in enumerate(columns)}
    numbers = given.values() if isinstance(given, Mapping) else given
    if not isinstance(numbers, list | tuple) and not isinstance(given, Mapping):
        raise wrong(f"{where}: features are a list of numbers, or numbers by the names of columns")
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(f"{where}: a feature is a finite number")
    if not isinstance(given, Mapping):
        return list(given)
    strange = [name for name in given if name not in places]
    if strange or not given:
        raise ServiceError("the model has no such columns", status=422, unknown_columns=strange)
    return {str(places[name]): value for name, value in given.items()}


def _finite(given: Any) -> bool:
    """Whether there is no NaN and no infinity in a document."""
    if isinstance(given, Mapping):
        return all(map(_finite, given.values()))
    if isinstance(given, list | tuple):
        return all(map(_finite, given))
    return not isinstance(given, float) or math.isfinite(given)


def _node(node: Any) -> str:
    if not isinstance(node, Mapping) or not {"id", "features"} <= set(node) or set(node) - set(OF_NODE):
        raise wrong(f"add.nodes: a new subject has {', '.join(OF_NODE)}, at least the first two")
    return as_id(node["id"], "add.nodes")


def _ends(edge: Any, where: str) -> list[str]:
    if not isinstance(edge, list | tuple) or len(edge) not in (2, 3):
        raise wrong(f"{where}: an edge is a pair of two ids, with a weight where the graph has weights")
    return [as_id(end, where) for end in edge[:2]]


def _neighbour(end: Any) -> str:
    if isinstance(end, list | tuple) and len(end) == 2:
        return as_id(end[0], "add.nodes")
    return as_id(end, "add.nodes")


def as_id(key: Any, what: str) -> str:
    """An id as its owner writes it."""
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST or not key.isprintable():  # a surrogate is not
        raise wrong(f"{what}: an id is a text of 1 to {LONGEST} printable characters")
    return key


def wrong(what: str) -> ServiceError:
    """What is said of a submission that is none."""
    return ServiceError(f"this is no request: {what}", status=422)

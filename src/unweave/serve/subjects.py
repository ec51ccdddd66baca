"""People by their owner's ids: which node each is, kept as digests that name nobody without the service's secret."""

import csv
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from unweave.errors import ServiceError
from unweave.serve.altering import LONGEST, Altering, as_id, change_of, read_altering, wrong
from unweave.serve.service import Service
from unweave.serve.tables import subjects

__all__ = ["Asked", "Resolved", "check_ids", "check_new", "enrol", "enrol_new", "mark_gone", "read_ids", "resolve"]

KEYS = ("subjects", "edges", "features", "labels", "add", "correct", "note")
MOST, NOTE = 10_000, 2_000
"""Things that one request names, and characters of its note."""

NUMBER = re.compile("[0-9]{1,18}")
AT_ONCE = 500


@dataclass(frozen=True)
class Asked:
    """What a request asks for, in its owner's words.

    Attributes:
        subjects: Ids of whom everything is to go: node, edges, features, label.
        edges: Pairs of ids.
        features: By id, ``"all"`` or names of columns.
        labels: Ids whose label may no longer be used.
        note: A remark; it is as personal as the ids.
        altering: What is added and corrected beside; ``None`` for a request that only forgets.
    """

    subjects: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    features: Mapping[str, tuple[str, ...] | str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    note: str | None = None
    altering: Altering | None = None

    @classmethod
    def of(cls, document: Any) -> "Asked":
        """From a JSON document.

        Raises:
            ServiceError: It is no request; the message says what of it.
        """
        if not isinstance(document, Mapping) or (strange := sorted(map(str, set(document) - set(KEYS)))):
            what = f"{strange[0]!r} is not known" if isinstance(document, Mapping) else "it is no JSON object"
            raise wrong(f"{what}; a request has {', '.join(KEYS)}")
        note = document.get("note")
        if note is not None and not (isinstance(note, str) and len(note) <= NOTE):
            raise wrong(f"note must be a text of up to {NOTE} characters")
        features = document.get("features") or {}
        if not isinstance(features, Mapping):
            raise wrong("features must map an id to 'all' or to names of columns")
        found = cls(
            subjects=_ids(document.get("subjects"), "subjects"),
            edges=tuple(_pair(pair) for pair in _list(document.get("edges"), "edges")),
            features={as_id(key, "features"): _columns(value) for key, value in features.items()},
            labels=_ids(document.get("labels"), "labels"),
            note=note or None,
            altering=read_altering(document),
        )
        count = len(found.subjects) + len(found.edges) + len(found.features) + len(found.labels)
        count += 0 if found.altering is None else found.altering.count
        if not 0 < count <= MOST:
            raise wrong(f"it must name from 1 to {MOST} things; it names {count}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "subjects": list(self.subjects),
            "edges": [list(pair) for pair in self.edges],
            "features": {key: value if isinstance(value, str) else list(value) for key, value in self.features.items()},
            "labels": list(self.labels),
            "note": self.note,
            **({} if self.altering is None else self.altering.document),
        }

    @property
    def ids(self) -> list[str]:
        """Everyone it names who must be known, once."""
        ends = (end for pair in self.edges for end in pair)
        more = () if self.altering is None else self.altering.known
        return list(dict.fromkeys([*self.subjects, *ends, *self.features, *self.labels, *more]))


@dataclass(frozen=True)
class Resolved:
    """The same in numbers.

    Attributes:
        nodes: Of the subjects.
        edges: Pairs of nodes.
        features: Columns by node.
        labels: Nodes.
        gone: Ids that earlier requests took already.
        change: All of it as the document of a change, where something is added or corrected.
        altered: How much is.
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    features: Mapping[int, str | tuple[int, ...]]
    labels: tuple[int, ...]
    gone: tuple[str, ...]
    change: Mapping[str, Any] | None = None
    altered: Mapping[str, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing is left to do."""
        return self.change is None and not (self.nodes or self.edges or self.features or self.labels)

    def content(self) -> dict[str, Any]:
        """What :class:`unweave.Request` reads; what :func:`unweave.serve.altering.carried` does where it is more."""
        return {"change": dict(self.change)} if self.change is not None else self.forgotten()

    def forgotten(self) -> dict[str, Any]:
        """What goes, as a request has it."""
        return {
            "nodes": list(self.nodes),
            "edges": [list(edge) for edge in self.edges],
            "features": {str(n): c if isinstance(c, str) else list(c) for n, c in self.features.items()},
            "labels": list(self.labels),
        }

    def counts(self) -> dict[str, int]:
        """How much of each."""
        parts = {"subjects": self.nodes, "edges": self.edges, "features": self.features, "labels": self.labels}
        return {name: len(part) for name, part in parts.items() if part} | dict(self.altered)


def read_ids(path: str | Path) -> dict[str, int]:
    """Ids and nodes from a CSV file with the header ``id,node``.

    Raises:
        ServiceError: It is something else.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if [name.strip() for name in rows.fieldnames or []] != ["id", "node"]:
                raise ServiceError(f"{path} must begin with the line 'id,node'", status=422)
            found = list(rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ServiceError(f"cannot read ids from {path}: {error}", status=422) from error
    ids: dict[str, int] = {}
    for number, row in enumerate(found, start=2):
        values = list(row.values())
        if (
            len(values) != 2
            or not isinstance(values[1], str)
            or not NUMBER.fullmatch(values[1].strip())
            or values[0] in ids
        ):
            raise ServiceError(
                f"{path}, line {number}: an id that was not there before, and the number of its node", status=422
            )
        ids[as_id(values[0], "ids")] = int(values[1])
    return ids


def check_ids(ids: Mapping[Any, Any]) -> None:
    """Refuse a table of ids that is none.

    Raises:
        ServiceError: An id is no text, or names no node, or a node has two.
    """
    for key, node in ids.items():
        as_id(key, "ids")
        if type(node) is not int:
            raise ServiceError(f"an id names a node by its number, got {node!r}", status=422)
    if len(set(ids.values())) != len(ids):
        raise ServiceError("two ids name the same node; a node has one id", status=422)


def enrol(service: Service, connection: Connection, model: str, ids: Mapping[str, int]) -> None:
    """Remember who is which node; the ids themselves are not kept."""
    rows = [{"model": model, "digest": _digest(service, model, key), "node": node} for key, node in ids.items()]
    for start in range(0, len(rows), AT_ONCE):
        connection.execute(insert(subjects), rows[start : start + AT_ONCE])


def resolve(service: Service, connection: Connection, model: str, asked: Asked, columns: Sequence[str]) -> Resolved:
    """What a request asks for in numbers, as far as it is not gone.

    Raises:
        ServiceError: It names ids or columns that were never there; all of them are told.
    """
    known = _known(service, connection, model, asked.ids)
    if unknown := [key for key in asked.ids if key not in known]:
        raise ServiceError(
            f"{len(unknown)} of {len(asked.ids)} ids were never in the table of this model", status=422, unknown=unknown
        )
    names = {name: place for place, name in enumerate(columns)}
    strange = [n for chosen in asked.features.values() if not isinstance(chosen, str) for n in chosen if n not in names]
    if strange:
        raise ServiceError("the model has no such columns", status=422, unknown_columns=list(dict.fromkeys(strange)))
    here = {key: node for key, node in known.items() if node is not None}
    nodes = tuple(sorted(here[key] for key in dict.fromkeys(asked.subjects) if key in here))
    going = set(nodes)
    edges = {
        (here[one], here[other])
        for one, other in asked.edges
        if one in here and other in here and not {here[one], here[other]} & going
    }
    found = Resolved(
        nodes=nodes,
        edges=tuple(sorted(edges)),
        features={
            here[key]: chosen if isinstance(chosen, str) else tuple(sorted({names[n] for n in chosen}))
            for key, chosen in asked.features.items()
            if key in here and here[key] not in going
        },
        labels=tuple(sorted({here[key] for key in asked.labels if key in here} - going)),
        gone=tuple(key for key in asked.ids if key not in here),
    )
    if asked.altering is None:
        return found
    check_new(service, connection, model, asked.altering.new)
    change = change_of(asked.altering, here, columns, found.forgotten(), secrets.token_hex(16))
    altered = {} if change is None or not {"add", "correct"} & set(change) else asked.altering.counts()
    return replace(found, change=change if altered else None, altered=altered)


def check_new(service: Service, connection: Connection, model: str, ids: Sequence[str]) -> None:
    """Refuse new subjects that are there already; who was deleted may come back, as somebody new.

    Raises:
        ServiceError: They are; all of them are told.
    """
    there = [key for key, node in _known(service, connection, model, ids).items() if node is not None]
    if there:
        raise ServiceError(
            f"{len(there)} of {len(ids)} new ids are in the table of this model already", status=422, known=there
        )


def enrol_new(service: Service, connection: Connection, model: str, ids: Mapping[str, int]) -> None:
    """Remember who came, also where somebody of the same id was deleted before."""
    digests = [_digest(service, model, key) for key in ids]
    connection.execute(delete(subjects).where(subjects.c.model == model, subjects.c.digest.in_(digests)))
    enrol(service, connection, model, ids)


def mark_gone(connection: Connection, model: str, nodes: Iterable[int]) -> None:
    """These nodes were deleted: whoever they were is answered so from now on."""
    going = sorted(nodes)
    for start in range(0, len(going), AT_ONCE):
        chosen = subjects.c.node.in_(going[start : start + AT_ONCE])
        connection.execute(update(subjects).where(subjects.c.model == model, chosen).values(node=None))


def _known(service: Service, connection: Connection, model: str, ids: Sequence[str]) -> dict[str, int | None]:
    digests = {_digest(service, model, key): key for key in ids}
    wanted, found = list(digests), dict[str, int | None]()
    for start in range(0, len(wanted), AT_ONCE):
        chosen = subjects.c.digest.in_(wanted[start : start + AT_ONCE])
        rows = connection.execute(select(subjects.c.digest, subjects.c.node).where(subjects.c.model == model, chosen))
        found |= {digests[row.digest]: row.node for row in rows}
    return found


def _digest(service: Service, model: str, key: str) -> str:
    return service.digest("subject", model, key)


def _list(given: Any, what: str) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise wrong(f"{what} must be a list")
    return list(given)


def _ids(given: Any, what: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(as_id(key, what) for key in _list(given, what)))


def _pair(pair: Any) -> tuple[str, str]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise wrong("edges: an edge is a pair of two ids")
    return as_id(pair[0], "edges"), as_id(pair[1], "edges")


def _columns(value: Any) -> tuple[str, ...] | str:
    if value == "all":
        return "all"
    names = _list(value, "features") if not isinstance(value, str) else []
    if not names or not all(isinstance(name, str) and len(name) <= LONGEST for name in names):
        raise wrong("features: an id has 'all' or a list of names of columns")
    return tuple(dict.fromkeys(names))

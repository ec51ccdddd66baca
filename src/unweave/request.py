"""What to forget: parse it, check its form, describe it.

A :class:`Request` knows nothing of a graph. Whether its nodes and edges exist is checked where it
is applied, in :mod:`unweave.graph.removal`.
"""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from unweave._core.document import canonical_json, document_digest
from unweave._core.reading import WHOLE, by_line, one_of, parsed, refuse_invalid, refuse_twice, table, whole_number
from unweave._core.words import shown
from unweave.errors import EmptyRequestError, RequestError

__all__ = ["ALL", "KINDS", "Columns", "Lines", "Request"]

ALL: Literal["all"] = "all"
KINDS = ("nodes", "edges", "features", "labels")
WORDS = {"id": 200, "note": 2_000}
"""What a request may say of itself, and how many characters that may take."""
Columns = Literal["all"] | tuple[int, ...]
CSV_KINDS = ("node", "edge", "feature", "label")


@dataclass(frozen=True, init=False)
class Request:
    """An immutable request to forget parts of a graph.

    Args:
        nodes: Nodes to delete, with their edges, features and labels.
        edges: Edges ``(u, v)`` to delete: in both directions on an undirected graph, every parallel copy.
        features: Features to revoke: node → ``"all"`` or the columns.
        labels: Nodes whose labels may no longer be used.
        id: Your own name for the request, such as the number of a ticket: up to 200 printable characters.
        note: A remark, such as who asked: up to 2,000 printable characters. Neither ``id`` nor ``note`` changes what
            is forgotten, and neither is part of the digest.

    Example:
        >>> Request(edges=[(0, 633)], features={7: "all", 9: [0, 5]}).describe()
        '1 edge, features of 2 nodes'
    """

    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    features: Mapping[int, Columns]
    labels: tuple[int, ...]
    id: str | None
    note: str | None

    def __init__(
        self,
        nodes: Iterable[int] = (),
        edges: Iterable[tuple[int, int]] = (),
        features: Mapping[int, str | Iterable[int]] = MappingProxyType({}),
        labels: Iterable[int] = (),
        *,
        id: str | None = None,
        note: str | None = None,
    ) -> None:
        members = [_integer(n, "nodes") for n in _items(nodes, "nodes")]
        shape = tuple(getattr(edges, "shape", ()))
        if len(shape) == 2 and shape[0] == 2:
            raise RequestError(
                f"edges: an array of shape {shape} reads like an edge_index; pass pairs, edge_index.t().tolist()"
            )
        pairs = [_edge(e) for e in _items(edges, "edges")]
        unlabelled = [_integer(n, "labels") for n in _items(labels, "labels")]
        if not isinstance(features, Mapping):
            raise RequestError(
                f"features must map a node to 'all' or to its columns, got {shown(features)}; "
                "write features={7: 'all', 9: [0, 5]}"
            )
        rows = [_integer(key, "features") for key in features]
        for kind, entries in (("nodes", members), ("edges", pairs), ("features", rows), ("labels", unlabelled)):
            refuse_twice(kind, entries)
        columns = {node: _columns(node, chosen) for node, chosen in zip(rows, features.values(), strict=True)}
        if not (members or pairs or columns or unlabelled):
            raise EmptyRequestError("the request is empty; name nodes, edges, features or labels to forget")
        object.__setattr__(self, "nodes", tuple(sorted(members)))
        object.__setattr__(self, "edges", tuple(sorted(pairs)))
        object.__setattr__(self, "features", MappingProxyType(dict(sorted(columns.items()))))
        object.__setattr__(self, "labels", tuple(sorted(unlabelled)))
        for name, said in (("id", id), ("note", note)):
            object.__setattr__(self, name, _words(name, said))

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Request.from_json, (self.to_json(),))

    @cached_property
    def pairs(self) -> Tensor:
        """The edges as a tensor, ``[edges, 2]``."""
        return torch.tensor(self.edges, dtype=torch.long).reshape(-1, 2)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of what is to be forgotten, whatever ``id`` and ``note`` say."""
        return document_digest(self.content())

    def describe(self) -> str:
        """The request in a few words, e.g. ``"2 nodes, 1 edge"``."""
        counts = map(len, (self.nodes, self.edges, self.features, self.labels))
        words = zip(counts, ("{} node", "{} edge", "features of {} node", "{} label"), strict=True)
        return ", ".join(word.format(count) + "s" * (count > 1) for count, word in words if count)

    def content(self) -> dict[str, Any]:
        """What is to be forgotten as a JSON document, without ``id`` and ``note``; absent kinds are left out."""
        document: dict[str, Any] = {
            "nodes": list(self.nodes),
            "edges": [list(edge) for edge in self.edges],
            "features": {str(n): c if c == ALL else list(c) for n, c in self.features.items()},
            "labels": list(self.labels),
        }
        return {kind: entries for kind, entries in document.items() if entries}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of the request; what is absent is left out."""
        words = {name: getattr(self, name) for name in WORDS}
        return {**self.content(), **{name: said for name, said in words.items() if said is not None}}

    def to_json(self) -> str:
        """Canonical JSON: equal requests give equal text."""
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, document: Any) -> "Request":
        """Read the JSON document form."""
        if not isinstance(document, Mapping):
            raise RequestError(f"a request is a JSON object with {', '.join(KINDS)}; got {shown(document)}")
        unknown = sorted(set(document) - {*KINDS, *WORDS}, key=str)
        if unknown:
            known = ", ".join((*KINDS, *WORDS))
            raise RequestError(f"unknown key {shown(unknown[0])} in the request; known: {known}")
        features = document.get("features", {})
        if isinstance(features, Mapping):
            nodes = [_node_key(key) for key in features]
            refuse_twice("features", nodes)
            features = dict(zip(nodes, features.values(), strict=True))
        return cls(**{**document, "features": features})

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """Read JSON text, e.g. ``{"nodes": [3], "edges": [[0, 1]], "features": {"7": "all"}}``."""
        return cls.from_dict(parsed(text, "request"))

    @classmethod
    def from_csv(cls, text: str) -> "Request":
        """Read CSV text with the header ``kind,node,value``; it must end with a newline, as proof that it is whole.

        Rows are ``node,3,``, ``edge,0,633`` (the value is the other end), ``feature,7,all``,
        ``feature,9,5`` (one column a row) and ``label,4,``. A last row ``end,5,`` says how many rows there are before
        it: with it a file that lost whole lines is noticed too.
        """
        nodes: list[int] = []
        edges: list[tuple[int, int]] = []
        labels: list[int] = []
        features: dict[int, Any] = {}
        for number, kind, node, value in table(text, CSV_KINDS):
            if (kind in ("edge", "feature")) == (value == ""):
                wants = "leaves the value empty" if value else "needs a value"
                raise RequestError(f"line {number}: a {kind} {wants}")
            ident = whole_number(node, number)
            if kind == "node":
                nodes.append(ident)
            elif kind == "label":
                labels.append(ident)
            elif kind == "edge":
                edges.append((ident, whole_number(value, number)))
            elif ident in features and ALL in (value, features[ident]):
                raise RequestError(f"line {number}: features of node {ident} are named twice")
            elif value == ALL:
                features[ident] = ALL
            else:
                features.setdefault(ident, []).append(whole_number(value, number))
        return cls(nodes=nodes, edges=edges, features=features, labels=labels)

    @classmethod
    def merged(cls, requests: "Iterable[Request]", *, undirected: bool = False) -> "Request":
        """Several requests as one; what more than one of them names is named once. Their ids and notes are joined.

        Args:
            requests: At least one.
            undirected: Whether ``(u, v)`` and ``(v, u)`` are the same edge.
        """
        nodes, edges, labels = set[int](), set[tuple[int, int]](), set[int]()
        features: dict[int, Columns] = {}
        requests = list(requests)
        for request in requests:
            nodes.update(request.nodes)
            labels.update(request.labels)
            edges.update((min(e), max(e)) if undirected else e for e in request.edges)
            for node, columns in request.features.items():
                known = features.get(node, ())
                features[node] = ALL if ALL in (known, columns) else tuple({*known, *columns})
        words = {name: _joined(name, [getattr(request, name) for request in requests]) for name in WORDS}
        return cls(nodes=nodes, edges=edges, features=features, labels=labels, **words)

    @classmethod
    def read_all(cls, path: str | Path) -> "list[Request]":
        """Read a ``.jsonl`` file, one request a line; a ``.json`` or ``.csv`` file is one request.

        Raises:
            RequestError: Names every line that is no request; :meth:`read_lines` gives the others too.
        """
        return cls.read_lines(path).all_valid()

    @classmethod
    def read_lines(cls, path: str | Path) -> "Lines":
        """Read a file as :meth:`read_all` does, and put the lines that are no requests aside."""
        return Lines(Path(path), *by_line(path, cls.read, cls.from_json, "request"))

    @classmethod
    def read(cls, path: str | Path) -> "Request":
        """Read a ``.json`` or ``.csv`` file."""
        return one_of(path, {".json": cls.from_json, ".csv": cls.from_csv}, "request")


@dataclass(frozen=True)
class Lines:
    """A file of requests, line by line.

    Attributes:
        path: The file.
        requests: Those of its lines that are requests, by number.
        invalid: What is wrong with each of the others.
    """

    path: Path
    requests: Mapping[int, Request]
    invalid: Mapping[int, RequestError]

    def all_valid(self) -> list[Request]:
        """The requests, where every line is one."""
        refuse_invalid(self.path, self.invalid, "request")
        return list(self.requests.values())


def _words(name: str, said: Any) -> str | None:
    if said is None:
        return None
    if not isinstance(said, str) or not said.strip() or not said.isprintable() or len(said) > WORDS[name]:
        raise RequestError(
            f"{name} must be a text of 1 to {WORDS[name]} printable characters in one line, or be left out; "
            f"got {shown(said)}"
        )
    return said


def _joined(name: str, several: list[str | None]) -> str | None:
    """The words of several requests, each once, as far as there is room; how many more there are is said."""
    words = list(dict.fromkeys(said for said in several if said is not None))
    text = "; ".join(words)
    if len(text) > WORDS[name]:
        room = WORDS[name] - len(f"and {len(words)} more")
        kept = [
            said for said, end in zip(words, accumulate(len(said) + 2 for said in words), strict=True) if end <= room
        ]
        text = "; ".join([*kept, f"and {len(words) - len(kept)} more"])
    return text or None


def _items(entries: Any, kind: str) -> list[Any]:
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise RequestError(f"{kind} must be a list, got {shown(entries)}")
    if str(getattr(entries, "dtype", "")).endswith("bool"):
        raise RequestError(f"{kind} must be a list of ids, got a boolean mask; pass mask.nonzero().flatten()")
    return list(entries)


def _integer(value: Any, kind: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise RequestError(f"{kind}: {shown(value)} is not a whole number") from None


def _edge(edge: Any) -> tuple[int, int]:
    try:
        u, v = edge
    except (TypeError, ValueError):
        raise RequestError(f"edges: {shown(edge)} is not a pair (u, v)") from None
    return _integer(u, "edges"), _integer(v, "edges")


def _columns(node: int, columns: Any) -> Columns:
    if isinstance(columns, str):
        if columns == ALL:
            return ALL
        raise RequestError(f"features: columns of node {node} must be 'all' or a list, got {shown(columns)}")
    kind = f"features of node {node}"
    numbers = [_integer(c, kind) for c in _items(columns, kind)]
    if not numbers:
        raise RequestError(f"features: no column is named for node {node}; use 'all' for the whole row")
    refuse_twice(kind, numbers)
    return tuple(sorted(numbers))


def _node_key(key: Any) -> int:
    if isinstance(key, str) and WHOLE.fullmatch(key):
        return int(key)
    if isinstance(key, str):
        raise RequestError(f"features: {shown(key)} is not a node id")
    return _integer(key, "features")

"""What is to change in a graph: what is added, what is corrected, what is forgotten.

A :class:`Change` knows nothing of a graph. Whether its nodes and edges exist is checked where it is carried out, in
:mod:`unweave.graph.alteration`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unweave._core.document import canonical_json, document_digest
from unweave._core.reading import by_line, one_of, parsed, refuse_invalid
from unweave._core.words import listed
from unweave.changes.parts import Added, Corrected
from unweave.changes.rows import document_of
from unweave.changes.values import only
from unweave.errors import EmptyRequestError, RequestError
from unweave.request import ALL, WORDS, Request

__all__ = ["Change"]

KINDS = ("add", "correct", "forget")
SAID = (*WORDS, "salt")


@dataclass(frozen=True, init=False)
class Change:
    """An immutable change of a graph: data that is added, corrected or forgotten, in any mixture.

    Args:
        add: ``{"nodes": [{"features": [...], "label": 3, "edges": [5, 9]}], "edges": [[0, 7]]}``. The first new node
            gets the id after the last of the graph, the next the one after; edges may name those. A node with a label
            is a training node unless its ``"mask"`` says ``"val"`` or ``"test"``, one without is in no mask. Edges
            have a weight, ``[0, 7, 0.5]`` and ``"edges": [[5, 0.5]]``, where those of the graph have. On the graph of a
            task (:mod:`unweave.tasks`) nodes have a ``"type"``, edges go by relation, and ``"graphs"`` are whole ones;
            ``change`` of the task makes it by the numbers of its users, items, nodes and graphs.
        correct: ``{"features": {7: {0: 1.5}, 8: [a whole row]}, "labels": {4: 2}, "edge_weights": [[0, 633, 0.5]]}``.
            A label that is given to a node in no mask makes it a training node.
        forget: A :class:`~unweave.Request`, or its document. Alone it is what ``forget`` does with it.
        id: Your own name for the change, as of a request. One that was carried out is not carried out again.
        note: A remark.
        salt: A random text that is part of the digest: without it who guesses the values can check the guess by the
            digest, which stays in the receipt. Keep it as long as you want to recognise the change.

    Example:
        >>> Change(correct={"labels": {4: 2}}, forget=Request(nodes=[3])).describe()
        '1 label corrected; 1 node forgotten'
    """

    add: Added
    correct: Corrected
    forget: Request | None
    id: str | None
    note: str | None
    salt: str | None

    def __init__(
        self,
        add: Mapping[str, Any] = MappingProxyType({}),
        correct: Mapping[str, Any] = MappingProxyType({}),
        forget: Request | Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        note: str | None = None,
        salt: str | None = None,
    ) -> None:
        added, corrected = Added.read(add), Corrected.read(correct)
        forgotten = forget if forget is None or isinstance(forget, Request) else Request.from_dict(forget)
        if not (added.content() or corrected.content() or forgotten):
            raise EmptyRequestError("the change is empty; say what to add, to correct or to forget")
        words: dict[str, Any] = {
            name: said if said is not None else getattr(forgotten, name, None)
            for name, said in (("id", id), ("note", note))
        }
        Request(nodes=[0], **words)  # the same words are allowed as of a request
        if salt is not None and not (isinstance(salt, str) and salt.isprintable() and 0 < len(salt) <= WORDS["id"]):
            raise RequestError(f"salt must be a text of 1 to {WORDS['id']} printable characters, or be left out")
        words["salt"] = salt
        if forgotten is not None:
            _refuse_both(added, corrected, forgotten)
        for name, value in (("add", added), ("correct", corrected), ("forget", forgotten), *words.items()):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Change.from_json, (self.to_json(),))

    @property
    def deletion(self) -> Request | None:
        """The request that it is, where it adds and corrects nothing."""
        if self.forget is None or self.add.content() or self.correct.content():
            return None
        words = {name: said for name, said in self._words().items() if name != "salt"}  # there is no value to guess
        return Request.from_dict({**self.forget.content(), **words})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of what is to change and of the salt, whatever ``id`` and ``note`` say."""
        return document_digest(self.content() if self.salt is None else {**self.content(), "salt": self.salt})

    @cached_property
    def once(self) -> str | None:
        """By what a change with an id is known again; ``None`` for one without."""
        return None if self.id is None else document_digest([self.id, self.digest])

    def without(self, forget: Request | None) -> "Change | None":
        """The same change with another part to forget; ``None`` where nothing is left of it."""
        parts: dict[str, Any] = {"add": self.add.content(), "correct": self.correct.content()}
        if forget is None and not any(parts.values()):
            return None
        return Change(**parts, forget=forget, **self._words())

    def describe(self) -> str:
        """The change in a few words, e.g. ``"2 nodes and 3 edges added; 1 label corrected"``."""
        edges = len(self.add.edges) + sum(len(node.edges) for node in self.add.nodes)
        graphs = len(self.add.graphs)
        corrected = self.correct
        parts = [
            (_counted([(len(self.add.nodes), "node"), (edges, "edge"), (graphs, "graph")]), "added"),
            (
                _counted(
                    [
                        (len(corrected.features), "row of features", "rows of features"),
                        (len(corrected.labels), "label"),
                        (len(corrected.edge_weights), "edge weight"),
                    ]
                ),
                "corrected",
            ),
            ("" if self.forget is None else self.forget.describe(), "forgotten"),
        ]
        return "; ".join(f"{what} {done}" for what, done in parts if what)

    def content(self) -> dict[str, Any]:
        """What is to change as a JSON document, without ``id`` and ``note``; absent parts are left out."""
        parts = {
            "add": self.add.content(),
            "correct": self.correct.content(),
            "forget": {} if self.forget is None else self.forget.content(),
        }
        return {kind: part for kind, part in parts.items() if part}

    def outline(self) -> dict[str, Any]:
        """The same without a value: how many nodes come, which edges, and what is corrected and forgotten, by its ids.

        This is what receipts have of it: they stay for good, and so must not hold data that may have to be forgotten.
        """
        edges = [list(edge[:2]) for edge in self.add.edges]
        added: dict[str, Any] = {"nodes": len(self.add.nodes), "edges": edges, "graphs": len(self.add.graphs)}
        neighbours = [[end for end, _ in node.edges] for node in self.add.nodes]
        added["neighbours"] = neighbours if any(neighbours) else []
        parts = {
            "add": {kind: part for kind, part in added.items() if part},
            "correct": self.correct.outline(),
            "forget": {} if self.forget is None else self.forget.content(),
        }
        return {kind: part for kind, part in parts.items() if part}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of the change; what is absent is left out."""
        return {**self.content(), **self._words()}

    def to_json(self) -> str:
        """Canonical JSON: equal changes give equal text."""
        return canonical_json(self.to_dict())

    def _words(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SAID if getattr(self, name) is not None}

    @classmethod
    def from_dict(cls, document: Any) -> "Change":
        """Read the JSON document form."""
        return cls(**only(document, (*KINDS, *SAID), "the change"))

    @classmethod
    def from_json(cls, text: str) -> "Change":
        """Read JSON text, e.g. ``{"correct": {"labels": {"4": 2}}, "forget": {"nodes": [3]}}``."""
        return cls.from_dict(parsed(text, "change"))

    @classmethod
    def from_csv(cls, text: str) -> "Change":
        """Read CSV text with the header ``kind,node,value``; it must end with a newline, as proof that it is whole.

        Rows are ``add-edge,0,7`` (``0,7=0.5`` with a weight), ``correct-feature,7,0=1.5``, ``correct-label,4,2``,
        ``correct-weight,0,633=0.5``, and those of a request with ``forget-`` before them, such as ``forget-node,3,``. A
        last row ``end,5,`` says how many rows there are before it. New nodes have features, for which there is JSON.
        """
        return cls(**document_of(text))

    @classmethod
    def read(cls, path: str | Path) -> "Change":
        """Read a ``.json`` or ``.csv`` file."""
        return one_of(path, {".json": cls.from_json, ".csv": cls.from_csv}, "change")

    @classmethod
    def read_all(cls, path: str | Path) -> "list[Change]":
        """Read a ``.jsonl`` file, one change a line; a ``.json`` or ``.csv`` file is one change.

        Raises:
            RequestError: Names every line that is no change.
        """
        found, invalid = by_line(path, cls.read, cls.from_json, "change")
        refuse_invalid(Path(path), invalid, "change")
        return list(found.values())


def _refuse_both(added: Added, corrected: Corrected, forgotten: Request) -> None:
    """Refuse to add to or to correct what goes in the same change."""
    gone = set(forgotten.nodes)
    ends = {end for edge in added.edges for end in edge[:2]} | {end for node in added.nodes for end, _ in node.edges}
    weighed = {end for edge in corrected.edge_weights for end in edge[:2]}
    cells = [
        node
        for node, value in corrected.features.items()
        if node in forgotten.features and _meet(value, forgotten.features[node])
    ]
    for what, found in (
        ("add.edges", gone & ends),
        ("correct.features", gone & set(corrected.features)),
        ("correct.labels", gone & set(corrected.labels)),
        ("correct.edge_weights", gone & weighed),
        ("correct.features", set(cells)),
        ("correct.labels", set(forgotten.labels) & set(corrected.labels)),
    ):
        if found:
            raise RequestError(
                f"{what}: the same change forgets what it names of {listed(sorted(found))}; leave one of the two out"
            )


def _meet(value: Any, columns: Any) -> bool:
    return columns == ALL or not isinstance(value, Mapping) or bool(set(value) & set(columns))


def _counted(parts: list[tuple[Any, ...]]) -> str:
    found = [f"{n:,} {noun if n == 1 else (more[0] if more else noun + 's')}" for n, noun, *more in parts if n]
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)

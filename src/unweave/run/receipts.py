"""The receipts of a run: read when they are asked for, never changed, only added to."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, overload

from unweave._core.kinds import check_fields
from unweave._core.text import printable
from unweave.errors import MethodError, RequestError, RunError
from unweave.methods.ladder.debt import standing_of
from unweave.receipt.changed import is_change
from unweave.receipt.receipt import Receipt
from unweave.receipt.record import FORMAT, Record
from unweave.request import ALL, Columns, Request
from unweave.run.log import Log

__all__ = ["Receipts", "Taken"]

KEPT = 64
"""Receipts that stay in memory once they were read."""

FIRST = "unweave-receipt-1"
"""What receipts of version 0.1 call themselves."""

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, AssertionError)


@dataclass
class Taken:
    """All that the requests of a run took from its graph, added up.

    Attributes:
        nodes: Deleted nodes.
        edges: Edges that were named, in every direction in which they went.
        features: Columns of nodes that were named; ``None`` for all of them.
        labels: Nodes whose label was named.
        once: The changes that have an id, by what they are known again.

    What a change brought back later is none of it any more.
    """

    nodes: set[int] = field(default_factory=set)
    edges: set[tuple[int, int]] = field(default_factory=set)
    features: dict[int, set[int] | None] = field(default_factory=dict)
    labels: set[int] = field(default_factory=set)
    once: set[str] = field(default_factory=set)

    def add(self, request: dict[str, Any], undirected: bool) -> None:
        """Add what one request took, or a change, given as its document."""
        if is_change(request):
            self.add(request.get("forget", {}), undirected)
            self._bring_back(request, undirected)
            return
        self.nodes.update(request.get("nodes", ()))
        self.labels.update(request.get("labels", ()))
        for u, v in request.get("edges", ()):
            self.edges.update([(u, v), (v, u)] if undirected else [(u, v)])
        for node, columns in request.get("features", {}).items():
            known = self.features.get(int(node), set())
            self.features[int(node)] = None if columns == ALL or known is None else known | set(columns)

    def _bring_back(self, change: dict[str, Any], undirected: bool) -> None:
        """What a change added or corrected is there again."""
        for u, v in change.get("add", {}).get("edges", ()):
            self.edges -= {(u, v), (v, u)} if undirected else {(u, v)}
        correct = change.get("correct", {})
        for node in correct.get("features", ()):
            self.features.pop(int(node), None)
        self.labels -= set(correct.get("labels", ()))
        self.once |= {change["once"]} if "once" in change else set()

    def as_request(self, *, undirected: bool) -> Request | None:
        """All of it as one request to the graph as it was before the first; ``None`` where nothing was taken."""
        features: dict[int, Columns] = {n: ALL if some is None else tuple(some) for n, some in self.features.items()}
        edges = [(u, v) for u, v in self.edges if not undirected or u <= v]
        if not (self.nodes or edges or features or self.labels):
            return None
        return Request(nodes=self.nodes, edges=edges, features=features, labels=self.labels)


class _Tally:
    """What the first so many receipts took; a run that goes on from these adds to it."""

    def __init__(self) -> None:
        self.count, self.head = 0, ""
        self.taken = Taken()


class Receipts(Sequence[Receipt]):
    """The receipts of a run, oldest first.

    Adding to them (``receipts + [receipt]``) gives new ones, which share all others: it costs the same however many
    there are. A receipt that was stored is read and checked when it is asked for.
    """

    def __init__(self, log: Log | None = None) -> None:
        self.log = Log() if log is None else log
        self._read: dict[str, Receipt] = {}
        self._tally = _Tally()

    @classmethod
    def of(cls, receipts: Iterable[Receipt]) -> "Receipts":
        """Receipts as these; the same where they are."""
        return receipts if isinstance(receipts, cls) else cls() + receipts

    def __len__(self) -> int:
        return len(self.log)

    @overload
    def __getitem__(self, number: int) -> Receipt: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Receipt, ...]: ...
    def __getitem__(self, number: int | slice) -> Receipt | tuple[Receipt, ...]:
        if isinstance(number, slice):
            return tuple(self[n] for n in range(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(f"there are {len(self)} receipts, so none has the number {number}")
        number %= len(self)
        digest = self.log.digest(number)
        if digest not in self._read:
            self._keep(digest, self._parsed(number))
        return self._read[digest]

    def __iter__(self) -> Iterator[Receipt]:
        return (self[number] for number in range(len(self)))

    def __add__(self, more: Iterable[Receipt]) -> "Receipts":
        found = Receipts(self.log)
        found._read, found._tally = self._read, self._tally
        for receipt in more:
            undirected = bool(receipt.graph.get("undirected", False))
            found.log = found.log.plus(receipt.to_json().encode(), receipt.request, undirected)
            found._keep(found.log.digest(len(found) - 1), receipt)
        return found

    def plus(self, receipt: Receipt) -> "Receipts":
        """These with one more, which names the last of them."""
        return self.__add__([replace(receipt, previous=self.digest)])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Receipts):
            return len(self) == len(other) and (not len(self) or self.digest == other.digest)
        return tuple(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} receipts>"

    @property
    def digest(self) -> str | None:
        """That of the last one, which names the one before, and so on; ``None`` where there is none."""
        return self.log.digest(len(self) - 1) if len(self) else None

    @property
    def taken(self) -> Taken:
        """All that these took, to look at and not to keep: it grows with the run."""
        log, tally = self.log, self._tally
        if tally.count > len(log) or (tally.count and log.digest(tally.count - 1) != tally.head):
            tally = self._tally = _Tally()  # another run went on from here
        try:
            for took, undirected in log.took(tally.count):
                tally.taken.add(took, undirected)
        except MALFORMED as error:
            self._tally = _Tally()
            raise RunError(f"the requests of the run do not say what was taken: {error}") from error
        tally.count, tally.head = len(log), self.digest or ""
        return tally.taken

    @property
    def taken_since(self) -> tuple[Taken, bool]:
        """What was taken since data was last added or corrected, and whether it ever was."""
        entries, found = list(self.log.took()), Taken()
        last = max((number for number, (took, _) in enumerate(entries) if is_change(took)), default=-1)
        for took, undirected in entries[last + 1 :]:
            found.add(took, undirected)
        return found, last >= 0

    def _keep(self, digest: str, receipt: Receipt) -> None:
        self._read[digest] = receipt
        if len(self._read) > KEPT:
            del self._read[next(iter(self._read))]

    def _parsed(self, number: int) -> Receipt:
        line = self.log.line(number)
        try:
            document = json.loads(line)
            first = isinstance(document, dict) and document.get("format") == FIRST
            receipt = Receipt.from_dict(_upgraded(document) if first else document)
            check_fields(receipt)
            check_fields(standing_of([receipt]))
            str(receipt)  # whatever it takes to tell of it is there
        except (*MALFORMED, RequestError, MethodError, RunError) as error:
            told = printable(str(error))
            raise RunError(f"receipt {number + 1} does not hold what a receipt holds: {told}") from error
        return receipt.issued_as(self.log.digest(number))


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """A receipt of version 0.1 as one of today; what it did not say is not known."""
    known = {field.name for field in fields(Record)}
    rung = (document.get("ladder") or {}).get("rung")
    retrained = "retrain" in (document["method"]["name"], rung) or document["details"].get("resumed_at") == 0
    return {
        **Record(time="", version="0.1.0").to_dict(),
        **{name: value for name, value in document.items() if name in known},
        "format": FORMAT,
        "asked": document["request"],
        "status": "done" if document.get("verified", True) else "unverified",
        "anew": retrained,
    }

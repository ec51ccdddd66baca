"""The receipts of a run as lines that are only ever added to, in memory and in two files.

``receipts.jsonl`` has one receipt a line, as canonical JSON. ``requests.jsonl`` has a short line for each: the length
of the receipt, its digest, and what it took from the graph; so that a run of very many requests is opened without
reading their receipts. A line is checked against its digest when it is read. The manifest says how much of the two
files belongs to the run: what lies beyond was being added when a process was killed, and is nobody's.
"""

import hashlib
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from unweave._core.document import canonical_json
from unweave.errors import RunError

__all__ = ["INDEX", "LINES", "Extent", "Log"]

LINES, INDEX = "receipts.jsonl", "requests.jsonl"

IN_MEMORY = 2**24
"""Bytes of receipts up to which all of them are read and checked when a run is opened, and kept."""

KEPT = 1000
"""Lines of larger ones that are kept until it is worth while to read them from the file instead."""

NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class Extent:
    """How much of the two files belongs to a run.

    Attributes:
        count: How many receipts.
        bytes: Of ``receipts.jsonl``.
        index_bytes: Of ``requests.jsonl``.
        index_sha256: Of those.
        head: Digest of the last receipt.
    """

    count: int = 0
    bytes: int = 0
    index_bytes: int = 0
    index_sha256: str = NOTHING
    head: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Any) -> "Extent":
        """Read what :meth:`to_dict` wrote."""
        found = cls(**document)
        numbers = (found.count, found.bytes, found.index_bytes)
        if any(type(n) is not int or n < 0 for n in numbers) or not isinstance(found.index_sha256, str):
            raise ValueError("the numbers of its receipts are none")
        if (found.count == 0) != (found == cls()) or (found.count > 0) != isinstance(found.head, str):
            raise ValueError("the numbers of its receipts contradict each other")
        return found


class _Shared:
    """What all logs of one line of runs have in common; each of them is the first so many lines of it."""

    def __init__(self) -> None:
        self.adding = threading.Lock()
        self.stored: Callable[[int, int], bytes] = lambda start, end: b""
        self.first = 0  # of the lines that are not stored
        self.lines: list[bytes] = []
        self.entries: list[dict[str, Any]] = []
        self.index: list[bytes] = []
        self.ends: list[int] = []
        self.index_ends: list[int] = []
        self.sha = hashlib.sha256()

    def add(self, entry: dict[str, Any], line: bytes) -> None:
        short = canonical_json(entry).encode() + b"\n"
        self.lines.append(line)
        self.index.append(short)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(line) + 1)
        self.index_ends.append((self.index_ends[-1] if self.index_ends else 0) + len(short))
        self.sha.update(short)
        self.entries.append(entry)


class Log:
    """Lines and what each took, oldest first. A log never changes: :meth:`plus` gives one with a line more.

    Both share their lines, so that a stream of requests copies nothing.
    """

    def __init__(self) -> None:
        self._shared = _Shared()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def plus(self, line: bytes, took: dict[str, Any], undirected: bool) -> "Log":
        """A log with one line more.

        Args:
            line: The receipt, as canonical JSON without a line break.
            took: What it took from the graph, as the document of a request.
            undirected: Whether the edges in that went in both directions.
        """
        entry = {
            "bytes": len(line),
            "digest": hashlib.sha256(line).hexdigest(),
            "request": took,
            "undirected": undirected,
        }
        with self._shared.adding:
            if len(self._shared.entries) == self._count:
                self._shared.add(entry, line)
                return self._of(self._shared, self._count + 1)
        apart = _Shared()  # somebody else has added to it: two runs go on from here
        for number in range(self._count):
            apart.add(self._shared.entries[number], self.line(number))
        apart.add(entry, line)
        return self._of(apart, self._count + 1)

    @classmethod
    def _of(cls, shared: _Shared, count: int) -> "Log":
        found = cls()
        found._shared, found._count = shared, count
        return found

    def line(self, number: int) -> bytes:
        """One receipt as it is stored, checked against its digest."""
        shared = self._shared
        with shared.adding:
            if number >= shared.first:
                return shared.lines[number - shared.first]
            stored = shared.stored
        end = shared.ends[number] - 1
        line = stored(end - shared.entries[number]["bytes"], end)
        if hashlib.sha256(line).hexdigest() != self.digest(number):
            raise RunError(f"line {number + 1} of {LINES} has been truncated or edited: its digest is another one")
        return line

    def written(self, path: Path) -> None:
        """Tell that all lines are in a file now, so that many of them need not be kept in memory as well."""
        shared, count = self._shared, self._count
        if not count or shared.ends[count - 1] <= IN_MEMORY or count < shared.first + KEPT:
            return
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            kept = _Kept(handle)
        finally:
            os.close(handle)
        with shared.adding:
            shared.lines = shared.lines[count - shared.first :]
            shared.first, shared.stored = count, kept.read

    def digest(self, number: int) -> str:
        """The digest of one receipt."""
        found: str = self._shared.entries[number]["digest"]
        return found

    def took(self, start: int = 0) -> Iterator[tuple[dict[str, Any], bool]]:
        """What each receipt from one on took from the graph, and whether edges went in both directions."""
        for number in range(start, self._count):
            entry = self._shared.entries[number]
            yield entry["request"], entry["undirected"]

    def begins_with(self, extent: Extent) -> bool:
        """Whether the receipts of a run are the first of these."""
        return extent.count <= self._count and (not extent.count or self.digest(extent.count - 1) == extent.head)

    @property
    def extent(self) -> Extent:
        """How much of the files it takes."""
        shared, count = self._shared, self._count
        if not count:
            return Extent()
        with shared.adding:
            sha = shared.sha.copy() if len(shared.entries) == count else None
        if sha is None:
            sha = hashlib.sha256(self.index_from(0))
        return Extent(
            count, shared.ends[count - 1], shared.index_ends[count - 1], sha.hexdigest(), self.digest(count - 1)
        )

    def lines_from(self, start: int) -> Iterator[bytes]:
        """What ``receipts.jsonl`` holds from one line on."""
        for number in range(start, self._count):
            yield self.line(number) + b"\n"

    def index_from(self, start: int) -> bytes:
        """What ``requests.jsonl`` holds from one line on."""
        return b"".join(self._shared.index[start : self._count])

    @classmethod
    def read(cls, extent: Extent, lines: int, index: int) -> "Log":
        """The log in two files.

        Args:
            extent: How much of them belongs to it.
            lines: ``receipts.jsonl``, open for reading.
            index: ``requests.jsonl``, open for reading.
        """
        shared, text = _Shared(), _read(index, 0, extent.index_bytes)
        if hashlib.sha256(text).hexdigest() != extent.index_sha256:
            raise RunError(f"{INDEX} has been truncated or edited: its digest does not match the manifest")
        try:
            shared.entries = json.loads(b"[" + text.rstrip(b"\n").replace(b"\n", b",") + b"]")
            wrong = not all(map(_is_entry, shared.entries))
            shared.ends = list(accumulate(entry["bytes"] + 1 for entry in shared.entries))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RunError(f"{INDEX} does not hold what it should: {error}") from error
        shared.index = text.splitlines(keepends=True)
        shared.index_ends = list(accumulate(map(len, shared.index)))
        shared.first = extent.count
        if (
            wrong
            or not len(shared.entries) == len(shared.index) == extent.count
            or shared.ends[-1] != extent.bytes
            or shared.entries[-1]["digest"] != extent.head
        ):
            raise RunError(f"{INDEX} does not hold what the manifest says of it")
        shared.sha = hashlib.sha256(text)
        found = cls._of(shared, extent.count)
        if os.fstat(lines).st_size < extent.bytes:
            raise RunError(f"{LINES} has been truncated or edited: it is shorter than the manifest says")
        if extent.bytes <= IN_MEMORY:
            whole = _read(lines, 0, extent.bytes)
            shared.stored = lambda start, end: whole[start:end]
            for number in range(extent.count):
                found.line(number)
        else:
            shared.stored = _Kept(lines).read
            found.line(extent.count - 1)
        return found


class _Kept:
    """A file that is read where it is asked for, whatever became of its name since."""

    def __init__(self, handle: int) -> None:
        self.handle = os.dup(handle)
        weakref.finalize(self, os.close, self.handle)

    def read(self, start: int, end: int) -> bytes:
        return _read(self.handle, start, end)


def _read(handle: int, start: int, end: int) -> bytes:
    found = bytearray()
    while start + len(found) < end and (part := os.pread(handle, end - start - len(found), start + len(found))):
        found += part
    return bytes(found)


def _is_entry(entry: Any) -> bool:
    return (
        type(entry["bytes"]) is int
        and entry["bytes"] >= 0
        and type(entry["digest"]) is str
        and type(entry["request"]) is dict
        and type(entry["undirected"]) is bool
    )

"""An entry of a ledger, and the one way to write it down."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Self

from unweave._core.document import canonical_json
from unweave.errors import LedgerError

__all__ = ["CHANGED", "DESTROYED", "FIRST", "OPENED", "OWN", "Entry", "Signed", "check_parts", "read_canonical"]

OPENED, CHANGED, DESTROYED = "ledger opened", "signing key changed", "subject key destroyed"
"""Kinds of entries that the ledger itself writes; the first two have a public key in their body."""

OWN = (OPENED, CHANGED, DESTROYED)

FIRST = "0" * 64
"""What stands for the digest of the entry before the first."""


DEEP = 20
"""How deep a body may be nested."""


@dataclass(frozen=True)
class Entry:
    """Something that happened.

    Attributes:
        ledger: The ledger's own id, so that an entry of another one does not fit.
        sequence: 1, 2, 3, …
        at: When, in UTC, as ISO 8601.
        kind: What.
        body: Facts that name nobody.
        sealed: The id of the key that its personal part is encrypted with, and the digest of that part; or ``None``.
        previous: Digest of the entry before.
        signer: Fingerprint of the key it is signed with.
    """

    ledger: str
    sequence: int
    at: str
    kind: str
    body: Mapping[str, Any]
    sealed: Mapping[str, str] | None
    previous: str
    signer: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """All of it, as it is stored."""
        return canonical_json({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def read(cls, text: str) -> Self:
        """The entry that a text is, which must be written as ``text`` writes it."""
        found = read_canonical(text)
        sealed = (dict, type(None))
        check_parts(found, {f.name: str for f in fields(cls)} | {"sequence": int, "body": dict, "sealed": sealed})
        if depth(found["body"]) > DEEP:
            raise LedgerError(f"the body of an entry is nested more than {DEEP} deep")
        return cls(**found)


@dataclass(frozen=True)
class Signed:
    """An entry with its signature, in hexadecimal digits."""

    entry: Entry
    signature: str

    @property
    def line(self) -> str:
        """Of an exported ledger."""
        return canonical_json({"entry": asdict(self.entry), "signature": self.signature})

    @classmethod
    def read(cls, line: str) -> Self:
        """The entry of a line, which must be written as ``line`` writes it."""
        found = read_canonical(line)
        check_parts(found, {"entry": dict, "signature": str})
        return cls(Entry.read(canonical_json(found["entry"])), found["signature"])


def read_canonical(text: str) -> dict[str, Any]:
    """A document whose text is canonical, so that not one byte of it can be changed without changing what it says."""
    try:
        found = json.loads(text)
        same = isinstance(found, dict) and canonical_json(found) == text
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise LedgerError(f"this is no line of a ledger: {text[:60]!r}; it was changed or cut")
    return dict(found)


def check_parts(found: dict[str, Any], parts: Mapping[str, type | tuple[type, ...]]) -> None:
    """Refuse a document that has other parts than these, or parts of another type."""
    if sorted(found) != sorted(parts) or not all(isinstance(found[name], kind) for name, kind in parts.items()):
        raise LedgerError(f"a document has the parts {sorted(found)} where {sorted(parts)} belong, or other types")


def depth(value: Any) -> int:
    """How deep a document is nested; it looks no further than needed."""
    level, found = [value], 0
    while level and found <= DEEP:
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level, found = [each for part in parts for each in part], found + bool(parts)
    return found

"""Check a ledger from its entries alone: order, digests, signatures, and what was published of it before."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Self

from unweave._core.document import canonical_json, document_digest
from unweave.errors import LedgerError
from unweave.serve.ledger.entries import CHANGED, FIRST, OPENED, Signed, check_parts, read_canonical
from unweave.serve.ledger.keys import Keys, fingerprint, signature_fits

__all__ = ["CHECKPOINT", "ENTRY", "Checkpoint", "Verified", "read_checkpoint", "verify"]

ENTRY, CHECKPOINT = "ledger entry", "ledger checkpoint"
"""What a key signs for."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a ledger in a few lines, to be kept or published elsewhere.

    Attributes:
        ledger: Its id.
        sequence: How many entries it had.
        digest: Of the last of them.
        at: When, in UTC.
        signer: Fingerprint of the key it is signed with.
        signature: In hexadecimal digits.
    """

    ledger: str
    sequence: int
    digest: str
    at: str
    signer: str
    signature: str = ""

    @property
    def text(self) -> str:
        """As it is written."""
        return canonical_json({"checkpoint": asdict(self)})

    @property
    def signed(self) -> str:
        """The digest that is signed: of all but the signature."""
        return document_digest({k: v for k, v in asdict(self).items() if k != "signature"})

    def sign(self, keys: Keys) -> Self:
        """The same with its signature."""
        whole = asdict(self) | {"signature": keys.sign(CHECKPOINT, self.signed)}
        return type(self)(**whole)


def read_checkpoint(text: str) -> Checkpoint:
    """A checkpoint, which must be written as ``text`` writes it."""
    found = read_canonical(text)
    check_parts(found, {"checkpoint": dict})
    check_parts(found["checkpoint"], {f.name: str for f in fields(Checkpoint)} | {"sequence": int})
    return Checkpoint(**found["checkpoint"])


@dataclass(frozen=True)
class Verified:
    """A ledger that was found in order.

    Attributes:
        ledger: Its id.
        entries: How many there are, up to the last one looked at.
        head: Digest of the last.
        first_key: Fingerprint of the key that opened it: who knows that from elsewhere knows whose ledger it is.
        public: The public key that the last entry leaves in force.
        last: When the last entry was made.
    """

    ledger: str
    entries: int
    head: str
    first_key: str
    public: str
    last: str


def verify(
    lines: Iterable[Signed],
    *,
    checkpoints: Iterable[Checkpoint] = (),
    key: str | None = None,
    whole: bool = True,
) -> Verified:
    """Go through a ledger from its first entry to its last.

    Args:
        lines: All entries, in order.
        checkpoints: What was published of it before: each must be on the way.
        key: Fingerprint of the key that must have opened it.
        whole: Whether all entries must be there. Where not, there is one stretch without gaps; before it and after it
            come only entries that name a key, so that the keys in force are known.

    Raises:
        LedgerError: Something was changed, left out, swapped, added or rewritten; the message says where.
    """
    wanted: dict[int, list[Checkpoint]] = {}
    for point in checkpoints:
        wanted.setdefault(point.sequence, []).append(point)
    ledger, previous, public, first, last, count, number = "", FIRST, "", "", "", 0, 0
    begun, over = False, False
    for count, line in enumerate(lines, start=1):
        entry = line.entry
        names_key = entry.kind in (OPENED, CHANGED)
        skipped = not whole and count > 1 and entry.sequence > number + 1 and (names_key or not begun) and not over
        skipped |= over and names_key and entry.sequence > number + 1
        begun, over = begun or not names_key, over or (begun and skipped)
        number = entry.sequence if skipped else number + 1
        place = f"entry {number}"
        if count == 1:
            if entry.kind != OPENED or not isinstance(entry.body.get("public_key"), str):
                raise LedgerError(f"{place} does not open a ledger; the beginning is missing")
            ledger, public = entry.ledger, entry.body["public_key"]
            first = _fingerprint(public, place)
            if key is not None and first != key:
                raise LedgerError(f"the ledger was opened with the key {first}, not {key}: it is another one's")
        elif entry.kind == OPENED:
            raise LedgerError(f"{place} opens a ledger once more; it was put together from several")
        if entry.ledger != ledger:
            raise LedgerError(f"{place} is of another ledger ({entry.ledger}, not {ledger})")
        if over and not names_key:
            raise LedgerError(f"{place} comes after a gap; there is one stretch without gaps, and then only keys")
        if entry.sequence != number:
            raise LedgerError(f"{place} says that it is entry {entry.sequence}: one is missing, doubled or swapped")
        if entry.previous != previous and not skipped:
            raise LedgerError(f"{place} does not follow the entry before it, one of which was changed")
        digest = entry.digest
        if entry.signer != fingerprint(public) or not signature_fits(public, ENTRY, digest, line.signature):
            raise LedgerError(f"{place} is not signed with the key that was in force ({fingerprint(public)})")
        if not _is_time(entry.at) or entry.at < last:
            raise LedgerError(f"{place} is older than the entry before it, or has no time ({entry.at!r} and {last!r})")
        if entry.kind == CHANGED:
            public = str(entry.body.get("public_key"))
            _fingerprint(public, place)
        for point in wanted.pop(number, []):
            _check(point, ledger, digest, public)
        previous, last = digest, entry.at
    if not count:
        raise LedgerError("there is no entry; a ledger has at least the one that opens it")
    if wanted:
        if not whole:
            raise LedgerError(
                f"entry {min(wanted)}, which a checkpoint is of, is not in this part of the ledger; check all of it"
            )
        raise LedgerError(f"it had {max(wanted)} entries when the checkpoint was made and has {number}: some are gone")
    return Verified(ledger, number, previous, first, public, last)


def _is_time(at: str) -> bool:
    """Whether a text is a time in UTC, as entries write it."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).isoformat(timespec="microseconds") == at
    except (ValueError, OverflowError):
        return False


def _fingerprint(public: str, place: str) -> str:
    try:
        return fingerprint(public)
    except ValueError as error:
        raise LedgerError(f"{place} has no public key that can be read") from error


def _check(point: Checkpoint, ledger: str, digest: str, public: str) -> None:
    """Whether a checkpoint is of this ledger, at this entry, signed with the key that the entry leaves in force."""
    if point.ledger != ledger:
        raise LedgerError(f"the checkpoint is of another ledger ({point.ledger}, not {ledger})")
    if point.digest != digest:
        raise LedgerError(
            f"entry {point.sequence} is not the one that the checkpoint of {point.at} saw: the chain was rewritten"
        )
    if point.signer != fingerprint(public) or not signature_fits(public, CHECKPOINT, point.signed, point.signature):
        raise LedgerError(f"the checkpoint of {point.at} is not signed with the key that was in force")

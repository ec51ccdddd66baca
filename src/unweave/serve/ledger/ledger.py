"""A ledger in a database: entries are added in the transaction of what they tell of, and never changed."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from unweave._core.document import canonical_json
from unweave.errors import LedgerError
from unweave.serve import database
from unweave.serve.database import entries, subject_keys
from unweave.serve.ledger.chain import ENTRY, Checkpoint, Verified, verify
from unweave.serve.ledger.entries import CHANGED, DESTROYED, FIRST, OPENED, Entry, Signed
from unweave.serve.ledger.keys import Keys, fingerprint
from unweave.serve.ledger.sealing import digest_of, new_key, seal, unseal

__all__ = ["Ledger", "lines_of", "verify_database"]

DATABASE, KEYS = "service.db", "keys"

PAGE = 1000


class Ledger:
    """Append-only entries, each with the digest of the one before and a signature.

    Args:
        engine: Of a database whose tables are there (:func:`unweave.serve.database.migrate`).
        keys: What it is signed with.
    """

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self.engine, self.keys = engine, keys
        with database.writing(engine) as connection:
            if _end(connection) is None:
                self._open(connection)

    @classmethod
    def at(cls, home: str | Path, url: str | None = None, *, make: bool = True) -> Self:
        """The ledger of a folder.

        Args:
            home: The folder of a service: its keys, and its database where that is SQLite.
            url: Of another database.
            make: Whether to make what is missing.

        Raises:
            LedgerError: There is none, and none was to be made.
        """
        home = Path(home)
        if not make and not ((home / KEYS).is_dir() and (url is not None or (home / DATABASE).is_file())):
            raise LedgerError(f"{home} is no folder of a service; give the one that it was started with")
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if url is None:  # its log gets the same permissions
            os.close(os.open(home / DATABASE, os.O_RDWR | os.O_CREAT, 0o600))
        engine = database.connect(url or f"sqlite:///{home / DATABASE}")
        database.migrate(engine)
        return cls(engine, Keys(home / KEYS))

    def append(
        self,
        connection: Connection,
        kind: str,
        body: Mapping[str, Any],
        *,
        personal: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Signed:
        """Add an entry, in the transaction of what it tells of.

        Args:
            connection: Of :func:`unweave.serve.database.writing`.
            kind: What happened.
            body: Facts that name nobody: they stay for good.
            personal: What does name somebody; it goes with its key.
            key: The key for it (:meth:`new_subject_key`).
        """
        end = _end(connection)
        if end is None:
            raise LedgerError("this ledger was never opened; its tables were emptied")
        body = _plain(body)
        if (personal is None) != (key is None):
            raise LedgerError("what is personal needs a key of its subject, and a key is for nothing else")
        self.keys.follow(fingerprint(end.public))
        sealed = None
        if personal is not None and key is not None:
            sealed = seal(self._subject_key(connection, key), _where(end.id, end.sequence + 1), _plain(personal))
        entry = Entry(
            ledger=end.id,
            sequence=end.sequence + 1,
            at=max(_now(), end.at),  # a clock that goes back does not turn the order around
            kind=kind,
            body=body,
            sealed=None if sealed is None or key is None else {"key": key, "digest": digest_of(sealed)},
            previous=end.digest,
            signer=self.keys.fingerprint,
        )
        return self._add(connection, entry, sealed, end.public)

    def new_subject_key(self, connection: Connection) -> str:
        """The id of a new key, for what is personal in the entries of one request."""
        name, key = new_key()
        connection.execute(insert(subject_keys).values(id=name, key=key))
        return name

    def personal(self, connection: Connection, sequence: int) -> dict[str, Any]:
        """What is personal in an entry, as long as its key is there."""
        row = connection.execute(select(entries).where(entries.c.sequence == sequence)).one_or_none()
        if row is None or row.key is None:
            raise LedgerError(f"entry {sequence} has no personal part")
        if row.sealed is None:
            raise LedgerError(f"the personal part of entry {sequence} is gone: its key was destroyed")
        return unseal(self._subject_key(connection, row.key), _where(Entry.read(row.text).ledger, sequence), row.sealed)

    def destroy(self, connection: Connection, key: str) -> Signed:
        """Destroy a key and what was encrypted with it; :func:`unweave.serve.database.scrub` is to follow."""
        self._subject_key(connection, key)
        connection.execute(delete(subject_keys).where(subject_keys.c.id == key))
        connection.execute(update(entries).where(entries.c.key == key).values(sealed=None))
        return self.append(connection, DESTROYED, {"key": key})

    def change_signing_key(self) -> str:
        """Sign with a new key from now on, which the old one vouches for; the old one is gone. Its fingerprint."""
        public = self.keys.prepare_next()
        with database.writing(self.engine) as connection:
            self.append(connection, CHANGED, {"public_key": public})
            connection.execute(update(database.ledger).values(public=public))
        self.keys.follow(fingerprint(public))
        return self.keys.fingerprint

    def checkpoint(self) -> Checkpoint:
        """What to publish elsewhere, so that a chain that is rewritten is noticed."""
        with database.reading(self.engine) as connection:
            end = _end(connection)
        if end is None:
            raise LedgerError("this ledger was never opened; its tables were emptied")
        self.keys.follow(fingerprint(end.public))
        return Checkpoint(end.id, end.sequence, end.digest, _now(), self.keys.fingerprint).sign(self.keys)

    def verify(self, *, checkpoints: Iterable[Checkpoint] = (), key: str | None = None) -> Verified:
        """Go through all of it; the arguments and errors are those of :func:`verify_database`."""
        return verify_database(self.engine, checkpoints=checkpoints, key=key)

    def _open(self, connection: Connection) -> None:
        name = uuid4().hex
        entry = Entry(name, 1, _now(), OPENED, {"public_key": self.keys.public}, None, FIRST, self.keys.fingerprint)
        values = {"place": 1, "id": name, "sequence": 0, "digest": FIRST, "at": entry.at, "public": self.keys.public}
        connection.execute(insert(database.ledger).values(**values))
        self._add(connection, entry, None, self.keys.public)

    def _add(self, connection: Connection, entry: Entry, sealed: bytes | None, public: str) -> Signed:
        signed = Signed(entry, self.keys.sign(ENTRY, entry.digest))
        key = None if entry.sealed is None else entry.sealed["key"]
        values = {"sequence": entry.sequence, "kind": entry.kind, "text": entry.text, "key": key, "sealed": sealed}
        connection.execute(insert(entries).values(signature=signed.signature, **values))
        end = {"sequence": entry.sequence, "digest": entry.digest, "at": entry.at, "public": public}
        moved = connection.execute(
            update(database.ledger).where(database.ledger.c.sequence == entry.sequence - 1).values(**end)
        )
        if moved.rowcount != 1:
            raise LedgerError("another process added an entry at the same time; nothing was added, try again")
        return signed

    def _subject_key(self, connection: Connection, key: str) -> bytes:
        row = connection.execute(select(subject_keys.c.key).where(subject_keys.c.id == key)).one_or_none()
        if row is None:
            raise LedgerError(f"there is no key {key}; it was destroyed, or never made")
        return bytes(row.key)


def lines_of(connection: Connection) -> Iterator[Signed]:
    """The entries of a ledger, in order, a thousand at a time."""
    query = select(entries.c.sequence, entries.c.text, entries.c.signature).order_by(entries.c.sequence).limit(PAGE)
    last = 0
    while found := connection.execute(query.where(entries.c.sequence > last)).all():
        for row in found:
            yield Signed(Entry.read(row.text), row.signature)
        last = found[-1].sequence


def verify_database(engine: Engine, *, checkpoints: Iterable[Checkpoint] = (), key: str | None = None) -> Verified:
    """Go through the ledger of a database, and through what is personal in it as far as that is there. Needs no key.

    Args:
        engine: Of the database.
        checkpoints: What was published of it before.
        key: Fingerprint of the key that must have opened it.

    Raises:
        LedgerError: Something was changed; the message says where.
    """
    with database.reading(engine) as connection:
        found = verify(lines_of(connection), checkpoints=checkpoints, key=key)
        end = _end(connection)
        if end is None or (end.id, end.sequence, end.digest) != (found.ledger, found.entries, found.head):
            raise LedgerError("the last entries are gone: the ledger ends before the place where it was left")
        if end.public != found.public:
            raise LedgerError("the key in force is not the one that the entries name")
        query = select(entries.c.sequence, entries.c.text, entries.c.key, entries.c.sealed)
        for row in connection.execute(query.where(entries.c.sealed.is_not(None))):
            if Entry.read(row.text).sealed != {"key": row.key, "digest": digest_of(row.sealed)}:
                raise LedgerError(f"the personal part of entry {row.sequence} was changed")
    return found


def _end(connection: Connection) -> Row[Any] | None:
    """Where the chain ends; on PostgreSQL whoever writes holds it until its transaction is over."""
    query = select(database.ledger)
    reads = connection.get_execution_options().get("reads", False)
    return connection.execute(query if reads else query.with_for_update()).one_or_none()


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as they will be read back."""
    try:
        return dict(json.loads(canonical_json(dict(facts))))
    except (TypeError, ValueError, RecursionError) as error:
        raise LedgerError(f"an entry takes what JSON can say, and no NaN: {error}") from error


def _where(ledger: str, sequence: int) -> str:
    return f"{ledger} {sequence}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")

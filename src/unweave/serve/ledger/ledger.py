"""A ledger in a database: entries are added in the transaction of what they tell of, and never changed."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, bindparam, delete, insert, or_, select, update

from unweave._core.document import canonical_json
from unweave.errors import LedgerError
from unweave.serve import database
from unweave.serve.database import entries, subject_keys
from unweave.serve.ledger.chain import ENTRY, Checkpoint, Verified, verify
from unweave.serve.ledger.entries import CHANGED, DESTROYED, FIRST, OPENED, OWN, Entry, Signed
from unweave.serve.ledger.keys import Keys, fingerprint
from unweave.serve.ledger.sealing import digest_of, new_key, seal, unseal

__all__ = ["Ledger", "database_of", "lines_of", "verify_database"]

DATABASE, KEYS = "service.db", "keys"

PAGE = 1000

ADD, END = insert(entries), select(database.ledger)
HELD_END = END.with_for_update()
MOVE = (
    update(database.ledger)
    .where(database.ledger.c.sequence == bindparam("before"))
    .values({name: bindparam(name) for name in ("sequence", "digest", "at", "public")})
)
"""Statements that every entry needs, made once."""


class Ledger:
    """Append-only entries, each with the digest of the one before and a signature.

    Args:
        engine: Of a database whose tables are there (:func:`unweave.serve.database.migrate`).
        keys: What it is signed with.
    """

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self.engine, self.keys = engine, keys

    @classmethod
    def at(cls, home: str | Path, url: str | None = None, *, make: bool = True) -> Self:
        """The ledger of a folder.

        Args:
            home: The folder of a service: its keys, and its database where that is SQLite.
            url: Of another database.
            make: Whether to make what is missing, and to bring older tables up to date.

        Raises:
            LedgerError: There is none and none was to be made, or not the one that the keys belong to.
        """
        home = Path(home)
        engine = database_of(home, url, make=make)
        try:
            found = cls(engine, Keys(home / KEYS, make=make))
            found._settle(home, make=make)
        except BaseException:
            engine.dispose()
            raise
        return found

    def _settle(self, home: Path, *, make: bool) -> None:
        """See that the database has the ledger of these keys, or make it."""
        if make:
            database.migrate(self.engine)
        known = self.keys.ledger
        with database.writing(self.engine) as connection:
            database.take_turns(connection)
            end = _end(connection)
            if end is None and make and known is None:
                self._open(connection)
                end = _end(connection)
            if end is None or known not in (None, end.id):
                raise LedgerError(
                    f"the keys of {home} belong to the ledger {known}, which is not in this database: it was emptied, "
                    "or is another one"
                )
            self.keys.follow(fingerprint(end.public))
        if known is None:
            self.keys.opened(end.id)

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
            kind: What happened, in up to 64 letters.
            body: Facts that name nobody: they stay for good.
            personal: What does name somebody; it goes with its key.
            key: The key for it (:meth:`new_subject_key`).

        Raises:
            LedgerError: It could not be read back as it is, or says what only the ledger itself says.
        """
        if not (isinstance(kind, str) and 0 < len(kind) <= 64 and kind.isprintable()) or kind in OWN:
            raise LedgerError(f"an entry needs a kind of 1 to 64 letters that is none of {OWN}, got {kind!r}")
        if (personal is None) != (key is None):
            raise LedgerError("what is personal needs a key of its subject, and a key is for nothing else")
        return self._append(connection, kind, body, None if key is None else (key, personal or {}))

    def _append(
        self,
        connection: Connection,
        kind: str,
        body: Mapping[str, Any],
        subject: tuple[str, Mapping[str, Any]] | None = None,
    ) -> Signed:
        """Add an entry of any kind, with the key and the personal part of a subject."""
        end = self._held(connection)
        self.keys.follow(fingerprint(end.public))
        said, sealed = None, None
        if subject is not None:
            key, personal = subject
            sealed = seal(self._subject_key(connection, key), _where(end.id, end.sequence + 1), _plain(personal))
            said = {"key": key, "digest": digest_of(sealed)}
        entry = Entry(
            ledger=end.id,
            sequence=end.sequence + 1,
            at=max(_now(), end.at),  # a clock that goes back does not turn the order around
            kind=kind,
            body=_plain(body),
            sealed=said,
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
        _end(connection)  # nobody adds an entry meanwhile
        if connection.execute(delete(subject_keys).where(subject_keys.c.id == key)).rowcount != 1:
            raise LedgerError(f"there is no key {key}; it was destroyed, or never made")
        connection.execute(update(entries).where(entries.c.key == key).values(sealed=None))
        return self._append(connection, DESTROYED, {"key": key})

    def change_signing_key(self) -> str:
        """Sign with a new key from now on, which the old one vouches for; the old one is gone. Its fingerprint."""
        with database.writing(self.engine) as connection:
            end = self._held(connection)
            self.keys.follow(fingerprint(end.public))  # one that was interrupted is finished first
            public = self.keys.prepare_next()
            self._append(connection, CHANGED, {"public_key": public})
            connection.execute(update(database.ledger).values(public=public))
        with database.writing(self.engine) as connection:
            self.keys.follow(fingerprint(self._held(connection).public))
        return fingerprint(public)

    def checkpoint(self) -> Checkpoint:
        """What to publish elsewhere, so that a chain that is rewritten is noticed."""
        with database.writing(self.engine) as connection:
            end = self._held(connection)
            self.keys.follow(fingerprint(end.public))
            return Checkpoint(end.id, end.sequence, end.digest, _now(), self.keys.fingerprint).sign(self.keys)

    def _held(self, connection: Connection) -> Row[Any]:
        """Where the chain ends; nobody else moves it while the transaction lasts."""
        end = _end(connection)
        if end is None:
            raise LedgerError("this ledger was never opened; its tables were emptied")
        return end

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
        if Entry.read(entry.text) != entry:
            raise LedgerError("an entry would not be read back as it is; nothing was added")
        signed = Signed(entry, self.keys.sign(ENTRY, entry.digest))
        key = None if entry.sealed is None else entry.sealed["key"]
        values = {"sequence": entry.sequence, "kind": entry.kind, "text": entry.text, "key": key, "sealed": sealed}
        connection.execute(ADD, {**values, "signature": signed.signature})
        end = {"sequence": entry.sequence, "digest": entry.digest, "at": entry.at, "public": public}
        moved = connection.execute(MOVE, {**end, "before": entry.sequence - 1})
        if moved.rowcount != 1:
            raise LedgerError("another process added an entry at the same time; nothing was added, try again")
        return signed

    def _subject_key(self, connection: Connection, key: str) -> bytes:
        row = connection.execute(select(subject_keys.c.key).where(subject_keys.c.id == key)).one_or_none()
        if row is None:
            raise LedgerError(f"there is no key {key}; it was destroyed, or never made")
        return bytes(row.key)


def database_of(home: Path, url: str | None = None, *, make: bool = False) -> Engine:
    """The database of a service: in its folder, or elsewhere.

    Raises:
        LedgerError: It is not there, or not of this version, and nothing was to be made.
    """
    path = None if url is not None else home / DATABASE
    if path is not None and make:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # its log gets the same permissions
        except OSError as error:
            raise LedgerError(f"cannot make a database in {home}: {error}") from error
    if path is not None and not path.is_file():
        raise LedgerError(f"{home} is no folder of a service; give the one that it was started with")
    if path is not None and path.stat().st_mode & 0o077:
        raise LedgerError(f"{path} can be read by others, and keys of subjects with it: chmod 600 {path}")
    engine = database.connect(url or database.in_file(home / DATABASE))
    place = engine.url.database if engine.dialect.name == "sqlite" else None
    if place and not make and not Path(place).is_file():  # to look at it would make it
        raise LedgerError(f"there is no database {place}; check its address")
    if not make:
        try:
            database.check_version(engine)
        except BaseException:
            engine.dispose()
            raise
    return engine


def lines_of(
    connection: Connection, *, start: int | None = None, end: int | None = None, until: int | None = None
) -> Iterator[Signed]:
    """The entries of a ledger, in order, a thousand at a time; each row says what its signed text says.

    Args:
        connection: To read by.
        start: The first entry, before which come only those that name a key; by default all of them come.
        end: The last one, after which likewise.
        until: The last of all.
    """
    columns = (entries.c.sequence, entries.c.kind, entries.c.text, entries.c.signature, entries.c.key)
    query, last = select(*columns).order_by(entries.c.sequence).limit(PAGE), None
    names_key = entries.c.kind.in_((OPENED, CHANGED))
    if start is not None:
        query = query.where(or_(entries.c.sequence >= start, names_key))
    if end is not None:
        query = query.where(or_(entries.c.sequence <= end, names_key))
    if until is not None:
        query = query.where(entries.c.sequence <= until)
    while found := connection.execute(query if last is None else query.where(entries.c.sequence > last)).all():
        for row in found:
            entry = Entry.read(row.text)
            key = None if entry.sealed is None else entry.sealed.get("key")
            if (row.sequence, row.kind, row.key) != (entry.sequence, entry.kind, key):
                raise LedgerError(f"the row of entry {entry.sequence} says something else than what was signed")
            yield Signed(entry, row.signature)
        last = found[-1].sequence


def verify_database(engine: Engine, *, checkpoints: Iterable[Checkpoint] = (), key: str | None = None) -> Verified:
    """Go through the ledger of a database, and through what is personal in it. Needs no key, and changes nothing.

    Args:
        engine: Of the database.
        checkpoints: What was published of it before.
        key: Fingerprint of the key that must have opened it.

    Raises:
        LedgerError: Something was changed; the message says where.
    """
    with database.reading(engine) as connection:
        sealed, destroyed = dict[int, Mapping[str, str]](), set[str]()

        def passed() -> Iterator[Signed]:
            for line in lines_of(connection):
                if line.entry.sealed is not None:
                    sealed[line.entry.sequence] = line.entry.sealed
                if line.entry.kind == DESTROYED:
                    destroyed.add(str(line.entry.body.get("key")))
                yield line

        found = verify(passed(), checkpoints=checkpoints, key=key)
        end = _end(connection)
        at_end = (found.ledger, found.entries, found.head, found.last)
        if end is None or (end.id, end.sequence, end.digest, end.at) != at_end:
            raise LedgerError("the last entries are gone: the ledger ends before the place where it was left")
        if end.public != found.public:
            raise LedgerError("the key in force is not the one that the entries name")
        _check_personal(connection, sealed, destroyed)
    return found


def _check_personal(connection: Connection, sealed: Mapping[int, Mapping[str, str]], destroyed: set[str]) -> None:
    """What is personal is there as it was signed until its key is destroyed, and then neither is."""
    keys = {row.id for row in connection.execute(select(subject_keys.c.id))}
    if back := keys & destroyed:
        raise LedgerError(f"the key {min(back)} is there again, although it was destroyed")
    there = connection.execute(select(entries.c.sequence, entries.c.sealed).where(entries.c.sealed.is_not(None)))
    found = {row.sequence: row.sealed for row in there}
    for sequence, said in sealed.items():
        gone, held = said.get("key") in destroyed, found.pop(sequence, None)
        if gone != (held is None):
            raise LedgerError(f"the personal part of entry {sequence} is {'still' if gone else 'no longer'} there")
        if not gone and (not isinstance(held, bytes) or digest_of(held) != said.get("digest")):
            raise LedgerError(f"the personal part of entry {sequence} was changed")
        if not gone and said.get("key") not in keys:
            raise LedgerError(f"the key of the personal part of entry {sequence} is gone, and nobody destroyed it")
    if found:
        raise LedgerError(f"the personal part of entry {min(found)} was added")


def _end(connection: Connection) -> Row[Any] | None:
    """Where the chain ends; on PostgreSQL whoever writes holds it until its transaction is over."""
    reads = connection.get_execution_options().get("reads", False)
    return connection.execute(END if reads else HELD_END).one_or_none()


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

"""The database of a service: SQLite in one file, or PostgreSQL; its tables, and how they come to be as they are."""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, finalize

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import SQLAlchemyError

from unweave.errors import LedgerError

__all__ = [
    "METADATA",
    "check_version",
    "connect",
    "entries",
    "in_file",
    "ledger",
    "migrate",
    "reading",
    "scrub",
    "subject_keys",
    "take_turns",
    "writing",
]

METADATA = MetaData()

ledger = Table(
    "ledger",
    METADATA,
    Column("place", Integer, primary_key=True),  # always 1: there is one ledger
    Column("id", String(32), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("public", String(64), nullable=False),
)
"""The end of the chain, in one row."""

entries = Table(
    "entries",
    METADATA,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Column("signature", String(128), nullable=False),
    Column("key", String(32), index=True),
    Column("sealed", LargeBinary),
)
"""The chain, as it was signed; what is personal stands in ``sealed`` until its key is destroyed."""

subject_keys = Table(
    "subject_keys",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("key", LargeBinary, nullable=False),
)
"""Keys of personal parts; a row goes when its request is done."""

VERSION = "unweave_version"
"""The table that says which version the others are of."""

REWRITE = (
    "PRAGMA temp_store=MEMORY",
    "BEGIN IMMEDIATE",
    "CREATE TEMP TABLE kept AS SELECT * FROM subject_keys",
    "DELETE FROM subject_keys",
    "INSERT INTO subject_keys SELECT * FROM kept",
    "DROP TABLE kept",
    "COMMIT",
)
"""Write the keys that remain anew (SQLite)."""

MAKING = threading.Lock()
TURNS: WeakKeyDictionary[Engine, "_Turn"] = WeakKeyDictionary()

BUSY_SECONDS = 30.0
"""How long a writer waits for another one (SQLite)."""


def connect(url: str | URL) -> Engine:
    """An engine; SQLite writes ahead to a log, waits for other writers, and overwrites what it deletes."""
    with refusing():
        place = make_url(url)
        if place.drivername in ("postgresql", "postgres"):  # as everybody writes it
            place = place.set(drivername="postgresql+psycopg")
        engine = create_engine(place, hide_parameters=True)  # a key is no part of an error's text
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    return engine


def in_file(path: Path) -> URL:
    """The address of a database in one file, whatever its name has in it."""
    return URL.create("sqlite", database=str(path))


@contextmanager
def refusing() -> Iterator[None]:
    """What goes wrong with a database, in our words."""
    try:
        yield
    except (SQLAlchemyError, CommandError, ImportError) as error:
        what = str(error).splitlines()[0]
        raise LedgerError(
            f"the database does not serve: {what}; check its address, its version and who else uses it"
        ) from error


def _prepare(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin says
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(f"PRAGMA busy_timeout={round(1000 * BUSY_SECONDS)}")


def _begin(connection: Connection) -> None:
    """A writer takes its turn at once: one that reads first and writes later may find that it cannot."""
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that is carried out whole or not at all.

    On SQLite writers take turns in the order in which they came: SQLite itself has those that wait sleep, ever longer,
    and whoever writes one thing after another would leave the others no chance.
    """
    with refusing(), _turn(engine), engine.begin() as connection:
        yield connection


def _turn(engine: Engine) -> AbstractContextManager[None]:
    """The turn of a writer; none is needed where the database is no file."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if not file:
        return nullcontext()
    with MAKING:
        if engine not in TURNS:
            TURNS[engine] = _Turn(file)
        return TURNS[engine]


class _Turn(AbstractContextManager[None]):
    """One writer at a time among threads and processes; the lock of one that is killed goes with it.

    Where a process stands still with its turn, one thread of each other process waits for it; all others give up.

    Args:
        file: Of the database; beside it lies the file that is locked.
    """

    def __init__(self, file: str) -> None:
        self._own, self._depth = threading.RLock(), 0
        self._handle = os.open(f"{file}-turn", os.O_RDWR | os.O_CREAT, 0o600)
        finalize(self, os.close, self._handle)

    def __enter__(self) -> None:
        if not self._own.acquire(timeout=BUSY_SECONDS):
            raise LedgerError(f"the database does not serve: somebody has been writing for {BUSY_SECONDS:.0f} seconds")
        self._depth += 1
        if self._depth == 1:
            fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._own.release()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One state of the database, whoever writes meanwhile."""
    with refusing(), engine.connect() as connection:
        level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        with (held := connection.execution_options(reads=True, **level)).begin():
            yield held


def take_turns(connection: Connection) -> None:
    """Wait until nobody else makes or opens the tables; SQLite has its writers wait already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7319483)"))


def migrate(engine: Engine) -> None:
    """Bring the tables to what this version needs; what is there is kept."""
    config = _config()
    with writing(engine) as connection:
        take_turns(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check_version(engine: Engine) -> None:
    """Refuse a database whose tables are not those of this version.

    Raises:
        LedgerError: They are older, newer, or not there.
    """
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    with reading(engine) as connection:
        found = MigrationContext.configure(connection, opts={"version_table": VERSION}).get_current_revision()
    if found != wanted:
        raise LedgerError(
            f"the tables are of version {found}, this is {wanted}; use the version of unweave that wrote them, or "
            "open them once with Ledger.at, which brings older ones up to date"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def scrub(engine: Engine) -> None:
    """Leave no bytes of deleted rows in the files of the database, as far as it is in its hands.

    SQLite overwrites what it deletes, but not what it moved within a page before: the keys that remain are written
    anew. PostgreSQL keeps what was deleted in its log, and in its pages until they are used again.

    Raises:
        LedgerError: Somebody read from it for so long that its log could not be emptied.
    """
    if engine.dialect.name != "sqlite":
        with refusing(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"SET lock_timeout = '{BUSY_SECONDS:.0f}s'"))
            try:
                connection.execute(text("VACUUM FULL subject_keys"))
            finally:
                connection.execute(text("RESET lock_timeout"))
        return
    with refusing():
        raw = engine.raw_connection()  # what follows begins its own transactions
    try:
        cursor = raw.cursor()
        with _turn(engine):
            for statement in REWRITE:
                cursor.execute(statement)
        until, busy = time.monotonic() + BUSY_SECONDS, 1
        cursor.execute("PRAGMA busy_timeout=20")  # it holds writers up while it waits for readers
        while busy and time.monotonic() < until:
            with _turn(engine):
                busy = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            time.sleep(0.1 if busy else 0.0)
        cursor.execute(f"PRAGMA busy_timeout={round(1000 * BUSY_SECONDS)}")
    except sqlite3.Error as error:
        raw.invalidate()
        raise LedgerError(f"what was deleted could not be overwritten: {error}; scrub again") from error
    finally:
        raw.close()
    if busy:
        raise LedgerError(
            f"the log of the database still holds what was deleted: somebody read from it for {BUSY_SECONDS:.0f} "
            "seconds; end what reads from it, and scrub again"
        )

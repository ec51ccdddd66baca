"""The database of a service: SQLite in one file, or PostgreSQL; its tables, and how they come to be as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import (
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
    text,
)

from unweave.errors import LedgerError

__all__ = ["METADATA", "connect", "entries", "ledger", "migrate", "reading", "scrub", "subject_keys", "writing"]

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

BUSY_SECONDS = 30.0
"""How long a writer waits for another one (SQLite)."""


def connect(url: str) -> Engine:
    """An engine; SQLite writes ahead to a log, waits for other writers, and overwrites what it deletes."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    return engine


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
    """A transaction that is carried out whole or not at all."""
    with engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One state of the database, whoever writes meanwhile."""
    with engine.connect() as connection:
        level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        with (held := connection.execution_options(reads=True, **level)).begin():
            yield held


def migrate(engine: Engine) -> None:
    """Bring the tables to what this version needs; what is there is kept."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def scrub(engine: Engine) -> None:
    """Leave no bytes of deleted rows in the files of the database, as far as it is in its hands.

    Raises:
        LedgerError: Somebody read from it for so long that its log could not be emptied.
    """
    if engine.dialect.name != "sqlite":  # the rows of keys that were destroyed; there are few
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM FULL subject_keys"))
        return
    raw = engine.raw_connection()  # no transaction is to be open
    try:
        cursor = raw.cursor()
        busy, *_ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        raw.close()
    if busy:
        raise LedgerError(
            f"the log of the database still holds what was deleted: somebody read from it for {BUSY_SECONDS:.0f} "
            "seconds; end what reads from it, and scrub again"
        )

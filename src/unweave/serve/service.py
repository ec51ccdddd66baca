"""A service in a folder: its database, its ledger, and the secret that subjects are known by."""

import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, func, insert, select

from unweave.errors import ServiceError
from unweave.serve import database
from unweave.serve.ledger import Ledger, Signed
from unweave.serve.ledger.keys import read_private, write_private
from unweave.serve.tables import events, models

__all__ = ["Service", "iso", "now"]

SECRET, MODELS = "secret", "models"
LONG = 32
BELONGS = insert(events)


@dataclass(frozen=True)
class Service:
    """What its parts share.

    Attributes:
        home: Its folder.
        ledger: What happened.
        secret: Subjects, tokens and hooks are known by digests under it; it never leaves its file.
    """

    home: Path
    ledger: Ledger
    secret: bytes = field(repr=False)

    @classmethod
    def at(cls, home: str | Path, url: str | None = None, *, make: bool = True) -> Self:
        """The service of a folder.

        Args:
            home: Its folder: keys, versions of models, and its database where that is SQLite.
            url: Of another database.
            make: Whether to make what is missing, and to bring older tables up to date.

        Raises:
            LedgerError: Database or keys are missing, damaged, or do not belong together.
            ServiceError: The secret is missing though there was one.
        """
        home = Path(home)
        ledger = Ledger.at(home, url, make=make)
        try:
            return cls(home, ledger, _secret(ledger, home / "keys" / SECRET, make=make))
        except BaseException:
            ledger.engine.dispose()
            raise

    @property
    def engine(self) -> Engine:
        """Of the database."""
        return self.ledger.engine

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    def folder(self, name: str) -> Path:
        """Where the versions of a model lie."""
        return self.home / MODELS / name

    def digest(self, purpose: str, *parts: str) -> str:
        """A digest that nobody without the secret can compute or test a guess against."""
        message = "\0".join([purpose, *(f"{len(part)}:{part}" for part in parts)])
        return hmac.new(self.secret, message.encode(), hashlib.sha256).hexdigest()

    def tell(
        self,
        connection: Connection,
        request: str,
        kind: str,
        body: Mapping[str, Any],
        *,
        personal: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Signed:
        """An entry of the ledger that belongs to a request."""
        signed = self.ledger.append(connection, kind, {"request": request, **body}, personal=personal, key=key)
        return self._belongs(connection, request, signed)

    def forget_who(self, connection: Connection, request: str, key: str) -> None:
        """Destroy the key of what is personal in a request; :func:`unweave.serve.database.scrub` is to follow."""
        self._belongs(connection, request, self.ledger.destroy(connection, key))

    def _belongs(self, connection: Connection, request: str, signed: Signed) -> Signed:
        connection.execute(BELONGS, {"sequence": signed.entry.sequence, "request": request})
        return signed


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def iso(at: float) -> str:
    """A time as people and entries write it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _secret(ledger: Ledger, path: Path, *, make: bool) -> bytes:
    """The secret of a service; one is made as long as no subject is known by another."""
    if make and not os.path.lexists(path):
        with database.reading(ledger.engine) as connection:
            unused = not connection.scalar(select(func.count()).select_from(models))
        if unused:
            write_private(path, os.urandom(LONG).hex().encode())
    try:
        found = bytes.fromhex(read_private(path).decode())
    except ValueError:
        found = b""
    if len(found) != LONG:
        raise ServiceError(f"{path} is damaged; restore it from a backup")
    return found

"""Who may do what: tokens with scopes, of which only a digest is kept."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, func, insert, select, update

from unweave._core.document import canonical_json
from unweave.errors import ServiceError
from unweave.serve import database
from unweave.serve.service import Service, now
from unweave.serve.tables import models as known_models, tokens

__all__ = ["SCOPES", "Bearer", "bearer_of", "first_token", "listed", "new_token", "revoke"]

SCOPES = {
    "submit": "submit requests, and look at those that this token submitted",
    "read": "look at models, requests, receipts, reports, versions and the ledger",
    "operate": "approve, refuse and try again; download evidence; move between versions; see who asked",
    "administer": "register models, change policies, hooks and tokens",
}
"""What a token may do, in words; none of them includes another."""

PREFIX = "unweave_"
NAME = 64


@dataclass(frozen=True)
class Bearer:
    """Who sends a request.

    Attributes:
        id: Of the token.
        name: What its owner called it.
        scopes: What it may do.
        models: With which models; ``None`` for all.
    """

    id: str
    name: str
    scopes: frozenset[str]
    models: frozenset[str] | None

    def may(self, *scopes: str) -> bool:
        """Whether it has one of these scopes."""
        return any(scope in self.scopes for scope in scopes)

    def sees(self, model: str) -> bool:
        """Whether it is for a model."""
        return self.models is None or model in self.models


def new_token(
    service: Service,
    name: str,
    scopes: Collection[str],
    *,
    models: Collection[str] | None = None,
    seconds: float | None = None,
) -> tuple[str, str]:
    """A new token; its id, and the token itself, which is shown this once.

    Args:
        service: Where.
        name: Whom it is for.
        scopes: Some of :data:`SCOPES`.
        models: Names of models it is for; all by default.
        seconds: After which it no longer serves; never by default.
    """
    strange = sorted(set(scopes) - set(SCOPES))
    if strange or not scopes:
        raise ServiceError(f"a token has some of the scopes {', '.join(SCOPES)}; got {sorted(scopes)}", status=422)
    if not (isinstance(name, str) and 0 < len(name) <= NAME and name.isprintable()):
        raise ServiceError(f"a token needs a name of up to {NAME} printable characters", status=422)
    if seconds is not None and not 0 < seconds < 100 * 366 * 86400:
        raise ServiceError("a token expires after a time above 0, or never", status=422)
    if models is not None and (not models or "administer" in scopes):
        raise ServiceError("a token is for all models or for some; one that administers is for all", status=422)
    token, made = PREFIX + secrets.token_urlsafe(32), now()
    own = None if models is None else canonical_json(sorted(models))
    row = {
        "id": uuid4().hex,
        "name": name,
        "hash": _hash(token),
        "scopes": canonical_json(sorted(scopes)),
        "models": own,
    }
    with database.writing(service.engine) as connection:
        there = set(connection.scalars(select(known_models.c.name)))
        if lost := sorted(set(models or ()) - there):
            raise ServiceError(f"there is no model {lost[0]!r}", status=404)
        expires = None if seconds is None else made + seconds
        connection.execute(insert(tokens).values(**row, made=made, expires=expires, revoked=False))
        service.ledger.append(connection, "token made", {"token": row["id"], "scopes": sorted(scopes)})
    return str(row["id"]), token


def first_token(service: Service) -> str | None:
    """The token of whoever starts a service for the first time; ``None`` where there is one already."""
    with database.reading(service.engine) as connection:
        if connection.scalar(select(func.count()).select_from(tokens)):
            return None
    return new_token(service, "first", list(SCOPES))[1]


def bearer_of(service: Service, token: str) -> Bearer | None:
    """Whose token it is; ``None`` for one that is unknown, expired or revoked."""
    digest = _hash(token)
    with database.reading(service.engine) as connection:
        row = connection.execute(select(tokens).where(tokens.c.hash == digest)).one_or_none()
    if row is None or not hmac.compare_digest(row.hash, digest):
        return None
    if row.revoked or (row.expires is not None and row.expires <= now()):
        return None
    models = None if row.models is None else frozenset(json.loads(row.models))
    return Bearer(row.id, row.name, frozenset(json.loads(row.scopes)), models)


def revoke(service: Service, name: str) -> None:
    """Let a token serve no more."""
    with database.writing(service.engine) as connection:
        gone = connection.execute(
            update(tokens).where(tokens.c.id == name, tokens.c.revoked.is_(False)).values(revoked=True)
        )
        if gone.rowcount != 1:
            raise ServiceError(f"there is no token {name!r} that could be revoked", status=404)
        service.ledger.append(connection, "token revoked", {"token": name})


def listed(service: Service) -> Sequence[Row[Any]]:
    """All tokens, without what would let anybody use them."""
    columns = [column for column in tokens.c if column.name != "hash"]
    with database.reading(service.engine) as connection:
        return connection.execute(select(*columns).order_by(tokens.c.made)).all()


def _hash(token: str) -> str:
    """Tokens have 256 bits of chance, so that a plain digest cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()

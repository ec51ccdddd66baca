"""What a token lets somebody see; the rest looks as if it were not there."""

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from unweave.errors import ServiceError
from unweave.serve import queue
from unweave.serve.registry import find
from unweave.serve.tables import documents, models, requests
from unweave.serve.tokens import Bearer

__all__ = ["NAME", "counts", "listed", "model_of", "models_of", "paper_of", "request_of"]

NAME, DIGEST, MODEL = (re.compile(form) for form in (r"[0-9a-f]{32}", r"[0-9a-f]{64}", r"[a-z0-9][a-z0-9-]{0,63}"))


def models_of(connection: Connection, bearer: Bearer) -> list[Row[Any]]:
    """The models that somebody's token is for."""
    rows = connection.execute(select(models).order_by(models.c.name)).all()
    return [row for row in rows if bearer.sees(row.name)]


def model_of(connection: Connection, bearer: Bearer, name: str) -> Row[Any]:
    """One of them."""
    if not MODEL.fullmatch(name) or not bearer.sees(name):
        raise ServiceError(f"there is no model {name!r}", status=404)
    return find(connection, name)


def request_of(connection: Connection, bearer: Bearer, name: str, *also: str) -> Row[Any]:
    """A request that somebody may look at: their own to submit, and any to read or with one of some other scopes."""
    missing = ServiceError(f"there is no request {name!r}", status=404)
    if not NAME.fullmatch(name):
        raise missing
    row = queue.one(connection, name)
    own = bearer.may("submit") and row.token == bearer.id
    if not bearer.sees(row.model) or not (own or bearer.may("read", *also)):
        raise missing
    return row


def listed(
    connection: Connection, bearer: Bearer, *, model: str | None, state: str | None, before: int | None, limit: int
) -> Sequence[Row[Any]]:
    """The requests that somebody may look at, the newest first."""
    token = None if bearer.may("read") else bearer.id
    return queue.listed(
        connection, model=model, state=state, within=bearer.models, token=token, before=before, limit=limit
    )


def counts(connection: Connection, bearer: Bearer) -> dict[str, int]:
    """How many of them there are, by state."""
    query = select(requests.c.state, func.count()).group_by(requests.c.state)
    if bearer.models is not None:
        query = query.where(requests.c.model.in_(sorted(bearer.models)))
    if not bearer.may("read"):
        query = query.where(requests.c.token == bearer.id)
    found = {row[0]: row[1] for row in connection.execute(query)}
    return {state: found[state] for state in queue.STATES if state in found}


def paper_of(connection: Connection, bearer: Bearer, digest: str, kind: str) -> Row[Any]:
    """A receipt or a report of an audit."""
    row = None
    if DIGEST.fullmatch(digest):
        chosen = documents.c.digest == digest, documents.c.kind == kind
        row = connection.execute(select(documents).where(*chosen)).one_or_none()
    if row is None or not bearer.sees(row.model):
        raise ServiceError(f"there is no document {digest!r}", status=404)
    return row

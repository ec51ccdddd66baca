"""Requests from people: how one comes in, what becomes of it, who decides on it, and how it is shown."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from unweave._core.document import canonical_json
from unweave.errors import LedgerError, ServiceError
from unweave.serve import database
from unweave.serve.database import entries
from unweave.serve.ledger import Entry
from unweave.serve.policy import Policy
from unweave.serve.registry import find
from unweave.serve.service import Service, now
from unweave.serve.subjects import Asked, Resolved, resolve
from unweave.serve.tables import events, requests

__all__ = [
    "ENDED",
    "OPEN",
    "STATES",
    "Answer",
    "approve",
    "counts",
    "end",
    "is_change",
    "listed",
    "move",
    "oldest",
    "one",
    "personal_of",
    "refuse",
    "retry",
    "submit",
    "timeline",
]

STATES = {
    "received": "waits to be screened",
    "waiting": "waits for an approval: it would do more damage than random requests like it",
    "queued": "waits to be carried out",
    "applied": "is carried out; its version is current",
    "verified": "is carried out, and was checked",
    "audited": "is carried out, checked, and audited where that was asked for",
    "erased": "is carried out; who asked is no longer known",
    "done": "is done",
    "refused": "was refused",
    "aside": "could not be carried out, and waits for a decision",
}
"""What a request is, in words."""

ENDED = ("done", "refused")
OPEN = tuple(state for state in STATES if state not in ENDED)


@dataclass(frozen=True)
class Answer:
    """What a submission is answered.

    Attributes:
        row: The request.
        gone: Ids of it that earlier requests had taken already.
        new: Whether it was not submitted before with the same key.
    """

    row: Row[Any]
    gone: tuple[str, ...]
    new: bool


def submit(
    service: Service, model: str, document: Any, *, token: str | None = None, idempotency: str | None = None
) -> Answer:
    """Take a request; it is in the ledger when this returns.

    Args:
        service: Where.
        model: Which model is to forget.
        document: What, as :class:`unweave.serve.subjects.Asked` reads it.
        token: Id of the token of who submits it.
        idempotency: A key of theirs: the same one again is answered with the same request.

    Raises:
        ServiceError: No such model; no request; ids that were never there; or the key was used for another request.
    """
    asked = Asked.of(document)
    meant = service.digest("request", model, canonical_json(asked.to_dict()))
    key = None if idempotency is None else service.digest("idempotency", token or "", idempotency)
    try:
        with database.writing(service.engine) as connection:
            known = None if key is None else _by_key(connection, key)
            if known is not None:
                return _again(known, meant)
            row = find(connection, model)
            columns = json.loads(row.columns)
            if asked.altering is not None:
                Policy.read(row.policy).for_changes()
            return _enter(
                service,
                connection,
                model,
                asked,
                resolve(service, connection, model, asked, columns),
                token=token,
                key=key,
                meant=meant,
            )
    except LedgerError as error:
        if not isinstance(error.__cause__, IntegrityError) or key is None:
            raise
    with database.reading(service.engine) as connection:  # another process took the same key at the same time
        known = _by_key(connection, key)
    if known is None:
        raise ServiceError("another process entered a request at the same time; send it again", status=503)
    return _again(known, meant)


def _by_key(connection: Connection, key: str) -> Row[Any] | None:
    return connection.execute(select(requests).where(requests.c.idempotency == key)).one_or_none()


def _again(known: Row[Any], meant: str) -> Answer:
    if json.loads(known.what)["meant"] != meant:
        raise ServiceError("this Idempotency-Key was used for another request; choose a new one", status=422)
    return Answer(known, (), new=False)


def _enter(
    service: Service,
    connection: Connection,
    model: str,
    asked: Asked,
    found: Resolved,
    *,
    token: str | None,
    key: str | None,
    meant: str,
) -> Answer:
    name = uuid4().hex
    body: dict[str, Any] = {"model": model, "counts": found.counts(), "gone": len(found.gone)}
    what = {"counts": found.counts(), "gone": len(found.gone), "meant": meant}
    if found.change is not None:
        body["change"] = what["change"] = True
    sealed: dict[str, Any] = {}
    if not found.empty:
        sealed["key"] = service.ledger.new_subject_key(connection)
        sealed["personal"] = {"asked": asked.to_dict(), "content": found.content()}
    signed = service.tell(connection, name, "request received", body, **sealed)
    values = {
        "id": name,
        "model": model,
        "state": "done" if found.empty else "received",
        "received": signed.entry.sequence,
        "at": now(),
        "what": canonical_json(what),
        "token": token,
        "idempotency": key,
        "key": sealed.get("key"),
        "attempts": 0,
        "not_before": 0.0,
        "alone": False,
        "reason": "earlier requests had taken all of it already" if found.empty else None,
    }
    connection.execute(insert(requests).values(**values))
    if found.empty:
        service.tell(connection, name, "request done", {"model": model, "outcome": values["reason"]})
    return Answer(one(connection, name), found.gone, new=True)


def one(connection: Connection, name: str) -> Row[Any]:
    """The row of a request."""
    row = connection.execute(select(requests).where(requests.c.id == name)).one_or_none()
    if row is None:
        raise ServiceError(f"there is no request {name!r}", status=404)
    return row


def is_change(row: Row[Any]) -> bool:
    """Whether a request adds or corrects something; such a one is carried out by itself."""
    return bool(json.loads(row.what).get("change"))


def personal_of(service: Service, connection: Connection, row: Row[Any]) -> dict[str, Any] | None:
    """What was asked, in the owner's words and in numbers, as long as that is known."""
    if row.key is None:
        return None
    return service.ledger.personal(connection, row.received)


def move(connection: Connection, row: Row[Any], state: str, **values: Any) -> None:
    """Take a request from the state it was read in to another one.

    Raises:
        ServiceError: Somebody else has moved it since.
    """
    moved = connection.execute(
        update(requests).where(requests.c.id == row.id, requests.c.state == row.state).values(state=state, **values)
    )
    if moved.rowcount != 1:
        raise ServiceError(f"request {row.id} is no longer {row.state}; look again")


def approve(service: Service, name: str, *, by: str) -> Row[Any]:
    """Let a request that was found abnormal be carried out all the same."""
    with database.writing(service.engine) as connection:
        row = _in(connection, name, ("waiting",), "approved")
        move(connection, row, "queued")
        service.tell(connection, name, "request approved", {"model": row.model, "by": by})
        return one(connection, name)


def refuse(service: Service, name: str, *, by: str, reason: str) -> Row[Any]:
    """Refuse a request for good; what is personal in it goes."""
    with database.writing(service.engine) as connection:
        row = _in(connection, name, ("received", "waiting", "queued", "aside"), "refused")
        if row.batch is not None:
            raise ServiceError("a worker is carrying it out; look again in a while")
        end(service, connection, row, reason, by)
        return one(connection, name)


def end(service: Service, connection: Connection, row: Row[Any], reason: str, by: str) -> None:
    """Refuse a request, in the transaction of whoever found out that it must be."""
    move(connection, row, "refused", reason=reason, key=None, batch=None)
    service.tell(connection, row.id, "request refused", {"model": row.model, "by": by, "reason": reason})
    if row.key is not None:
        service.forget_who(connection, row.id, row.key)


def retry(service: Service, name: str, *, by: str) -> Row[Any]:
    """Try a request that was set aside once more."""
    with database.writing(service.engine) as connection:
        row = _in(connection, name, ("aside",), "tried again")
        move(connection, row, "queued", attempts=0, not_before=0.0, reason=None)
        service.tell(connection, name, "request retried", {"model": row.model, "by": by})
        return one(connection, name)


def _in(connection: Connection, name: str, states: Collection[str], what: str) -> Row[Any]:
    row = one(connection, name)
    if row.state not in states:
        raise ServiceError(f"request {name} {STATES[row.state]}; only one that is {' or '.join(states)} can be {what}")
    return row


def listed(
    connection: Connection,
    *,
    model: str | None = None,
    state: str | None = None,
    within: Collection[str] | None = None,
    token: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Row[Any]]:
    """Requests, the newest first.

    Args:
        connection: To read by.
        model: Of one model.
        state: In one state; ``open`` for all that have not ended.
        within: Of these models only.
        token: Submitted with this token only.
        before: Older than the one whose entry this is.
        limit: At most so many.
    """
    query = select(requests).order_by(requests.c.received.desc()).limit(limit)
    if model is not None:
        query = query.where(requests.c.model == model)
    if within is not None:
        query = query.where(requests.c.model.in_(list(within)))
    if token is not None:
        query = query.where(requests.c.token == token)
    if state is not None:
        query = query.where(requests.c.state.in_(OPEN) if state == "open" else requests.c.state == state)
    if before is not None:
        query = query.where(requests.c.received < before)
    return list(connection.execute(query).all())


def counts(connection: Connection, within: Collection[str] | None = None) -> dict[str, dict[str, int]]:
    """How many requests each model has, by state."""
    query = select(requests.c.model, requests.c.state, func.count()).group_by(requests.c.model, requests.c.state)
    if within is not None:
        query = query.where(requests.c.model.in_(list(within)))
    found: dict[str, dict[str, int]] = {}
    for model, state, count in connection.execute(query):
        found.setdefault(model, {})[state] = count
    return found


def timeline(connection: Connection, name: str) -> list[Entry]:
    """What happened to a request, from the ledger."""
    query = select(entries.c.text).join(events, events.c.sequence == entries.c.sequence)
    rows = connection.execute(query.where(events.c.request == name).order_by(entries.c.sequence))
    return [Entry.read(row.text) for row in rows]


def oldest(connection: Connection) -> Mapping[str, float]:
    """When the oldest request of each model came in that has not ended."""
    query = select(requests.c.model, func.min(requests.c.at)).where(requests.c.state.in_(OPEN))
    return {row[0]: row[1] for row in connection.execute(query.group_by(requests.c.model))}

"""Requests from people: submitted, listed, decided on, and what there is to show for them."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from sqlalchemy import Connection, Row, select
from starlette.responses import Response

from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.api.access import V1, Here, Needs, Operator, Reader, reach
from unweave.serve.api.answers import Paper, Papers, RequestAnswer, Requests, Submitted, Told, Whole
from unweave.serve.api.documents import Asking, Key, Listing, ModelName, Reason
from unweave.serve.api.problems import responses
from unweave.serve.evidence import package
from unweave.serve.papers import read, read_all
from unweave.serve.policy import Policy
from unweave.serve.queue import ENDED, STATES
from unweave.serve.registry import find
from unweave.serve.service import Service, iso, now
from unweave.serve.tables import models
from unweave.serve.tokens import Bearer

__all__ = ["router"]

router = APIRouter(prefix=V1, tags=["requests"], responses=responses())

Submitter = Annotated[Bearer, Depends(Needs("submit"))]
Onlooker = Annotated[Bearer, Depends(Needs("read", "submit"))]
Idempotency = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern="^[ -~]+$")]
ZIP = "application/zip"
PUBLIC = ("kind", "status", "verdict", "grade", "method")
"""What anybody may see of a receipt."""


@router.post("/models/{model}/requests", status_code=202, responses={200: {"model": Submitted}})
def submit_request(
    service: Here, bearer: Submitter, model: ModelName, body: Asking, response: Response, key: Idempotency = None
) -> Submitted:
    """Take a request: it is in the ledger when this is answered, and carried out later (202), or was already (200)."""
    reach(bearer, model)
    document = {name: value for name, value in body.model_dump(exclude_none=True).items() if value}
    answer = queue.submit(service, model, document, token=bearer.id, idempotency=key)
    response.headers["Location"] = f"{V1}/requests/{answer.row.id}"
    response.status_code = 202 if answer.new and answer.row.state not in ENDED else 200
    with database.reading(service.engine) as connection:
        policy = Policy.read(find(connection, model).policy)
    return Submitted(**_summary(answer.row, policy), gone=list(answer.gone), new=answer.new)


@router.get("/requests")
def list_requests(service: Here, bearer: Onlooker, wanted: Annotated[Listing, Query()]) -> Requests:
    """Requests, the newest first; to a token that only submits its own."""
    with database.reading(service.engine) as connection:
        if wanted.model is not None:
            reach(bearer, wanted.model)
            find(connection, wanted.model)
        rows = queue.listed(
            connection,
            model=wanted.model,
            state=wanted.state,
            within=bearer.models,
            token=None if bearer.may("read") else bearer.id,
            before=wanted.before,
            limit=wanted.limit + 1,
        )
        names = {row.model for row in rows}
        found = connection.execute(select(models.c.name, models.c.policy).where(models.c.name.in_(names)))
        policies = {row.name: Policy.read(row.policy) for row in found}
    items = [RequestAnswer(**_summary(row, policies[row.model])) for row in rows[: wanted.limit]]
    return Requests(items=items, next=str(rows[wanted.limit - 1].received) if len(rows) > wanted.limit else None)


@router.get("/requests/{request}")
def show_request(service: Here, bearer: Onlooker, request: Key) -> Whole:
    """All that is known of a request; what was asked to operators, as long as it is known."""
    with database.reading(service.engine) as connection:
        row = _visible(connection, bearer, request)
        told = queue.timeline(connection, request)
        personal = queue.personal_of(service, connection, row) if bearer.may("operate") else None
        policy = Policy.read(find(connection, row.model).policy)
    return Whole(
        **_summary(row, policy),
        timeline=[Told(sequence=each.sequence, at=each.at, kind=each.kind, body=dict(each.body)) for each in told],
        asked=None if personal is None else personal["asked"],
    )


@router.post("/requests/{request}/approve")
def approve_request(service: Here, bearer: Operator, request: Key) -> RequestAnswer:
    """Let a request that waits for an approval be carried out."""
    _reach_request(service, bearer, request)
    return _answer(service, queue.approve(service, request, by=bearer.id))


@router.post("/requests/{request}/refuse")
def refuse_request(service: Here, bearer: Operator, request: Key, body: Reason) -> RequestAnswer:
    """Refuse a request for good; the reason stays, what is personal goes."""
    _reach_request(service, bearer, request)
    return _answer(service, queue.refuse(service, request, by=bearer.id, reason=body.reason))


@router.post("/requests/{request}/retry")
def retry_request(service: Here, bearer: Operator, request: Key) -> RequestAnswer:
    """Try a request that was set aside once more."""
    _reach_request(service, bearer, request)
    return _answer(service, queue.retry(service, request, by=bearer.id))


@router.get("/requests/{request}/receipts")
def list_receipts(service: Here, bearer: Onlooker, request: Key) -> Papers:
    """What was done for a request, how well and at what cost."""
    with database.reading(service.engine) as connection:
        _visible(connection, bearer, request)
        digests = _named(connection, request, "request applied", "receipts") or []
        found = {digest: json.loads(text) for digest, text in read_all(connection, digests).items()}
    if not bearer.may("read"):  # a receipt is of a batch, and has numbers of others in it
        found = {digest: {key: receipt[key] for key in PUBLIC if key in receipt} for digest, receipt in found.items()}
    return Papers(items=[Paper(digest=digest, receipt=receipt) for digest, receipt in found.items()])


@router.get("/requests/{request}/audit")
def show_audit(service: Here, bearer: Reader, request: Key) -> dict[str, Any]:
    """The report of the audit of the version that a request led to."""
    with database.reading(service.engine) as connection:
        _visible(connection, bearer, request)
        digest = _named(connection, request, "request audited", "report")
        if digest is None:
            raise ServiceError("there is no report of an audit for this request", status=404)
        report: dict[str, Any] = json.loads(read(connection, digest))
    return report


@router.get(
    "/requests/{request}/evidence",
    response_class=Response,
    responses={200: {"description": "A zip", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}}},
)
def download_evidence(service: Here, bearer: Operator, request: Key) -> Response:
    """A file that anybody can check offline: what was done, when, and by which receipts."""
    _reach_request(service, bearer, request)
    if bearer.models is not None:
        raise ServiceError("evidence has entries of the whole ledger: it needs a token for all models", status=403)
    headers = {"Content-Disposition": f'attachment; filename="evidence-{request}.zip"'}
    return Response(package(service, request), headers=headers, media_type=ZIP)


def _visible(connection: Connection, bearer: Bearer, name: str) -> Row[Any]:
    """A request that a token may look at; any other is not there."""
    row = queue.one(connection, name)
    if not bearer.sees(row.model) or not (bearer.may("read") or row.token == bearer.id):
        raise ServiceError(f"there is no request {name!r}", status=404)
    return row


def _reach_request(service: Service, bearer: Bearer, name: str) -> None:
    with database.reading(service.engine) as connection:
        if not bearer.sees(queue.one(connection, name).model):
            raise ServiceError(f"there is no request {name!r}", status=404)


def _named(connection: Connection, name: str, kind: str, key: str) -> Any:
    """What the last entry of a kind says of a request."""
    return next((each.body.get(key) for each in reversed(queue.timeline(connection, name)) if each.kind == kind), None)


def _answer(service: Service, row: Row[Any]) -> RequestAnswer:
    with database.reading(service.engine) as connection:
        return RequestAnswer(**_summary(row, Policy.read(find(connection, row.model).policy)))


def _summary(row: Row[Any], policy: Policy) -> dict[str, Any]:
    at, due = now(), row.at + policy.deadline
    return {
        "id": row.id,
        "model": row.model,
        "state": row.state,
        "words": STATES[row.state],
        "at": iso(row.at),
        "age": round(at - row.at, 3),
        "deadline": iso(due),
        "left": None if row.state in ENDED else round(due - at, 3),
        "counts": json.loads(row.what)["counts"],
        "version": row.version,
        "reason": row.reason,
        "token": row.token,
    }

"""The ledger: where it ends, what is in it, and whether it is in order."""

from dataclasses import asdict

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from unweave.errors import LedgerError, ServiceError
from unweave.serve import database
from unweave.serve.api.access import V1, Here, Operator, Reader
from unweave.serve.api.answers import Checkpointed, Entries, EntryAnswer, LedgerAnswer, Verification
from unweave.serve.api.documents import Limit, Sequence
from unweave.serve.api.problems import responses
from unweave.serve.database import entries
from unweave.serve.ledger import Entry, fingerprint

__all__ = ["router"]

router = APIRouter(prefix=f"{V1}/ledger", tags=["ledger"], responses=responses())


@router.get("")
def show_ledger(service: Here, _: Reader) -> LedgerAnswer:
    """Where the ledger ends now."""
    point = service.ledger.checkpoint()
    with database.reading(service.engine) as connection:
        first = Entry.read(connection.scalar(select(entries.c.text).where(entries.c.sequence == 1)) or "")
    return LedgerAnswer(
        id=point.ledger,
        entries=point.sequence,
        head=point.digest,
        first_key=fingerprint(first.body["public_key"]),
        checkpoint=point.text,
    )


@router.get("/entries")
def list_entries(service: Here, bearer: Reader, after: Sequence = 0, limit: Limit = 50) -> Entries:
    """Entries in their order, as they were signed, without what is personal; they tell of all models."""
    if bearer.models is not None:
        raise ServiceError("the entries tell of all models, and this token is for some", status=403)
    query = select(entries.c.text, entries.c.signature).where(entries.c.sequence > after).order_by(entries.c.sequence)
    with database.reading(service.engine) as connection:
        rows = connection.execute(query.limit(limit + 1)).all()
    found = [(Entry.read(row.text), row.signature) for row in rows[:limit]]
    items = [EntryAnswer(entry=asdict(entry), signature=signature) for entry, signature in found]
    return Entries(items=items, next=str(found[-1][0].sequence) if len(rows) > limit else None)


@router.get("/checkpoint", response_model=Checkpointed)
def show_checkpoint(service: Here, _: Reader) -> Response:
    """What to keep elsewhere, byte for byte, so that a chain that is rewritten is noticed."""
    return Response(service.ledger.checkpoint().text, media_type="application/json")


@router.post("/verify")
def verify_ledger(service: Here, _: Operator) -> Verification:
    """Go through all of it."""
    try:
        found = service.ledger.verify()
    except LedgerError as error:
        if isinstance(error.__cause__, SQLAlchemyError):
            raise
        return Verification(in_order=False, wrong=str(error))
    return Verification(in_order=True, entries=found.entries, head=found.head, first_key=found.first_key)

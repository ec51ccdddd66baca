"""The ledger: what happened, whether it was changed, and a copy to take away."""

import tempfile
from pathlib import Path

from sqlalchemy import select
from starlette.responses import Response

from unweave.errors import LedgerError, ServiceError
from unweave.serve import database
from unweave.serve.database import entries
from unweave.serve.ledger import Entry, export
from unweave.serve.page import words
from unweave.serve.page.frame import Frame
from unweave.serve.page.session import Visit
from unweave.serve.tokens import SCOPES, Bearer

__all__ = ["LedgerPages"]

AT_ONCE = 50
"""Entries on a page."""


class LedgerPages:
    """Pages of the ledger; it tells of all models, so they are for tokens that are for all models."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.service = frame, frame.service

    def show(self, visit: Visit, *, checked: tuple[bool, str] | None = None) -> Response:
        """Entries, the newest first."""
        _for_all(visit.who)
        before = None if checked else visit.before()
        query = select(entries.c.text).order_by(entries.c.sequence.desc()).limit(AT_ONCE + 1)
        if before is not None:
            query = query.where(entries.c.sequence < before)
        with database.reading(self.service.engine) as connection:
            found = [Entry.read(row.text) for row in connection.execute(query)]
        return self.frame.page(
            visit,
            "ledger.html",
            entries=[(entry, *words.told(entry)) for entry in found[:AT_ONCE]],
            older=found[AT_ONCE - 1].sequence if len(found) > AT_ONCE else None,
            checkpoint=self.service.ledger.checkpoint().text,
            checked=checked,
        )

    def check(self, visit: Visit) -> Response:
        """Go through all of it."""
        if not visit.who.may("read"):
            raise ServiceError(f"this needs a token that may {SCOPES['read']}", status=403)
        _for_all(visit.who)
        try:
            found = self.service.ledger.verify()
            said = f"All {found.entries:,} entries are in order. The ledger was opened with the key {found.first_key}."
            return self.show(visit, checked=(True, said))
        except LedgerError as error:
            return self.show(visit, checked=(False, words.sentence(str(error))))

    def export(self, visit: Visit) -> Response:
        """All of it as a file."""
        _for_all(visit.who)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "ledger.jsonl"
            point = export(self.service.ledger, place)
            content = place.read_bytes()
        held = {"Content-Disposition": f'attachment; filename="ledger-{point.sequence}.jsonl"'}
        return Response(content, media_type="application/jsonl", headers=held)


def _for_all(bearer: Bearer) -> None:
    if bearer.models is not None:
        raise ServiceError("the ledger tells of all models; this needs a token that is for all of them", status=403)

"""The queue, and one request: what became of it, and what can be decided on it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row
from starlette.responses import Response

from unweave.errors import LedgerError, ServiceError, UnweaveError
from unweave.receipt.lines import DETAILS
from unweave.receipt.receipt import Receipt
from unweave.receipt.words import GRADES
from unweave.serve import database, papers, queue, tokens
from unweave.serve.evidence import package
from unweave.serve.ledger import Entry
from unweave.serve.page import reach, words
from unweave.serve.page.frame import Frame, goto
from unweave.serve.page.session import Visit
from unweave.serve.policy import Policy
from unweave.serve.service import now

__all__ = ["SEE", "Requests"]

AT_ONCE = 50
"""Requests on a page."""

REASON = 500
"""Characters of a reason."""

SEE = ("read", "submit")
"""Scopes to look at requests with: at all of them, or at one's own."""

UNDER_WAY = ("received", "queued", "applied", "verified", "audited", "erased")
REFUSABLE = ("received", "waiting", "queued", "aside")


class Requests:
    """Pages of requests."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.service = frame, frame.service

    def queue(self, visit: Visit) -> Response:
        """What is open, by default, and what was."""
        bearer = visit.who
        if not bearer.may(*SEE):
            if bearer.may("administer"):
                return goto("/tokens")
            raise ServiceError("your token may decide on requests, but not look at them; ask for both", status=403)
        model, state = visit.asked("model"), visit.asked("state") or "open"
        if state not in ("open", "all", *queue.STATES):
            raise ServiceError(f"there is no state {state!r}", status=404)
        with database.reading(self.service.engine) as connection:
            models = reach.models_of(connection, bearer)
            if model is not None:
                reach.model_of(connection, bearer, model)
            chosen = None if state == "all" else state
            rows = reach.listed(connection, bearer, model=model, state=chosen, before=visit.before(), limit=AT_ONCE + 1)
            counts = reach.counts(connection, bearer)
        deadlines = {row.name: Policy.read(row.policy).deadline for row in models}
        return self.frame.page(
            visit,
            "queue.html",
            rows=[_row(row, deadlines) for row in rows[:AT_ONCE]],
            older=rows[AT_ONCE - 1].received if len(rows) > AT_ONCE else None,
            counts=[(state, words.SHORT[state], count) for state, count in counts.items()],
            open_count=sum(count for state, count in counts.items() if state in queue.OPEN),
            models=[row.name for row in models],
            states=words.SHORT,
            model=model,
            state=state,
            paged=visit.before() is not None,
        )

    def show(self, visit: Visit, name: str, *, wrong: str | None = None) -> Response:
        """One request."""
        bearer = visit.who
        with database.reading(self.service.engine) as connection:
            row = reach.request_of(connection, bearer, name)
            told = queue.timeline(connection, name)
            deadline = Policy.read(reach.model_of(connection, bearer, row.model).policy).deadline
            asked = self._asked(connection, row) if bearer.may("operate") else None
            receipts = _receipts(connection, told, whole=bearer.may("read"))
        names = {t.id: t.name for t in tokens.listed(self.service)} if bearer.may("operate") else {}
        under_way = row.state in UNDER_WAY and visit.asked("still") is None and wrong is None
        every = 3 if now() - row.at < 300 else 30
        return self.frame.page(
            visit,
            "request.html",
            status=409 if wrong else 200,
            refresh=every if under_way else None,
            row=_row(row, {row.model: deadline}),
            state=f"This request {queue.STATES[row.state]}.",
            timeline=[(entry, *words.told(entry, names)) for entry in told],
            found=next((e.body["statement"] for e in reversed(told) if e.kind == "request screened"), "nothing"),
            receipts=receipts,
            audits=[entry.body["report"] for entry in told if "report" in entry.body] if bearer.may("read") else [],
            asked=asked,
            submitter=names.get(row.token),
            every=every if under_way else None,
            moving=row.state in UNDER_WAY,
            refusable=row.state in REFUSABLE,
            ended=row.state in queue.ENDED,
            wrong=wrong,
        )

    def approve(self, visit: Visit, name: str) -> Response:
        """Carry it out all the same."""
        return self._decide(visit, name, queue.approve)

    def retry(self, visit: Visit, name: str) -> Response:
        """Try it once more."""
        return self._decide(visit, name, queue.retry)

    def _decide(self, visit: Visit, name: str, how: Any, **more: str) -> Response:
        self._seen(visit, name)
        try:
            how(self.service, name, by=visit.who.id, **more)
        except ServiceError as error:
            if error.status != 409:
                raise
            return self.show(visit, name, wrong=words.sentence(str(error)))
        return goto(f"/requests/{name}")

    def ask_why(self, visit: Visit, name: str) -> Response:
        """Ask for the reason of a refusal."""
        row = self._seen(visit, name)
        if row.state not in REFUSABLE:
            return self.show(
                visit, name, wrong=f"This request {queue.STATES[row.state]}; it cannot be refused any more."
            )
        return self.frame.page(visit, "refuse.html", row=row, reason="", wrong=None)

    def refuse(self, visit: Visit, name: str) -> Response:
        """Refuse it for good."""
        row, reason = self._seen(visit, name), visit.text("reason").strip()
        if not reason or len(reason) > REASON or not reason.replace("\n", " ").isprintable():
            wrong = f"Give a reason of up to {REASON} characters, in plain letters."
            return self.frame.page(visit, "refuse.html", status=422, row=row, reason=reason, wrong=wrong)
        return self._decide(visit, name, queue.refuse, reason=" ".join(reason.split()))

    def evidence(self, visit: Visit, name: str) -> Response:
        """Everything that proves what was done, in a file."""
        self._seen(visit, name)
        if visit.bearer is not None and visit.bearer.models is not None:
            raise ServiceError("Evidence has entries of the whole ledger: it needs a token for all models.", status=403)
        held = {"Content-Disposition": f'attachment; filename="evidence-{name}.zip"'}
        return Response(package(self.service, name), media_type="application/zip", headers=held)

    def audit(self, visit: Visit, digest: str) -> Response:
        """A report of an audit."""
        with database.reading(self.service.engine) as connection:
            row = reach.paper_of(connection, visit.who, digest, "audit")
            report = json.loads(papers.read(connection, digest))
        return self.frame.page(visit, "audit.html", row=row, report=report)

    def _seen(self, visit: Visit, name: str) -> Row[Any]:
        with database.reading(self.service.engine) as connection:
            return reach.request_of(connection, visit.who, name, "operate")

    def _asked(self, connection: Connection, row: Row[Any]) -> Mapping[str, Any] | None:
        """What was asked and for whom, as long as that is known."""
        try:
            found = queue.personal_of(self.service, connection, row)
        except LedgerError:  # its key was destroyed
            return None
        return None if found is None else found["asked"]


def _row(row: Row[Any], deadlines: Mapping[str, float]) -> dict[str, Any]:
    """A request for a table."""
    what = json.loads(row.what)
    late, age = words.due(row.at, deadlines[row.model], now()) if row.state in queue.OPEN else (False, "")
    return {
        "id": row.id,
        "model": row.model,
        "state": row.state,
        "short": words.SHORT[row.state],
        "at": row.at,
        "what": words.named(what["counts"], what["gone"]),
        "late": late,
        "age": age,
        "reason": row.reason,
        "doubt": bool(row.reason) and row.version is not None and row.state not in ("refused", "aside"),
        "version": row.version,
    }


def _receipts(connection: Connection, told: Sequence[Entry], *, whole: bool) -> list[dict[str, Any]]:
    """Receipts that entries name, as people read them; to those who may see no more their verdicts alone."""
    digests = dict.fromkeys(digest for entry in told for digest in entry.body.get("receipts", []))
    found = []
    for digest, text in papers.read_all(connection, list(digests)).items():
        document = json.loads(text)
        lines = _lines(text) if whole else []
        cut = next((place for place, line in enumerate(lines) if line[0] == DETAILS), len(lines))
        grade = str(document.get("grade"))
        found.append(
            {
                "digest": digest,
                "verdict": str(document.get("verdict")),
                "grade": GRADES.get(grade, grade),
                "time": str(document.get("time")),
                "lines": _grouped(lines[:cut]),
                "details": _grouped(lines[cut + 1 :]),
            }
        )
    return found


def _lines(text: str) -> list[tuple[str, str]]:
    """The lines of a receipt; none where it is of another version."""
    try:
        return Receipt.from_json(text).lines()
    except (UnweaveError, KeyError, TypeError, ValueError):
        return []


def _grouped(lines: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Lines under their titles; the verdict stands elsewhere."""
    found: list[tuple[str, list[str]]] = []
    for title, text in lines:
        if title or not found:
            found.append((title, [text]))
        else:
            found[-1][1].append(text)
    return [group for group in found if group[0] not in ("Verdict", "Issued")]

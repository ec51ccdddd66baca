"""Models and their versions: what made them, and how good they are."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select
from starlette.responses import Response

from unweave.receipt.words import GRADES
from unweave.serve import database, queue
from unweave.serve.page import reach, words
from unweave.serve.page.frame import Frame
from unweave.serve.page.plots import plot
from unweave.serve.page.session import Visit
from unweave.serve.policy import Policy
from unweave.serve.service import now
from unweave.serve.tables import documents, versions

__all__ = ["Models"]

AT_ONCE = 50
"""Versions on a page."""


class Models:
    """Pages of models."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.service = frame, frame.service

    def every(self, visit: Visit) -> Response:
        """All models that a token is for."""
        with database.reading(self.service.engine) as connection:
            rows = reach.models_of(connection, visit.who)
            counts = queue.counts(connection, [row.name for row in rows])
            oldest = queue.oldest(connection)
        found = []
        for row in rows:
            policy = Policy.read(row.policy)
            late, age = words.due(oldest[row.name], policy.deadline, now()) if row.name in oldest else (False, "")
            there = sum(count for state, count in counts.get(row.name, {}).items() if state in queue.OPEN)
            found.append({"row": row, "policy": policy, "open": there, "late": late, "age": age})
        return self.frame.page(visit, "models.html", models=found)

    def one(self, visit: Visit, name: str) -> Response:
        """One model: its versions, plots of them, and its policy."""
        before = visit.before()
        with database.reading(self.service.engine) as connection:
            row = reach.model_of(connection, visit.who, name)
            query = select(versions).where(versions.c.model == name).order_by(versions.c.number.desc())
            if before is not None:
                query = query.where(versions.c.number < before)
            rows = connection.execute(query.limit(AT_ONCE + 1)).all()
            older = rows[AT_ONCE - 1].number if len(rows) > AT_ONCE else None
            rows = rows[:AT_ONCE]
            numbers = [version.number for version in rows]
            closed = _closed(connection, name, numbers)
        shown = [_version(version, row, closed.get(version.number)) for version in rows]
        scores = [(v["number"], v["f1"], None, None) for v in reversed(shown) if v["f1"] is not None]
        gaps = [(number, *closed[number]) for number in sorted(closed)]
        policy = Policy.read(row.policy)
        return self.frame.page(
            visit,
            "model.html",
            row=row,
            versions=shown,
            older=older,
            f1=plot("F1 on the test nodes, by version", scores),
            gap=plot("Share of the gap to a retrained model believed closed, by version", gaps),
            policy=words.policy_words(policy),
        )


def _version(version: Any, model: Any, closed: tuple[float, float | None, float | None] | None) -> dict[str, Any]:
    """A version for the table."""
    facts = json.loads(version.facts)
    method = facts.get("method")
    count, grade = facts.get("requests"), facts.get("grade")
    state = "superseded"
    if version.number == model.current:
        state = "current"
    elif version.purged:
        state = "purged: its files are gone"
    elif version.forgot < model.forgot:
        state = "superseded: it remembers what was deleted since, and is never served again"
    f1 = facts.get("f1")
    return {
        "number": version.number,
        "at": version.at,
        "made": "training" if count is None else f"{words.amount(count, 'request')} by {_method(method)}",
        "grade": GRADES.get(str(grade), "") if grade else "",
        "f1": float(f1) if isinstance(f1, int | float) else None,
        "closed": closed,
        "state": state,
        "weights": version.weights,
    }


def _method(method: Any) -> str:
    return str(method.get("name")) if isinstance(method, Mapping) else str(method)


def _closed(
    connection: Connection, name: str, numbers: list[int]
) -> dict[int, tuple[float, float | None, float | None]]:
    """Which share of the gap to a retrained model each version is believed to have closed, by its receipts."""
    query = select(documents.c.version, documents.c.text).where(
        documents.c.model == name, documents.c.kind == "receipt", documents.c.version.in_(numbers)
    )
    found = {}
    for row in connection.execute(query):
        estimate = (json.loads(row.text).get("ladder") or {}).get("estimate")
        if estimate and isinstance(estimate.get("closed"), int | float):
            found[row.version] = (float(estimate["closed"]), estimate.get("low"), estimate.get("high"))
    return found

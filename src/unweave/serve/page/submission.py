"""Submit a request by a form: ids a line each, and nothing that was typed is lost when one of them is wrong."""

import csv
import json
import math
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.page import reach, words
from unweave.serve.page.frame import Frame, goto
from unweave.serve.page.session import Visit

__all__ = ["Submission", "read_document"]

TYPED = ("model", "subjects", "edges", "features", "labels", "right_features", "right_labels", "note")
SHOWN = 50
"""Ids that are told one by one."""


class Submission:
    """The form."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.service = frame, frame.service

    def form(self, visit: Visit) -> Response:
        """Ask what is to be forgotten."""
        return self._ask(visit, dict.fromkeys(TYPED, "") | {"model": visit.asked("model") or ""})

    def submit(self, visit: Visit) -> Response:
        """Take it."""
        typed = {name: visit.text(name) for name in TYPED}
        bearer, key = visit.who, visit.text("key")
        try:
            with database.reading(self.service.engine) as connection:
                if not typed["model"]:
                    raise ServiceError("choose a model", status=422, field="model")
                reach.model_of(connection, bearer, typed["model"])
            document = read_document(typed)
            answer = queue.submit(
                self.service, typed["model"], document, token=bearer.id, idempotency=key[:200] or None
            )
        except ServiceError as error:
            return self._ask(visit, typed, error)
        return goto(f"/requests/{answer.row.id}")

    def _ask(self, visit: Visit, typed: Mapping[str, str], error: ServiceError | None = None) -> Response:
        with database.reading(self.service.engine) as connection:
            models = reach.models_of(connection, visit.who)
        unknown = list(map(str, error.details.get("unknown", []))) if error else []
        columns = list(map(str, error.details.get("unknown_columns", []))) if error else []
        return self.frame.page(
            visit,
            "new.html",
            status=error.status if error else 200,
            models=[row.name for row in models],
            columns={row.name: names for row in models if (names := json.loads(row.columns))},
            typed=typed,
            key=secrets.token_urlsafe(18),
            wrong=None if error is None else _why(error),
            fields=_fields(typed, error, unknown, columns),
            unknown=unknown[:SHOWN],
            unknown_columns=columns[:SHOWN],
            more=max(0, len(unknown) - SHOWN),
        )


def _why(error: ServiceError) -> str:
    if "Idempotency-Key" in str(error):
        return "You had sent another request from this form. If this one is to be sent, too, submit it once more."
    return words.sentence(str(error).removeprefix("this is no request: "))


def _fields(
    typed: Mapping[str, str], error: ServiceError | None, unknown: Iterable[str], columns: Iterable[str]
) -> dict[str, str]:
    """The fields to look at, and what their labels say."""
    if error is None:
        return {}
    found = [name for name in TYPED[1:-1] if any(key in typed[name] for key in unknown)]
    found += [n for n in ("features", "right_features") if any(column in typed[n] for column in columns)]
    found += [name for name in [error.details.get("field")] if name]
    return {name: LABELS[name] for name in dict.fromkeys(found)}


LABELS = {
    "model": "Model",
    "subjects": "Everything of these people or things",
    "edges": "Connections between two of them",
    "features": "Features of some of them",
    "labels": "Labels of some of them",
    "right_features": "Features that are wrong",
    "right_labels": "Labels that are wrong",
}


def read_document(typed: Mapping[str, str]) -> dict[str, Any]:
    """What was typed, as :class:`unweave.serve.subjects.Asked` reads it.

    Raises:
        ServiceError: A line is not as it has to be; its field is told.
    """
    right = {
        "features": {key: dict(values) for key, values in _right(typed.get("right_features", ""), "right_features")},
        "labels": {key: values[0][1] for key, values in _right(typed.get("right_labels", ""), "right_labels")},
    }
    return {
        "subjects": _lines(typed["subjects"]),
        "edges": [_edge(line) for line in _lines(typed["edges"])],
        "features": _features(typed["features"]),
        "labels": _lines(typed["labels"]),
        **({"correct": right} if any(right.values()) else {}),
        "note": typed["note"].strip() or None,
    }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _edge(line: str) -> list[str]:
    pair = _parts(line)
    if len(pair) != 2 or not all(pair):
        raise ServiceError(f"a connection is two ids with a comma between; got {line!r}", status=422, field="edges")
    return pair


def _features(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in _lines(text):
        key, _, columns = line.rpartition(": ") if ": " in line else line.rpartition(":")
        names = [name for name in _parts(columns) if name]
        if not key.strip() or not names or key.strip() in found:
            raise ServiceError(
                f"features are an id that no other line has, a colon, and columns or 'all'; got {line!r}",
                status=422,
                field="features",
            )
        found[key.strip()] = "all" if names == ["all"] else names
    return found


def _right(text: str, field: str) -> list[tuple[str, list[tuple[str, float]]]]:
    """What is right, by id: values by column, or for a label one number."""
    found: dict[str, list[tuple[str, float]]] = {}
    for line in _lines(text):
        key, _, said = line.rpartition(": ") if ": " in line else line.rpartition(":")
        parts = [part.rpartition("=") for part in _parts(said) if part]
        values = [(name.strip(), _number(value)) for name, _, value in parts]
        numbers = [value for _, value in values if value is not None]
        whole = field == "right_features" or (len(values) == 1 and not values[0][0])
        named = all(name for name, _ in values) or field == "right_labels"
        if (
            not key.strip()
            or key.strip() in found
            or not numbers
            or len(numbers) < len(values)
            or not (whole and named)
        ):
            form = "columns with their values" if field == "right_features" else "the number of a class"
            raise ServiceError(
                f"what is right is an id that no other line has, a colon, and {form}; got {line!r}",
                status=422,
                field=field,
            )
        found[key.strip()] = [(name, value) for name, value in values if value is not None]
    return list(found.items())


def _number(text: str) -> float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parts(line: str) -> list[str]:
    """What stands between commas; a part that has one itself stands in quotes."""
    try:
        return [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return []

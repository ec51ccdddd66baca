"""Everything that is refused or goes wrong, as RFC 9457 has it: ``application/problem+json``, and no internals."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from unweave.errors import LedgerError, ServiceError, UnweaveError

__all__ = ["MEDIA", "Problem", "answer_to", "handle", "problem", "refusing_instead", "responses"]

LOG = logging.getLogger("unweave.serve")

MEDIA = "application/problem+json"

MOST, LONGEST = 20, 64
"""Errors of a document that are told, and characters of the name of a part."""

ALWAYS = (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
"""What any operation may be answered."""


class Problem(BaseModel):
    """What is wrong, for people and for programs; some have further members, such as ``unknown``."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


def responses(*further: int) -> dict[int | str, dict[str, Any]]:
    """Statuses of an operation that are problems, for the description of the API."""
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in (*ALWAYS, *further)}


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """An answer that says what is wrong."""
    known = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    said = dict(headers or {}) | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
    return Response(json.dumps({**members, **known}), status, said, MEDIA)


def answer_to(error: Exception) -> Response:
    """The answer to whatever was raised; what only the operator should see goes to the log."""
    if isinstance(error, ServiceError):
        return problem(error.status, str(error), **error.details)
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return problem(error.status_code, WORDS.get(error.status_code, error.detail), headers=error.headers)
    if isinstance(error, LedgerError) and isinstance(error.__cause__, SQLAlchemyError):
        LOG.error("the database does not serve", extra={"facts": {"why": str(error)}})
        return problem(503, "the database does not serve now; try again later", headers={"Retry-After": "5"})
    LOG.error("an answer failed", exc_info=error, extra={"facts": {"why": type(error).__name__}})
    what = "the ledger is not in order" if isinstance(error, LedgerError) else "something went wrong in the service"
    return problem(500, f"{what}; its log says more")


WORDS = {
    400: "the body could not be read",
    404: "there is nothing at this address",
    405: "this cannot be done at this address",
}


def _invalid(error: RequestValidationError) -> Response:
    found = error.errors()
    told = [
        {"where": ".".join(str(part)[:LONGEST] for part in each["loc"]), "what": str(each["msg"])}
        for each in found[:MOST]
    ]
    return problem(422, f"{len(found)} parts of it are not what they should be", errors=told)


async def _handle(_: Request, error: Exception) -> Response:
    return answer_to(error)


def handle(app: FastAPI) -> None:
    """Answer errors of an application so."""
    for kind in (UnweaveError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)


@contextmanager
def refusing_instead(*places: Path | None) -> Iterator[None]:
    """What is wrong with files that somebody named is their mistake, and told without where they lie."""
    try:
        yield
    except (ServiceError, LedgerError):
        raise
    except UnweaveError as error:
        told = str(error)
        for place in places:
            for text in () if place is None else (str(place.resolve()), str(place)):
                told = told.replace(f"{text}/", "")
        raise ServiceError(told, status=422) from error

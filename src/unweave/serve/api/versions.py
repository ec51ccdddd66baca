"""Versions of a model, and their weights for whoever serves it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Header
from sqlalchemy import Row, select
from starlette.responses import Response, StreamingResponse

from unweave.errors import ServiceError
from unweave.serve import database
from unweave.serve.api.access import V1, Here, Needs, Reader, reach
from unweave.serve.api.answers import VersionAnswer, Versions
from unweave.serve.api.documents import Before, Limit, ModelName, VersionName
from unweave.serve.api.problems import responses
from unweave.serve.registry import find, find_version, weights_file
from unweave.serve.tables import versions
from unweave.serve.tokens import Bearer

__all__ = ["router"]

router = APIRouter(prefix=f"{V1}/models/{{model}}/versions", tags=["versions"], responses=responses())

MEDIA, AT_ONCE = "application/octet-stream", 1 << 20
FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "safetensors", "content": {MEDIA: {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "These are the weights that you have"},
}


@router.get("")
def list_versions(
    service: Here, bearer: Reader, model: ModelName, before: Before = None, limit: Limit = 50
) -> Versions:
    """Versions, the newest first."""
    reach(bearer, model)
    with database.reading(service.engine) as connection:
        current = find(connection, model).current
        query = select(versions).where(versions.c.model == model).order_by(versions.c.number.desc()).limit(limit + 1)
        if before is not None:
            query = query.where(versions.c.number < before)
        rows = connection.execute(query).all()
    items = [
        VersionAnswer(
            number=row.number,
            current=row.number == current,
            weights=row.weights,
            forgot=row.forgot,
            facts=json.loads(row.facts),
            at=row.at,
            purged=row.purged,
        )
        for row in rows[:limit]
    ]
    return Versions(items=items, next=str(items[-1].number) if len(rows) > limit else None)


@router.get("/{version}/weights", response_class=Response, responses=FILE | responses(410))
def download_weights(
    service: Here,
    bearer: Annotated[Bearer, Depends(Needs("read", "operate"))],
    model: ModelName,
    version: VersionName,
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
) -> Response:
    """The weights of a version, in the format of safetensors; the ETag is their SHA-256."""
    reach(bearer, model)
    with database.reading(service.engine) as connection:
        row = find(connection, model)
        found = find_version(connection, model, row.current if version == "current" else int(version))
    headers = {"ETag": f'"{found.weights}"', "Unweave-Version": str(found.number)}
    path = weights_file(service, found)
    if _has(if_none_match, found.weights):
        return Response(status_code=304, headers=headers)
    file, length = _checked(path, found)
    name = f"{model}-{found.number}.safetensors"
    headers |= {"Content-Length": str(length), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_pieces(file), headers=headers, media_type=MEDIA)


def _checked(path: Path, version: Row[Any]) -> tuple[BinaryIO, int]:
    """The open file of a version and its length; it stays readable when it is purged meanwhile."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ServiceError("the weights cannot be read now; look at the versions again", status=503) from error
    try:
        if hashlib.file_digest(file, "sha256").hexdigest() != version.weights:
            raise ServiceError(
                f"the weights of {version.model}, version {version.number}, were changed on disk", status=500
            )
        length = file.tell()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, length


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(AT_ONCE):
            yield piece


def _has(header: str | None, weights: str) -> bool:
    """Whether somebody says that they have these weights."""
    tags = [tag.strip().removeprefix("W/") for tag in (header or "").split(",")]
    return "*" in tags or f'"{weights}"' in tags

"""Models: which there are, how requests to them are carried out, and new ones."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection, Row, select

from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.api.access import V1, Administrator, Here, How, Operator, Reader, reach
from unweave.serve.api.answers import ModelAnswer, Models
from unweave.serve.api.documents import Current, ModelName, PolicyBody, Registration
from unweave.serve.api.problems import refusing_instead, responses
from unweave.serve.policy import Policy
from unweave.serve.registry import find, go_back, register, set_policy
from unweave.serve.service import Service, iso
from unweave.serve.tables import models, versions

__all__ = ["router"]

router = APIRouter(prefix=f"{V1}/models", tags=["models"], responses=responses())


@router.get("")
def list_models(service: Here, bearer: Reader) -> Models:
    """All models that the token is for."""
    with database.reading(service.engine) as connection:
        return Models(items=_answers(connection, bearer.models))


@router.post("", status_code=201)
def register_model(
    service: Here, settings: How, _: Administrator, body: Registration, response: Response
) -> ModelAnswer:
    """Take a run of the folder that the settings name under a name."""
    if settings.runs is None:
        raise ServiceError("models are registered by the command line here; the setting runs is not given", status=403)
    with refusing_instead(settings.runs, service.home):
        register(
            service,
            body.name,
            _below(settings.runs, body.run),
            ids=body.ids,
            columns=body.columns,
            policy=Policy.of(body.policy.given()),
            graph=None if body.graph is None else _below(settings.runs, body.graph),
        )
    response.headers["Location"] = f"{V1}/models/{body.name}"
    return _one(service, body.name)


@router.get("/{model}")
def show_model(service: Here, bearer: Reader, model: ModelName) -> ModelAnswer:
    """A model, its policy, and its requests by state."""
    reach(bearer, model)
    return _one(service, model)


@router.put("/{model}/policy")
def change_policy(service: Here, bearer: Administrator, model: ModelName, body: PolicyBody) -> ModelAnswer:
    """Change how requests are carried out from now on."""
    reach(bearer, model)
    with refusing_instead(service.home):
        set_policy(service, model, Policy.of(body.given()))
    return _one(service, model)


@router.put("/{model}/current")
def move_current(service: Here, bearer: Operator, model: ModelName, body: Current) -> ModelAnswer:
    """Serve another version; none that remembers what was deleted since."""
    reach(bearer, model)
    go_back(service, model, body.version)
    return _one(service, model)


def _one(service: Service, name: str) -> ModelAnswer:
    with database.reading(service.engine) as connection:
        find(connection, name)
        return _answers(connection, [name])[0]


def _answers(connection: Connection, within: Collection[str] | None) -> list[ModelAnswer]:
    query = select(models, versions.c.weights).join(
        versions, (versions.c.model == models.c.name) & (versions.c.number == models.c.current)
    )
    if within is not None:
        query = query.where(models.c.name.in_(list(within)))
    counts, oldest = queue.counts(connection, within), queue.oldest(connection)
    rows = connection.execute(query.order_by(models.c.name))
    return [_answer(row, counts.get(row.name, {}), oldest) for row in rows]


def _answer(row: Row[Any], counts: Mapping[str, int], oldest: Mapping[str, float]) -> ModelAnswer:
    return ModelAnswer(
        name=row.name,
        current=row.current,
        weights=row.weights,
        forgot=row.forgot,
        policy=json.loads(row.policy),
        columns=json.loads(row.columns),
        requests=dict(counts),
        oldest_open=iso(oldest[row.name]) if row.name in oldest else None,
        at=row.at,
    )


def _below(runs: Path, given: str) -> Path:
    """A place below a folder, whatever tricks its name plays."""
    parts = PurePosixPath(given)
    root = runs.resolve()
    if not parts.is_absolute() and "\\" not in given and ".." not in parts.parts:
        found = (root / parts).resolve()
        if found != root and found.is_relative_to(root):
            return found
    raise ServiceError("a run or a graph is named by its place below the folder of runs", status=422)

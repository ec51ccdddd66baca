"""Who is told of new versions."""

from fastapi import APIRouter, Response

from unweave.errors import ServiceError
from unweave.serve import database
from unweave.serve.api.access import V1, Administrator, Here, reach
from unweave.serve.api.answers import HookAnswer, Hooks, NewHook
from unweave.serve.api.documents import HookBody, Key, ModelName
from unweave.serve.api.problems import responses
from unweave.serve.hooks import add_hook, hooks_of, remove_hook
from unweave.serve.registry import find
from unweave.serve.service import iso, now

__all__ = ["router"]

router = APIRouter(prefix=f"{V1}/models/{{model}}/hooks", tags=["hooks"], responses=responses())


@router.get("")
def list_hooks(service: Here, bearer: Administrator, model: ModelName) -> Hooks:
    """All hooks of a model."""
    reach(bearer, model)
    with database.reading(service.engine) as connection:
        find(connection, model)
        rows = hooks_of(connection, model)
    return Hooks(items=[HookAnswer(id=row.id, url=row.url, made=iso(row.made)) for row in rows])


@router.post("", status_code=201)
def make_hook(service: Here, bearer: Administrator, model: ModelName, body: HookBody, response: Response) -> NewHook:
    """Tell an address of every new version; the answer has the secret that is shown this once."""
    reach(bearer, model)
    try:
        name, secret = add_hook(service, model, body.url)
    except ValueError as error:  # brackets that are no address
        raise ServiceError("this is no address", status=422) from error
    response.headers["Location"] = f"{V1}/models/{model}/hooks/{name}"
    return NewHook(id=name, url=body.url, made=iso(now()), secret=secret)


@router.delete("/{hook}", status_code=204)
def delete_hook(service: Here, bearer: Administrator, model: ModelName, hook: Key) -> None:
    """Tell it no more."""
    reach(bearer, model)
    remove_hook(service, model, hook)

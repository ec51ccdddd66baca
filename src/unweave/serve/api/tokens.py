"""Who may do what."""

import json

from fastapi import APIRouter, Response

from unweave.serve.api.access import V1, Administrator, Here
from unweave.serve.api.answers import NewToken, TokenAnswer, Tokens
from unweave.serve.api.documents import Key, TokenBody
from unweave.serve.api.problems import responses
from unweave.serve.service import iso
from unweave.serve.tokens import listed, new_token, revoke

__all__ = ["router"]

router = APIRouter(prefix=f"{V1}/tokens", tags=["tokens"], responses=responses())


@router.get("")
def list_tokens(service: Here, _: Administrator) -> Tokens:
    """All tokens, without what would let anybody use them."""
    return Tokens(
        items=[
            TokenAnswer(
                id=row.id,
                name=row.name,
                scopes=json.loads(row.scopes),
                models=None if row.models is None else json.loads(row.models),
                made=iso(row.made),
                expires=None if row.expires is None else iso(row.expires),
                revoked=row.revoked,
            )
            for row in listed(service)
        ]
    )


@router.post("", status_code=201)
def make_token(service: Here, _: Administrator, body: TokenBody, response: Response) -> NewToken:
    """A new token, which is shown this once."""
    name, token = new_token(service, body.name, set(body.scopes), models=body.models, seconds=body.seconds)
    response.headers["Location"] = f"{V1}/tokens/{name}"
    return NewToken(id=name, token=token)


@router.delete("/{token}", status_code=204)
def revoke_token(service: Here, _: Administrator, token: Key) -> None:
    """Let a token serve no more."""
    revoke(service, token)

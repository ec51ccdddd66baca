"""Who asks: a token with every request, looked up each time so that one that was revoked serves no more."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from unweave.errors import ServiceError
from unweave.serve.api.limits import Buckets, address
from unweave.serve.api.problems import problem
from unweave.serve.page.session import cookie_of
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tokens import Bearer, bearer_of

__all__ = ["HEALTH", "OPENAPI", "V1", "Administrator", "Gate", "Here", "How", "Needs", "Operator", "Reader", "reach"]

V1, HEALTH = "/api/v1", "/health"
OPENAPI = f"{V1}/openapi.json"

BEARER = "unweave.bearer"
LONGEST = 200
"""Characters of a token at most."""

SCHEME = HTTPBearer(auto_error=False, scheme_name="token")


class Gate:
    """Finds out who asks before anything else is looked at, and lets nobody ask too often.

    Args:
        app: What lies behind it.
        service: Whose tokens.
        settings: How often.
    """

    def __init__(self, app: ASGIApp, *, service: Service, settings: Settings) -> None:
        self.app, self.service, self.settings = app, service, settings
        self.buckets = Buckets(settings.rate, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or scope["path"] == HEALTH:
            await self.app(scope, receive, send)
            return
        token = _token(scope)
        bearer = None if token is None else await run_sync(bearer_of, self.service, token)
        scope[BEARER] = bearer
        wait = self.buckets.take(await self._sender(scope, bearer))
        if wait:
            refusal = problem(429, "too many requests; send fewer", headers={"Retry-After": str(wait)})
        elif bearer is None and scope["path"].startswith(f"{V1}/") and scope["path"] != OPENAPI:
            refusal = problem(401, NOBODY)
        else:
            await self.app(scope, receive, send)
            return
        await refusal(scope, receive, send)

    async def _sender(self, scope: Scope, bearer: Bearer | None) -> str:
        """Whose bucket it is: that of a token, be it in the cookie of a page, or of an address."""
        if bearer is None and not scope["path"].startswith(f"{V1}/"):
            held = HTTPConnection(scope).cookies.get(cookie_of(self.settings), "")[:LONGEST]
            bearer = await run_sync(bearer_of, self.service, held) if held else None
        return f"address {address(scope)}" if bearer is None else bearer.id


NOBODY = "send a token that serves: Authorization: Bearer …"


def _token(scope: Scope) -> str | None:
    """The token of a request; ``None`` where it has none, or several."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = found[0].decode("latin-1").partition(" ") if len(found) == 1 else ("", "", "")
    token = token.strip(" ")
    fine = kind.lower() == "bearer" and 0 < len(token) <= LONGEST and token.isascii() and token.isprintable()
    return token if fine else None


class Needs:
    """One of these scopes is needed."""

    def __init__(self, *scopes: str) -> None:
        self.scopes = scopes

    async def __call__(self, request: Request, _: Annotated[object, Security(SCHEME)]) -> Bearer:
        """Who asks.

        Raises:
            ServiceError: Nobody known, or somebody who may not.
        """
        bearer: Bearer | None = request.scope.get(BEARER)
        if bearer is None:
            raise ServiceError(NOBODY, status=401)
        if not bearer.may(*self.scopes):
            raise ServiceError(f"this needs a token with the scope {' or '.join(self.scopes)}", status=403)
        return bearer


async def _here(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _how(request: Request) -> Settings:
    found: Settings = request.app.state.settings
    return found


Here = Annotated[Service, Depends(_here)]
How = Annotated[Settings, Depends(_how)]
Reader = Annotated[Bearer, Depends(Needs("read"))]
Operator = Annotated[Bearer, Depends(Needs("operate"))]
Administrator = Annotated[Bearer, Depends(Needs("administer"))]


def reach(bearer: Bearer, model: str) -> None:
    """Answer for a model that a token is not for as for one that is not there."""
    if not bearer.sees(model):
        raise ServiceError(f"there is no model {model!r}", status=404)

"""What all pages share: templates, headers, who may see them, and what is shown when something is wrong."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from unweave.errors import ServiceError, UnweaveError
from unweave.serve.page import words
from unweave.serve.page.session import Visit, check_sent_by_us, read_fields, visit_of
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tokens import SCOPES, Bearer

__all__ = ["HEADERS", "STATIC", "Frame", "goto"]

LOG = logging.getLogger("unweave.serve")

HERE = Path(__file__).parent
STATIC = {name: (HERE / "static" / name).read_bytes() for name in ("page.css", "icon.svg")}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Of every answer."""

TITLES = {
    401: "Sign in first",
    403: "This is not for your token",
    404: "There is no such page",
    409: "This cannot be done now",
    410: "This is gone",
    413: "This is too long",
    500: "Something went wrong",
    503: "The service cannot answer just now",
}

Handler = Callable[..., Response]
Endpoint = Callable[[Request], Awaitable[Response]]


class Frame:
    """Around every page.

    Args:
        service: What is shown.
        settings: Of the service.
    """

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service, self.settings = service, settings
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters |= words.FILTERS
        self.templates.globals["style"] = hashlib.sha256(STATIC["page.css"]).hexdigest()[:12]

    def page(
        self, visit: Visit, template: str, *, status: int = 200, refresh: int | None = None, **facts: Any
    ) -> Response:
        """A page from a template."""
        shared = {"visit": visit, "bearer": visit.bearer, "seal": visit.seal, "places": places(visit.bearer)}
        text = self.templates.get_template(template).render(shared, **facts)
        return HTMLResponse(text, status, headers={} if refresh is None else {"Refresh": str(refresh)})

    def endpoint(self, handler: Handler, *scopes: str, public: bool = False) -> Endpoint:
        """What answers a request: it looks up who asks, checks forms, and shows what is wrong as a page.

        Args:
            handler: Is given the visit and the parts of the address.
            scopes: One of these is needed.
            public: Whether it is for whoever is not signed in, too.
        """

        async def answer(request: Request) -> Response:
            fields: Mapping[str, list[str]] = {}
            try:
                if request.method == "POST":
                    fields = await read_fields(request, 1024 * self.settings.body_kib)
                response = await run_in_threadpool(self._answer, handler, request, fields, scopes, public)
            except Exception as error:
                response = await run_in_threadpool(self._wrong, request, error)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    def _answer(
        self,
        handler: Handler,
        request: Request,
        fields: Mapping[str, list[str]],
        scopes: tuple[str, ...],
        public: bool,
    ) -> Response:
        visit = visit_of(self.service, self.settings, request, fields)
        if visit.bearer is None and not public:
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return goto("/signin" if request.method == "POST" else f"/signin?to={quote(there, safe='')}")
        if request.method == "POST":
            check_sent_by_us(visit)
        if scopes and not visit.who.may(*scopes):
            raise ServiceError(f"this needs a token that may {SCOPES[scopes[0]]}", status=403)
        return handler(visit, **request.path_params)

    def _wrong(self, request: Request, error: Exception) -> Response:
        """What is wrong, as a page."""
        if isinstance(error, ServiceError):
            status, why = error.status, str(error)
        elif isinstance(error, UnweaveError):
            LOG.error("a page could not be shown", extra={"facts": {"why": str(error)}})
            status, why = 503, "its database is busy or damaged; try again, and tell whoever runs the service"
        else:
            LOG.error("a page could not be shown", exc_info=error)
            status, why = 500, "this is a mistake of the service, not yours; tell whoever runs it"
        return self.trouble(request, status, why)

    def trouble(self, request: Request, status: int, why: str) -> Response:
        """A page that says what is wrong; for the application's own errors, too."""
        try:
            visit = visit_of(self.service, self.settings, request, {})
        except UnweaveError:  # the database is what is wrong
            visit = Visit(request, None, "")
        title = TITLES.get(status, "This cannot be done")
        response = self.page(visit, "error.html", status=status, title=title, why=words.sentence(why))
        response.headers.update(HEADERS)
        return response


def places(bearer: Bearer | None) -> list[tuple[str, str]]:
    """Where somebody may go: address and name."""
    if bearer is None:
        return []
    every = [
        ("/", "Requests", bearer.may("read", "submit")),
        ("/requests/new", "New request", bearer.may("submit")),
        ("/models", "Models", bearer.may("read")),
        ("/ledger", "Ledger", bearer.may("read") and bearer.models is None),
        ("/tokens", "Tokens", bearer.may("administer")),
    ]
    return [(path, name) for path, name, shown in every if shown]


def goto(path: str) -> Response:
    """Send a browser on to another page of ours."""
    return RedirectResponse(path, status_code=303)

"""Who looks at a page: a token in a cookie, looked up each time; and forms that only our own pages can have sent."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from starlette.responses import Response

from unweave.errors import ServiceError
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tokens import Bearer, bearer_of

__all__ = ["Visit", "check_sent_by_us", "cookie_of", "forget", "new_start", "read_fields", "remember", "visit_of"]

TOKEN, START = "unweave", "unweave-start"
"""The cookie with the token; and one of chance, for the form that asks for it."""

FIELDS = 2000
LARGEST = 2**31 - 1
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Visit:
    """One request of a browser.

    Attributes:
        request: As it came.
        bearer: Who it is, or ``None``.
        seal: What a form has to send back.
        fields: What a form sent.
    """

    request: Request
    bearer: Bearer | None
    seal: str
    fields: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def who(self) -> Bearer:
        """Who it is, where nobody comes who is not signed in."""
        if self.bearer is None:
            raise ServiceError("sign in first", status=401)
        return self.bearer

    def text(self, name: str) -> str:
        """A field of a form; empty where it is missing."""
        return self.fields.get(name, [""])[0].replace("\r\n", "\n")

    def asked(self, name: str) -> str | None:
        """A value of the address; ``None`` where it is missing or empty."""
        return self.request.query_params.get(name) or None

    def before(self) -> int | None:
        """The place before which a list goes on."""
        text = self.asked("before")
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 11 and 0 < int(text) <= LARGEST):
            raise ServiceError("the address of this page is not one of ours: 'before' is a number", status=422)
        return int(text)


def visit_of(service: Service, settings: Settings, request: Request, fields: Mapping[str, list[str]]) -> Visit:
    """Look up who sent a request."""
    token = request.cookies.get(_name(TOKEN, settings), "")
    bearer = bearer_of(service, token) if token else None
    own = (bearer.id, token) if bearer else ("", request.cookies.get(_name(START, settings), ""))
    return Visit(request, bearer, service.digest("page", *own) if own[1] else "", fields)


def check_sent_by_us(visit: Visit) -> None:
    """Refuse a form that was not sent by a page of ours to this very person.

    Raises:
        ServiceError: It says what was missing.
    """
    headers = visit.request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    strange = site not in (None, "same-origin")
    if origin == "null":  # what browsers send from pages without a referrer: then the other header has to speak for it
        strange |= site is None
    elif origin is not None:
        strange |= _place(origin) != _place(f"{visit.request.url.scheme}://{headers.get('host', '')}")
    sent = visit.text("seal").encode(errors="replace")
    if strange or not visit.seal or not hmac.compare_digest(sent, visit.seal.encode()):
        raise ServiceError(
            "this form was not sent from a page of this service, or from one before you signed in; nothing was done. "
            "Open the page again and send it once more",
            status=403,
        )


def _place(address: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(address)
        return parts.hostname, None if parts.port in PORTS.values() else parts.port
    except ValueError:
        return None, -1


async def read_fields(request: Request, most: int) -> dict[str, list[str]]:
    """The fields of a form, as browsers send them.

    Raises:
        ServiceError: It is longer than ``most`` bytes, or no form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ServiceError("this page takes forms only", status=415)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise ServiceError(f"a form may have up to {most // 1024} KiB; send less at a time", status=413)
    try:
        return parse_qs(
            body.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=FIELDS
        )
    except ValueError as error:
        raise ServiceError("what was sent is no form that can be read", status=422) from error


def new_start() -> str:
    """Chance for the form that asks for a token."""
    return secrets.token_urlsafe(24)


def remember(response: Response, settings: Settings, *, token: str | None = None, start: str | None = None) -> None:
    """Leave a token, or the chance of a form, with a browser until it is closed."""
    value = token if token is not None else start or ""
    name = _name(TOKEN if token is not None else START, settings)
    response.set_cookie(name, value, path="/", httponly=True, samesite="strict", secure=_secure(settings))


def forget(response: Response, settings: Settings) -> None:
    """Take the token back."""
    response.delete_cookie(_name(TOKEN, settings), path="/", httponly=True, samesite="strict", secure=_secure(settings))


def cookie_of(settings: Settings) -> str:
    """The name of the cookie that has the token."""
    return _name(TOKEN, settings)


def _secure(settings: Settings) -> bool:
    return settings.certificate is not None or settings.behind_proxy


def _name(name: str, settings: Settings) -> str:
    """Over TLS a cookie has a name that browsers let nobody else set."""
    return f"__Host-{name}" if _secure(settings) else name

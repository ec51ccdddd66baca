"""Tokens: make them, look at them, and revoke them."""

import json

from starlette.responses import Response

from unweave.errors import ServiceError
from unweave.serve import database, tokens
from unweave.serve.page import reach, words
from unweave.serve.page.frame import Frame, goto
from unweave.serve.page.session import Visit
from unweave.serve.service import now

__all__ = ["Tokens"]

DAYS = 36500


class Tokens:
    """Pages of tokens."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.service = frame, frame.service

    def every(
        self, visit: Visit, *, made: tuple[str, str] | None = None, wrong: str | None = None, status: int = 200
    ) -> Response:
        """All tokens, and a form for another one."""
        with database.reading(self.service.engine) as connection:
            models = [row.name for row in reach.models_of(connection, visit.who)]
        typed = {"name": "", "days": ""} if made else {name: visit.text(name) for name in ("name", "days")}
        chosen = {"scopes": [], "models": []} if made else {n: visit.fields.get(n, []) for n in ("scopes", "models")}
        return self.frame.page(
            visit,
            "tokens.html",
            status=status,
            tokens=[
                {
                    "id": row.id,
                    "name": row.name,
                    "may": ", ".join(json.loads(row.scopes)),
                    "models": "all" if row.models is None else ", ".join(json.loads(row.models)),
                    "made": row.made,
                    "expires": row.expires,
                    "state": _state(row.revoked, row.expires),
                    "own": row.id == visit.who.id,
                }
                for row in tokens.listed(self.service)
            ],
            scopes=tokens.SCOPES,
            models=models,
            typed=typed,
            chosen=chosen,
            made=made,
            wrong=wrong,
        )

    def make(self, visit: Visit) -> Response:
        """Make a token, which is shown this once."""
        name, days = visit.text("name").strip(), visit.text("days").strip()
        try:
            if days and not (days.isascii() and days.isdecimal() and 0 < int(days[:9]) <= DAYS):
                raise ServiceError(f"days are a number from 1 to {DAYS}, or empty for a token without end", status=422)
            _, token = tokens.new_token(
                self.service,
                name,
                visit.fields.get("scopes", []),
                models=visit.fields.get("models") or None,
                seconds=86400.0 * int(days) if days else None,
            )
        except ServiceError as error:
            return self.every(visit, wrong=words.sentence(str(error)), status=error.status)
        return self.every(visit, made=(name, token))

    def revoke(self, visit: Visit, name: str) -> Response:
        """Let a token serve no more."""
        if not reach.NAME.fullmatch(name):
            raise ServiceError(f"there is no token {name!r} that could be revoked", status=404)
        tokens.revoke(self.service, name)
        return goto("/tokens")


def _state(revoked: bool, expires: float | None) -> str:
    if revoked:
        return "revoked"
    return "expired" if expires is not None and expires <= now() else "in use"

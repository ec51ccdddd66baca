"""Sign in with a token, and sign out."""

import re

from starlette.responses import Response

from unweave.serve.page.frame import Frame, goto, places
from unweave.serve.page.session import Visit, forget, new_start, remember
from unweave.serve.tokens import bearer_of

__all__ = ["Signing"]

OURS = re.compile(r"/(?![/\\])[A-Za-z0-9_\-/?=&.%]{0,500}")
"""An address to go on to: of this service only."""


class Signing:
    """The way in and out."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def form(self, visit: Visit) -> Response:
        """Ask for a token."""
        if visit.bearer is not None:
            return goto(self._onward(visit.asked("to"), visit))
        return self._ask(visit, visit.asked("to"), None)

    def sign_in(self, visit: Visit) -> Response:
        """Take a token, if it is one."""
        token, to = visit.text("token").strip(), visit.text("to")
        bearer = bearer_of(self.frame.service, token) if token.isascii() else None
        if bearer is None:
            return self._ask(visit, to, "This token is not known, has expired, or was revoked. Check it and try again.")
        response = goto(self._onward(to, Visit(visit.request, bearer, "")))
        remember(response, self.frame.settings, token=token)
        return response

    def sign_out(self, visit: Visit) -> Response:
        """Forget the token."""
        response = goto("/signin")
        forget(response, self.frame.settings)
        return response

    def _ask(self, visit: Visit, to: str | None, wrong: str | None) -> Response:
        there = to if to and OURS.fullmatch(to) else ""
        from_elsewhere = visit.request.headers.get("sec-fetch-site") == "cross-site"
        start = None
        if not visit.seal or visit.bearer is not None:
            start = new_start()
            visit = Visit(visit.request, None, self.frame.service.digest("page", "", start))
        status = 403 if wrong else 200
        response = self.frame.page(
            visit, "signin.html", status=status, to=there, wrong=wrong, from_elsewhere=from_elsewhere
        )
        if start is not None:
            remember(response, self.frame.settings, start=start)
        return response

    def _onward(self, to: str | None, visit: Visit) -> str:
        if to and OURS.fullmatch(to) and to != "/":
            return to
        open_to = places(visit.bearer)
        return open_to[0][0] if open_to else "/"

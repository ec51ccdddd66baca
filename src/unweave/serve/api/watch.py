"""The outermost layer: headers that every answer has, an answer to every error, a line in the log, and counts."""

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unweave.serve.api.access import V1
from unweave.serve.api.problems import answer_to

__all__ = ["Metrics", "Watch"]

LOG = logging.getLogger("unweave.serve")

ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
OF_THE_API = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
LABELS = ("method", "route", "status")


class Metrics:
    """What is counted while the service runs.

    Attributes:
        registry: Its own, so that two applications in a process do not mix.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answers = Counter("unweave_http_answers", "Answers over HTTP.", LABELS, registry=self.registry)
        self._seconds = Histogram(
            "unweave_http_seconds", "Seconds until an answer was sent.", LABELS, registry=self.registry
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One more answer."""
        self._answers.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route, str(status)).observe(seconds)


class Watch:
    """Sees every request come and every answer go.

    Args:
        app: What lies behind it.
        metrics: Where it counts.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0
        headers = ALWAYS | (OF_THE_API if _of_the_api(scope["path"]) else {})

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                said = MutableHeaders(scope=message)
                for name, value in headers.items():
                    said.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            answer = answer_to(error)  # which tells the log
            if not status:
                await answer(scope, receive, sending)
        finally:
            self._tell(scope, status, time.perf_counter() - begun)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        """Routes, not addresses: those have ids in them."""
        route = str(getattr(scope.get("route"), "path", "none"))
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.count(method, route, status, seconds)
        facts = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        LOG.info("answered", extra={"facts": facts})


def _of_the_api(path: str) -> bool:
    return path.startswith(f"{V1}/") or path in ("/health", "/metrics")

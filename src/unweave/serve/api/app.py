"""The application: its routes, and the layers that a request passes on its way to them."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from unweave._core.version import __version__
from unweave.serve.api import health, hooks, ledger, models, requests, tokens, versions
from unweave.serve.api.access import OPENAPI, Gate
from unweave.serve.api.limits import BodyLimit
from unweave.serve.api.problems import Problem, handle
from unweave.serve.api.watch import Metrics, Watch
from unweave.serve.page import routes as page
from unweave.serve.service import Service
from unweave.serve.settings import Settings

__all__ = ["create_app"]


def create_app(service: Service, settings: Settings) -> FastAPI:
    """The service over HTTP: the API, the page, health and metrics.

    Args:
        service: What it serves.
        settings: How.
    """
    app = _Described(
        title="unweave",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=OPENAPI,
        redirect_slashes=False,  # a redirect would be built from the Host that somebody claims
        generate_unique_id_function=_name,
    )
    metrics = Metrics()
    app.state.service, app.state.settings, app.state.metrics = service, settings, metrics
    for part in (models, versions, hooks, requests, ledger, tokens, health):
        app.include_router(part.router)
    app.include_router(page.router(service, settings))
    handle(app)
    app.add_middleware(BodyLimit, kib=settings.body_kib)  # the last one added is passed first
    app.add_middleware(Gate, service=service, settings=settings)
    app.add_middleware(Watch, metrics=metrics)
    return app


class _Described(FastAPI):
    """An application whose description has what all refusals look like."""

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        found = super().openapi()
        found["components"]["schemas"].setdefault("Problem", Problem.model_json_schema())
        return found


def _name(route: APIRoute) -> str:
    return route.name

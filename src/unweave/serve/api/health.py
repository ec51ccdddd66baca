"""Whether the service can work, and how much it has to do: for whoever watches over it."""

import time
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import func, select
from starlette.responses import Response

from unweave.errors import ServiceError, UnweaveError
from unweave.serve import database, queue
from unweave.serve.api.access import HEALTH, Here, Reader
from unweave.serve.api.answers import HealthAnswer
from unweave.serve.api.problems import responses
from unweave.serve.service import Service, now
from unweave.serve.tables import deliveries
from unweave.serve.tokens import Bearer

__all__ = ["router"]

router = APIRouter(tags=["health"], responses=responses())

KEPT = 1.0
"""Seconds for which an answer on health serves anybody who asks: nobody needs a token for it."""


@router.get(HEALTH)
def show_health(service: Here, request: Request) -> HealthAnswer:
    """Whether the database answers, and its tables are of this version."""
    state = request.app.state
    at, fine = getattr(state, "health", (-KEPT, False))
    if time.monotonic() - at >= KEPT:
        try:
            database.check_version(service.engine)
            fine = True
        except UnweaveError:
            fine = False
        state.health = (time.monotonic(), fine)
    if not fine:
        raise ServiceError("the database does not answer, or its tables are of another version", status=503)
    return HealthAnswer(ok=True)


TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses=TEXT)
def show_metrics(service: Here, bearer: Reader, request: Request) -> Response:
    """Counts in the text format of Prometheus; of the models that the token is for."""
    text = generate_latest(_of_the_queue(service, bearer)) + generate_latest(request.app.state.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _of_the_queue(service: Service, bearer: Bearer) -> CollectorRegistry:
    """What the database says now."""
    registry, at = CollectorRegistry(), now()
    with database.reading(service.engine) as connection:
        counts, oldest = queue.counts(connection, bearer.models), queue.oldest(connection)
        pending = connection.scalar(select(func.count()).select_from(deliveries)) or 0
    requests = Gauge("unweave_requests", "Requests by state.", ("model", "state"), registry=registry)
    for model, states in counts.items():
        for state in queue.STATES:
            requests.labels(model, state).set(states.get(state, 0))
    ages = Gauge(
        "unweave_oldest_open_seconds", "Age of the oldest request that has not ended.", ("model",), registry=registry
    )
    for model in counts:
        ages.labels(model).set(max(0.0, at - oldest.get(model, at)))
    Gauge("unweave_deliveries_pending", "Words to hooks that were not heard yet.", registry=registry).set(pending)
    return registry

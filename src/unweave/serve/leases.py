"""Who works on a model: one worker at a time, for as long as it says that it is alive."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from sqlalchemy import or_, update

from unweave.errors import UnweaveError
from unweave.serve import database
from unweave.serve.service import Service, now
from unweave.serve.tables import models

__all__ = ["LEASE", "holding", "new_worker"]

LEASE = 60.0
"""Seconds after which a worker that says nothing is taken for dead."""

LOG = logging.getLogger("unweave.serve")


def new_worker() -> str:
    """An id for one life of a worker."""
    return uuid4().hex


@contextmanager
def holding(service: Service, model: str, worker: str, *, lease: float = LEASE) -> Iterator[bool]:
    """Hold a model, and go on saying so; ``False`` where somebody else holds it."""
    if not _take(service, model, worker, lease):
        yield False
        return
    over = threading.Event()
    beat = threading.Thread(target=_beat, args=(service, model, worker, lease, over), daemon=True)
    beat.start()
    try:
        yield True
    finally:
        over.set()
        beat.join()
        with database.writing(service.engine) as connection:
            mine = models.c.name == model, models.c.worker == worker
            connection.execute(update(models).where(*mine).values(worker=None, until=None))


def _take(service: Service, model: str, worker: str, lease: float) -> bool:
    with database.writing(service.engine) as connection:
        free = or_(models.c.worker.is_(None), models.c.worker == worker, models.c.until < now())
        taken = connection.execute(
            update(models).where(models.c.name == model, free).values(worker=worker, until=now() + lease)
        )
        return taken.rowcount == 1


def _beat(service: Service, model: str, worker: str, lease: float, over: threading.Event) -> None:
    while not over.wait(lease / 4):
        try:
            with database.writing(service.engine) as connection:
                mine = models.c.name == model, models.c.worker == worker
                connection.execute(update(models).where(*mine).values(until=now() + lease))
        except UnweaveError as error:  # it is tried again; whoever loses its hold finds out when it commits
            LOG.warning("a lease could not be renewed", extra={"facts": {"model": model, "why": str(error)}})

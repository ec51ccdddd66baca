"""Run a service: one process that answers, some that work, and all of them stop in good order."""

import json
import logging
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import uvicorn

from unweave._core.cost import find_device
from unweave.errors import UnweaveError
from unweave.serve.api.app import create_app
from unweave.serve.hooks import TIMEOUT, Deliverer
from unweave.serve.registry import sweep_unregistered
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.worker import Worker

__all__ = ["log_to", "serve", "work"]

LOG = logging.getLogger("unweave.serve")

PAUSE = 1.0
"""Seconds after which a worker that died is replaced."""

GRACE = 20
"""Seconds that answers under way have when the service stops."""


class _Lines(logging.Formatter):
    """One JSON document a line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def log_to(settings: Settings) -> None:
    """Write what happens to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines() if settings.logs == "json" else logging.Formatter("%(asctime)s %(message)s"))
    LOG.handlers[:], LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)


def serve(settings: Settings, service: Service, ready: Callable[[str], None]) -> None:
    """Answer, and keep workers running, until told to stop (SIGINT, SIGTERM).

    Args:
        settings: How.
        service: Which.
        ready: Called with the address once it answers.
    """
    find_device(settings.device)
    sweep_unregistered(service)
    config = uvicorn.Config(
        create_app(service, settings),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=GRACE,
    )
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(settings, over), daemon=True)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.should_exit:
                return
            port = self.servers[0].sockets[0].getsockname()[1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            keeper.start()
            ready(f"{'http' if settings.certificate is None else 'https'}://{host}:{port}")

    try:
        Server(config).run()
    finally:
        over.set()
        if keeper.ident is not None:
            keeper.join()


def _keep(settings: Settings, over: threading.Event) -> None:
    """Start workers, and others in the place of those that die."""
    context = multiprocessing.get_context("spawn")

    def start() -> BaseProcess:
        process = context.Process(target=work, args=(settings,), kwargs={"child": True})
        process.start()
        return process

    workers = [start() for _ in range(settings.workers)]
    while workers and not over.wait(PAUSE):
        dead = [process for process in workers if not process.is_alive()]
        for process in dead:
            LOG.error("a worker died and is replaced", extra={"facts": {"exitcode": process.exitcode}})
            workers[workers.index(process)] = start()
    for process in workers:
        process.terminate()
    for process in workers:
        process.join()


def work(settings: Settings, *, child: bool = False) -> None:
    """Carry requests out until told to stop; what is under way is finished first.

    Args:
        settings: Of the service.
        child: Whether it was started by a service, and ends with it.
    """
    log_to(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    parent = multiprocessing.parent_process() if child else None
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel, stop), daemon=True).start()
    service = _opened(settings, stop)
    if service is None:
        return
    deliverer = threading.Thread(target=Deliverer(service).work, args=(stop,), daemon=True)
    try:
        worker = Worker(service, device=settings.device)
        deliverer.start()
        LOG.info("a worker begins")
        worker.work(stop)
    except Exception:
        LOG.exception("a worker fails")
        raise
    finally:
        stop.set()
        if deliverer.ident is not None:
            deliverer.join(TIMEOUT)
        service.close()
        LOG.info("a worker ends")


def _follow(sentinel: int, stop: threading.Event) -> None:
    """Stop when the process is gone that started this one."""
    wait([sentinel])
    stop.set()


def _opened(settings: Settings, stop: threading.Event) -> Service | None:
    """The service, once it is there: a database may still be starting."""
    while not stop.is_set():
        try:
            return Service.at(settings.home, settings.database, make=False)
        except UnweaveError as error:
            LOG.warning("the service is not there yet", extra={"facts": {"why": str(error)}})
            stop.wait(PAUSE)
    return None

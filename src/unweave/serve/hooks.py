"""Whoever serves a model is told when its version changes: signed, and again until it is heard."""

import hashlib
import hmac
import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, insert, select, update

from unweave._core.document import canonical_json
from unweave.errors import ServiceError, UnweaveError
from unweave.serve import database
from unweave.serve.registry import find
from unweave.serve.service import Service, iso, now
from unweave.serve.tables import deliveries, hooks

__all__ = ["Deliverer", "add_hook", "announce", "hooks_of", "remove_hook", "signature"]

LOG = logging.getLogger("unweave.serve")

TIMEOUT, MOST, SLOWEST = 10.0, 20, 3600.0
"""Seconds that an answer may take, tries, and seconds between two of them at most."""

HELD = 60.0
"""Seconds for which a delivery that is under way is nobody else's."""


def add_hook(service: Service, model: str, url: str) -> tuple[str, str]:
    """Tell this address of every new version; the id of the hook, and the secret that it is signed with."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > 2000 or not url.isprintable():
        raise ServiceError("a hook is an address that begins with https:// or http://", status=422)
    if parts.username or parts.password:
        raise ServiceError("an address of a hook has no password in it; check its signature instead", status=422)
    name = uuid4().hex
    with database.writing(service.engine) as connection:
        find(connection, model)
        connection.execute(insert(hooks).values(id=name, model=model, url=url, made=now()))
        service.ledger.append(connection, "hook added", {"model": model, "hook": name})
    return name, service.digest("hook", name)


def remove_hook(service: Service, model: str, name: str) -> None:
    """Tell it no more."""
    with database.writing(service.engine) as connection:
        service.ledger.append(connection, "hook removed", {"model": model, "hook": name})  # in turn with all others
        connection.execute(delete(deliveries).where(deliveries.c.hook == name))
        gone = connection.execute(delete(hooks).where(hooks.c.id == name, hooks.c.model == model))
        if gone.rowcount != 1:
            raise ServiceError(f"{model} has no hook {name!r}", status=404)


def hooks_of(connection: Connection, model: str) -> list[Row[Any]]:
    """The hooks of a model."""
    return list(connection.execute(select(hooks).where(hooks.c.model == model).order_by(hooks.c.made)).all())


def announce(connection: Connection, model: str, version: int, weights: str) -> None:
    """A new version is current: leave a word for every hook, in the transaction that made it so."""
    body = {"event": "version", "model": model, "version": version, "weights": weights, "at": iso(now())}
    for hook in hooks_of(connection, model):
        row = {"id": uuid4().hex, "hook": hook.id, "attempts": 0, "not_before": 0.0}
        connection.execute(insert(deliveries).values(**row, body=canonical_json(body | {"delivery": row["id"]})))


def signature(secret: str, at: int, body: bytes) -> str:
    """What the header ``Unweave-Signature`` says: time, and HMAC-SHA256 of time and body."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Deliverer:
    """Sends what was left for hooks."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))

    def work(self, stop: threading.Event, *, every: float = 1.0) -> None:
        """Send until told to stop."""
        while not stop.is_set():
            try:
                busy = self.step()
            except UnweaveError as error:
                LOG.error("deliveries go on", extra={"facts": {"why": str(error)}})
                busy = False
            if not busy:
                stop.wait(every)

    def step(self) -> bool:
        """Send the next one that is due; whether there was one."""
        with database.writing(self.service.engine) as connection:
            query = select(deliveries, hooks.c.url).join(hooks, hooks.c.id == deliveries.c.hook)
            due = query.where(deliveries.c.not_before <= now()).order_by(deliveries.c.not_before).limit(1)
            row = connection.execute(due.with_for_update(skip_locked=True)).one_or_none()
            if row is None:
                return False
            own = deliveries.c.id == row.id
            connection.execute(update(deliveries).where(own).values(not_before=now() + HELD))
        why = self._send(row)
        with database.writing(self.service.engine) as connection:
            if why is None or row.attempts + 1 >= MOST:
                connection.execute(delete(deliveries).where(own))
            else:
                pause = min(SLOWEST, 2.0 ** (row.attempts + 1))
                values = {"attempts": row.attempts + 1, "not_before": now() + pause, "said": why}
                connection.execute(update(deliveries).where(own).values(**values))
            if why is not None and row.attempts + 1 >= MOST:
                model = json.loads(row.body)["model"]
                self.service.ledger.append(connection, "hook not heard", {"model": model, "hook": row.hook})
        return True

    def _send(self, row: Row[Any]) -> str | None:
        """Send one; what went wrong."""
        body, at = row.body.encode(), int(now())
        headers = {
            "Content-Type": "application/json",
            "Unweave-Signature": signature(self.service.digest("hook", row.hook), at, body),
        }
        try:
            sent = urllib.request.Request(row.url, body, headers, method="POST")
            with self._opener.open(sent, timeout=TIMEOUT) as answer:
                return None if 200 <= answer.status < 300 else f"answered {answer.status}"
        except urllib.error.HTTPError as error:
            with error:
                return f"answered {error.code}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:500]

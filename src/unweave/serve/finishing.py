"""What follows once a version is current: check it, audit it, purge what it supersedes, and forget who asked."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Row, func, select

from unweave.errors import LedgerError, ServiceError, UnweaveError
from unweave.run.audit import audit
from unweave.run.run import Run
from unweave.serve import database, queue
from unweave.serve.database import entries
from unweave.serve.ledger.entries import DESTROYED
from unweave.serve.papers import keep
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, open_version, purge_versions
from unweave.serve.service import Service, now
from unweave.serve.tables import requests, versions

__all__ = ["Finishing"]

LOG = logging.getLogger("unweave.serve")

FEW = 5
"""Requests that are moved in one transaction."""

PAUSE = 60.0
"""Seconds after which a version that did not pass its check is checked again."""


class Finishing:
    """Steps that may be repeated: each looks at the state that a request is in, and moves it on in one transaction.

    Args:
        service: Where.
        opened: Gives a model and one of its versions by number.
        worker: The id of who does it, and holds the model.
    """

    def __init__(
        self, service: Service, opened: Callable[[str, int | None], tuple[Row[Any], Run]], worker: str
    ) -> None:
        self.service, self.opened, self.worker = service, opened, worker
        self._scrubbed = -1

    def finish(self, name: str, policy: Policy) -> bool:
        """Move everything that is carried out as far as it goes; whether there was anything."""
        busy = False
        for state, step in (("applied", self._verify), ("verified", self._audit), ("audited", self._erase)):
            for number, rows in self._in(name, state).items():
                step(name, policy, number, rows)
                busy = True
        return busy

    def pending(self, name: str) -> bool:
        """Whether a version of a model was not checked to the end."""
        unchecked = requests.c.model == name, requests.c.state.in_(("applied", "verified", "audited"))
        with database.reading(self.service.engine) as connection:
            return connection.execute(select(requests.c.id).where(*unchecked).limit(1)).first() is not None

    def _in(self, name: str, state: str) -> dict[int, list[Row[Any]]]:
        """Requests in a state, by the version that carried them out."""
        due = requests.c.state == state, requests.c.not_before <= now()
        query = select(requests).where(requests.c.model == name, *due)
        found: dict[int, list[Row[Any]]] = {}
        with database.reading(self.service.engine) as connection:
            for row in connection.execute(query.order_by(requests.c.received)):
                found.setdefault(row.version, []).append(row)
        return found

    def _verify(self, name: str, policy: Policy, number: int, rows: Sequence[Row[Any]]) -> None:
        """Open the version from its files again, and check every receipt against model and graph."""
        try:
            _, run = self.opened(name, number)
            run.verify(memory_mib=policy.memory_mib)
        except UnweaveError as error:  # nothing is purged and nobody is forgotten before it passes
            LOG.error("a version did not pass its check", extra={"facts": {"model": name, "version": number}})
            with database.writing(self.service.engine) as connection:
                for row in rows:
                    values = {
                        "reason": f"version {number} did not pass its check: {error}",
                        "not_before": now() + PAUSE,
                    }
                    queue.move(connection, row, "applied", **values)
            return
        said = {"outcome": "opened from its files; receipts, weights and graph fit"}
        self._move(rows, "verified", "request verified", {"model": name, "version": number, **said}, reason=None)

    def _audit(self, name: str, policy: Policy, number: int, rows: Sequence[Row[Any]]) -> None:
        said: dict[str, Any] = {"outcome": "not asked for by the policy"}
        text = doubt = None
        if policy.audit != "off":
            try:
                before = self._before(name, number)
                _, after = self.opened(name, number)
                found = audit(before, after, quick=policy.audit == "quick", memory_mib=policy.memory_mib)
                text, said = found.to_json(), {"outcome": found.headline, "verdict": str(found.verdict)}
                doubt = None if found.verdict == "gone" else f"the audit says: {found.sentence}"
            except UnweaveError as error:
                said, doubt = {"outcome": f"not possible: {error}"}, f"no audit was possible: {error}"
        if text is not None:
            with database.writing(self.service.engine) as connection:
                said["report"] = keep(connection, "audit", name, number, text)
        self._move(rows, "audited", "request audited", {"model": name, "version": number, **said}, reason=doubt)

    def _before(self, name: str, number: int) -> Run:
        """The version that another one was made from; it is purged only after the audit."""
        with database.reading(self.service.engine) as connection:
            model = find(connection, name)
            older = select(func.max(versions.c.number)).where(versions.c.model == name, versions.c.number < number)
            earlier = connection.scalar(older)
            if earlier is None:
                raise ServiceError(f"version {number} of {name} was made from none")
            version = find_version(connection, name, earlier)
        return open_version(self.service, model, version)

    def _erase(self, name: str, policy: Policy, number: int, rows: Sequence[Row[Any]]) -> None:
        """Purge what still remembers, then destroy the keys of what is personal."""
        purge_versions(self.service, name, policy.keep, self.worker)
        for some in _few(rows):
            with database.writing(self.service.engine) as connection:
                for row in some:
                    queue.move(connection, row, "erased", key=None)
                    if row.key is not None:
                        self.service.forget_who(connection, row.id, row.key)

    def _move(self, rows: Sequence[Row[Any]], state: str, kind: str, body: dict[str, Any], **values: Any) -> None:
        for some in _few(rows):
            with database.writing(self.service.engine) as connection:
                for row in some:
                    queue.move(connection, row, state, **values)
                    self.service.tell(connection, row.id, kind, body)

    def scrub(self) -> bool:
        """Leave no bytes of destroyed keys behind, and call the requests done that waited for it."""
        with database.reading(self.service.engine) as connection:
            destroyed = connection.scalar(select(func.max(entries.c.sequence)).where(entries.c.kind == DESTROYED)) or 0
            rows = connection.execute(select(requests).where(requests.c.state == "erased")).all()
        if destroyed <= self._scrubbed and not rows:
            return False
        try:
            database.scrub(self.service.engine)
        except LedgerError as error:  # somebody reads; it is tried again
            LOG.warning("not yet scrubbed", extra={"facts": {"why": str(error)}})
            return False
        self._scrubbed = destroyed
        for row in rows:
            with database.writing(self.service.engine) as connection:
                try:
                    queue.move(connection, row, "done")
                except ServiceError:  # another worker was faster
                    continue
                outcome = "followed" if queue.is_change(row) else "forgotten"
                body = {"model": row.model, "version": row.version, "outcome": outcome}
                self.service.tell(connection, row.id, "request done", body)
        return bool(rows)


def _few(rows: Sequence[Row[Any]]) -> Iterator[Sequence[Row[Any]]]:
    """A few at a time, so that nobody waits long to write."""
    for start in range(0, len(rows), FEW):
        yield rows[start : start + FEW]

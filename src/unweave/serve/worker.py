"""The worker: carries requests out, one batch of one model at a time, and can be killed at any moment.

Whatever it does, it does in this order: work on files that nobody points to, then one transaction that moves the model
to them, the requests to their next state, and the ledger on. Killed before that transaction nothing happened, after it
all of it did. Two workers that take each other for dead cannot both commit: the model has moved, or is no longer held.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select, update

from unweave._core.cost import find_device
from unweave.changes import Change
from unweave.errors import (
    ClassLossError,
    DataError,
    EmptyRequestError,
    LedgerError,
    MethodError,
    RequestError,
    RunError,
    ServiceError,
    SolverError,
    UnweaveError,
)
from unweave.graph.alteration import alter
from unweave.graph.index import is_undirected
from unweave.request import Request
from unweave.run.run import Run
from unweave.serve import database, queue
from unweave.serve.altering import carried
from unweave.serve.finishing import Finishing
from unweave.serve.hooks import announce
from unweave.serve.leases import LEASE, holding, new_worker
from unweave.serve.papers import keep
from unweave.serve.policy import Policy
from unweave.serve.registry import (
    add_version,
    find,
    find_version,
    open_version,
    purge_versions,
    superseded,
    sweep,
    write_version,
)
from unweave.serve.service import Service, now
from unweave.serve.subjects import check_new, enrol_new, mark_gone
from unweave.serve.tables import models, requests, versions

__all__ = ["Worker"]

LOG = logging.getLogger("unweave.serve")

WORK = ("received", "queued", "applied", "verified", "audited")
"""States in which it is the worker's turn."""

TRIES = 5
"""Errors of the machine after which a request is set aside."""

ALONE, DEATHS = 5, 50
"""Deaths of workers after which a request is tried alone, and after which it is set aside."""

SOON = 60.0
"""Seconds at most that a request waits after a death, so that others come first."""

SLOWEST = 3600.0
"""Seconds between two tries at most."""


class Worker:
    """One worker; as many as you like may run side by side.

    Args:
        service: Where it works.
        lease: Seconds after which it is taken for dead when it says nothing.
        device: Where it computes.
    """

    def __init__(self, service: Service, *, lease: float = LEASE, device: str = "cpu") -> None:
        self.service, self.lease, self.id = service, lease, new_worker()
        self.device = find_device(device)
        self._open: tuple[tuple[str, int], Run] | None = None
        self._failed: dict[str, tuple[int, float]] = {}
        self._finishing = Finishing(service, self._run, self.id)

    def work(self, stop: threading.Event, *, every: float = 1.0) -> None:
        """Work until told to stop; what is being done then is finished first."""
        while not stop.is_set():
            try:
                busy = self.step(stop)
            except UnweaveError as error:  # a database that is away comes back
                LOG.error("the worker goes on", extra={"facts": {"why": str(error)}})
                busy = False
            if not busy:
                stop.wait(every)

    def step(self, stop: threading.Event | None = None) -> bool:
        """Do what is due now; whether there was anything."""
        busy = False
        for name in self._due():
            if stop is not None and stop.is_set():
                break
            try:
                with holding(self.service, name, self.id, lease=self.lease) as held:
                    busy |= held and self._work_on(name)
                self._failed.pop(name, None)
            except Exception as error:  # of one model: others must not wait for it
                count = self._failed.get(name, (0, 0.0))[0] + 1
                self._failed[name] = (count, now() + min(SLOWEST, 2.0 ** min(count, 30)))
                self._open = None
                LOG.exception("work on a model failed", extra={"facts": {"model": name, "why": type(error).__name__}})
        return self._finishing.scrub() or busy

    def _due(self) -> list[str]:
        """Models that have something to do, whoever waited longest first, but for those that failed a while ago."""
        with database.reading(self.service.engine) as connection:
            query = select(requests.c.model).where(requests.c.state.in_(WORK), requests.c.not_before <= now())
            found = connection.scalars(query.group_by(requests.c.model).order_by(func.min(requests.c.received))).all()
            names = dict.fromkeys([*found, *superseded(connection)])
        return [name for name in names if self._failed.get(name, (0, 0.0))[1] <= now()]

    def _work_on(self, name: str) -> bool:
        sweep(self.service, name, self.id)
        with database.reading(self.service.engine) as connection:
            policy = Policy.read(find(connection, name).policy)
        busy = self._finishing.finish(name, policy)
        checked = not self._finishing.pending(name)  # on what is not, nothing is built, and what it needs stays
        if checked:
            purge_versions(self.service, name, policy.keep, self.id)
        busy |= self._screen(name, policy)
        batch = self._batch(name, policy) if checked else []
        if batch:
            self._attempt(name, policy, batch)
            self._finishing.finish(name, policy)
        return busy or bool(batch)

    def _screen(self, name: str, policy: Policy) -> bool:
        """Look at what came in: queue it, or let it wait for an approval."""
        with database.reading(self.service.engine) as connection:
            rows = connection.execute(_of(name, "received").limit(policy.batch)).all()
        for row in rows:
            body: dict[str, Any] = {"model": name, "flagged": False, "statement": "not asked for by the policy"}
            try:
                body |= self._look(name, row) if policy.screen else {}
            except RequestError as error:
                with database.writing(self.service.engine) as connection:
                    queue.end(self.service, connection, row, _why(row, error), "the worker")
                continue
            with database.writing(self.service.engine) as connection:
                queue.move(connection, row, "waiting" if body["flagged"] else "queued")
                self.service.tell(connection, row.id, "request screened", body)
        return bool(rows)

    def _look(self, name: str, row: Row[Any]) -> dict[str, Any]:
        """Screen what would be carried out; what cannot be screened waits for somebody to look at it."""
        run = self._run(name)[1]
        asked = self._asked(row, run)
        try:
            if isinstance(asked, Change):
                alter(run.data, asked)
                return {"flagged": True, "statement": "data that is added or corrected cannot be screened: look at it"}
            found = run.screen(asked)
        except EmptyRequestError:  # earlier requests took all of it
            return {"statement": "there is nothing left of it"}
        except (DataError, MethodError, SolverError) as error:
            return {"flagged": True, "statement": f"it cannot be screened: {error}"}
        return {"flagged": found.flagged, "statement": found.statement}

    def _batch(self, name: str, policy: Policy) -> Sequence[Row[Any]]:
        """Take what is due to be carried out as one, in order; a death while it is done is counted beforehand."""
        with database.writing(self.service.engine) as connection:
            left = requests.c.model == name, requests.c.state == "queued", requests.c.batch.is_not(None)
            connection.execute(update(requests).where(*left).values(batch=None))  # of a worker that was killed
            waits = _of(name, "queued").where(requests.c.not_before <= now())
            rows = connection.execute(waits.limit(policy.batch)).all()
            for row in [row for row in rows if row.attempts >= DEATHS]:
                self._set_aside(connection, row, f"workers died {row.attempts} times while they carried it out")
            rows = [row for row in rows if row.attempts < DEATHS]
            lone = [row.alone or row.attempts >= ALONE for row in rows]
            if not rows or (len(rows) < policy.batch and not lone[0] and now() < rows[0].at + policy.within):
                return []
            lone = [one or queue.is_change(row) for one, row in zip(lone, rows, strict=True)]
            rows = rows[: max(1, min([*lone, True].index(True), policy.batch))]
            for row in rows:
                pause = 0.0 if row.attempts < ALONE else now() + min(SOON, 2.0 ** (row.attempts - ALONE))
                taken = {"batch": self.id, "attempts": row.attempts + 1, "not_before": pause}
                connection.execute(update(requests).where(requests.c.id == row.id).values(**taken))
            chosen = requests.c.id.in_([row.id for row in rows])
            return connection.execute(select(requests).where(chosen).order_by(requests.c.received)).all()

    def _attempt(self, name: str, policy: Policy, rows: Sequence[Row[Any]]) -> None:
        """Carry a batch out; what cannot be is tried alone, and then refused or set aside with the reason."""
        try:
            self._carry_out(name, policy, rows)
        except (ServiceError, LedgerError, RunError) as error:  # somebody was faster, or database or files do not serve
            LOG.warning("a batch is tried again", extra={"facts": {"model": name, "why": str(error)}})
            self._later(rows, str(error), given_up=None)
        except UnweaveError as error:
            refused = isinstance(error, RequestError) and not isinstance(error, ClassLossError)
            with database.writing(self.service.engine) as connection:
                for row in rows:
                    if len(rows) > 1:
                        values = {"alone": True, "attempts": 0, "batch": None}
                        connection.execute(update(requests).where(requests.c.id == row.id).values(**values))
                    elif refused:
                        queue.end(self.service, connection, row, _why(row, error), "the worker")
                    else:
                        self._set_aside(connection, row, str(error))
        except Exception as error:  # of the machine: memory, disk, a bug; others must not wait for it
            LOG.exception("a batch failed", extra={"facts": {"model": name, "requests": len(rows)}})
            self._later(rows, f"{type(error).__name__}: {error}", given_up=rows[0].attempts >= TRIES)

    def _later(self, rows: Sequence[Row[Any]], why: str, *, given_up: bool | None) -> None:
        """Try again in a while; ``given_up`` says whether it was tried too often, ``None`` that this does not count."""
        with database.writing(self.service.engine) as connection:
            for row in rows:
                if given_up and len(rows) == 1:
                    self._set_aside(connection, row, why)
                    continue
                pause = min(SLOWEST, 2.0 ** min(row.attempts, 30))
                values: dict[str, Any] = {"not_before": now() + pause, "batch": None}
                values |= {"alone": True, "attempts": 0} if given_up else {}
                values |= {"attempts": row.attempts - 1} if given_up is None else {}
                still = requests.c.id == row.id, requests.c.state == row.state
                connection.execute(update(requests).where(*still).values(**values))

    def _set_aside(self, connection: Connection, row: Row[Any], reason: str) -> None:
        queue.move(connection, row, "aside", reason=reason, batch=None)
        self.service.tell(connection, row.id, "request set aside", {"model": row.model, "reason": reason})

    def _carry_out(self, name: str, policy: Policy, rows: Sequence[Row[Any]]) -> None:
        model, before = self._run(name)
        asked = [self._asked(row, before) for row in rows]
        after = _after(before, asked, policy)
        new = after.receipts[len(before.receipts) :]
        last = next(receipt for receipt in reversed(new) if receipt.kind in ("request", "change"))
        newcomers = self._newcomers(name, rows, before)
        number = self._next(name)
        facts = {
            "f1": after.metrics.get("test_f1"),
            "from": model.current,
            "grade": last.grade,
            "method": last.method,
            "requests": len(rows),
            "verdict": last.verdict,
        }
        made = write_version(self.service, name, number, after, facts)
        with database.writing(self.service.engine) as connection:
            mine = models.c.name == name, models.c.current == model.current, models.c.worker == self.id
            moved = connection.execute(
                update(models).where(*mine).values(current=number, forgot=models.c.forgot + len(rows))
            )
            if moved.rowcount != 1:
                raise ServiceError(f"{name} is no longer held, or was moved by somebody else; it is done again")
            add_version(self.service, connection, name, number, find(connection, name).forgot, made)
            receipts = [keep(connection, "receipt", name, number, receipt.to_json()) for receipt in new]
            for row in rows:
                queue.move(connection, row, "applied", version=number, batch=None, reason=None, not_before=0.0)
                body = {"model": name, "version": number, "weights": made.weights, "receipts": receipts}
                self.service.tell(connection, row.id, "request applied", body | {"grade": last.grade})
            forgets = [each.forget if isinstance(each, Change) else each for each in asked]
            mark_gone(connection, name, {node for request in forgets if request is not None for node in request.nodes})
            enrol_new(self.service, connection, name, newcomers)
            announce(connection, name, number, made.weights)

    def _next(self, name: str) -> int:
        with database.reading(self.service.engine) as connection:
            return int(connection.scalar(select(func.max(versions.c.number)).where(versions.c.model == name))) + 1

    def _personal(self, row: Row[Any]) -> dict[str, Any]:
        with database.reading(self.service.engine) as connection:
            found = queue.personal_of(self.service, connection, row)
        if found is None:
            raise ServiceError(f"what request {row.id} asks for is gone")
        return found

    def _newcomers(self, name: str, rows: Sequence[Row[Any]], run: Run) -> dict[str, int]:
        """Who comes with a change, and which node each is; refused where somebody else brought them meanwhile."""
        changes = [row for row in rows if queue.is_change(row)]
        ids = [node["id"] for row in changes for node in self._personal(row)["asked"].get("add", {}).get("nodes", ())]
        with database.reading(self.service.engine) as connection:
            try:
                check_new(self.service, connection, name, ids)
            except ServiceError as error:
                raise RequestError("somebody new in it came with another request meanwhile") from error
        return {key: int(run.data.num_nodes) + place for place, key in enumerate(ids)}

    def _asked(self, row: Row[Any], run: Run) -> Request | Change:
        found = self._personal(row)
        if queue.is_change(row):
            return carried(found["content"]["change"], int(run.data.num_nodes))
        return Request.merged([Request.from_dict(found["content"])], undirected=is_undirected(run.data))

    def _run(self, name: str, number: int | None = None) -> tuple[Row[Any], Run]:
        """A model and one of its versions, by default the current one, which is kept open."""
        with database.reading(self.service.engine) as connection:
            model = find(connection, name)
            version = find_version(connection, name, model.current if number is None else number)
        key = (name, int(version.number))
        if self._open is None or self._open[0] != key:
            self._open = None
            self._open = (key, open_version(self.service, model, version).to(self.device))
        return model, self._open[1]


def _after(before: Run, asked: Sequence[Request | Change], policy: Policy) -> Run:
    """The run after a batch of requests, or after one change."""
    if isinstance(asked[0], Change):
        return before.update(asked[0], policy.for_changes(), strict=True, purge=policy.purge)
    requests = [each for each in asked if isinstance(each, Request)]
    return before.forget(requests, policy.method, batch=True, strict=True, **policy.how())


def _why(row: Row[Any], error: UnweaveError) -> str:
    """Why a request is refused. The ledger keeps it for good, so that it has no value of a change in it."""
    if not queue.is_change(row):
        return str(error)
    return (
        "it does not fit the graph: an edge that is there already or is not there, a class or a weight that there is "
        "not, a row of another width, or somebody who came or went meanwhile; nothing was changed"
    )


def _of(name: str, state: str) -> Select[Any]:
    """The requests of a model in one state, in the order in which they came."""
    return select(requests).where(requests.c.model == name, requests.c.state == state).order_by(requests.c.received)

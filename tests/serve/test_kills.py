"""Server and workers are killed at random moments while clients submit: nothing is lost, nothing is done twice."""

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
import uvicorn
from safetensors.torch import save_file
from sqlalchemy import func, select

import unweave as uw
from unweave.client import Client
from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.api.app import create_app
from unweave.serve.leases import holding
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, open_version, register, sweep
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tables import requests, subjects
from unweave.serve.tokens import new_token
from unweave.serve.worker import Worker
from unweave.testing import small_graph

NODES, LEASE = 3000, 1.0
FEW, MANY = 12, 1000
"""Kills in the suite, and where there is time."""


def answer(home: Path, url: str | None, port: int) -> None:
    """A server, until it is killed."""
    torch.set_num_threads(1)
    service = Service.at(home, url, make=False)
    settings = Settings(home=home, port=port, rate=1e6, burst=10**6)
    uvicorn.Server(uvicorn.Config(create_app(service, settings), port=port, log_config=None)).run()


def labour(home: Path, url: str | None) -> None:
    """A worker, until it is killed."""
    torch.set_num_threads(1)
    Worker(Service.at(home, url, make=False), lease=LEASE).work(threading.Event(), every=0.05)


class Clients:
    """They submit one subject after another, and again with the same key until it is acknowledged."""

    def __init__(self, port: int, token: str, pause: float) -> None:
        self.acknowledged: dict[str, int] = {}
        self.refusals = Counter[int]()
        self.over, self.pause = threading.Event(), pause
        self._client = Client(f"http://127.0.0.1:{port}", token, timeout=5)
        self._threads = [threading.Thread(target=self._submit, args=(first,)) for first in (0, 1)]
        for thread in self._threads:
            thread.start()

    def _submit(self, first: int) -> None:
        for node in range(first, NODES, 2):
            while not self.over.wait(self.pause):
                try:
                    found = self._client.submit("shop", subjects=[f"person-{node}"], key=f"key {node}")
                except ServiceError as error:
                    self.refusals[error.status] += 1
                    continue
                self.acknowledged[found["id"]] = node
                break
            if self.over.is_set():
                return

    def end(self) -> dict[str, int]:
        self.over.set()
        for thread in self._threads:
            thread.join()
        return self.acknowledged


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with many nodes and a very small model."""
    place = tmp_path_factory.mktemp("people")
    data = small_graph(nodes=NODES)
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=2)
    uw.train(model, data, seed=0, epochs=30, weight_decay=1e-2, forgettable=True, examine=False).save(place / "run")
    save_file({key: value for key, value in data.to_dict().items() if torch.is_tensor(value)}, place / "g.safetensors")
    return place


@pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_every_acknowledged_request_ends_once(
    tmp_path: Path, url: str | None, people: Path, warm: ForkServerContext, kills: int
) -> None:
    home, rng = tmp_path / "service", random.Random(kills)
    service = Service.at(home, url)
    register(
        service,
        "shop",
        people / "run",
        ids={f"person-{node}": node for node in range(NODES)},
        graph=people / "g.safetensors",
        policy=Policy(method="gif", screen=False, batch=20),
    )
    token = new_token(service, "clients", ["submit", "read"])[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(which: str) -> BaseProcess:
        arguments = (home, url, port) if which == "server" else (home, url)
        process = warm.Process(target=answer if which == "server" else labour, args=arguments, daemon=True)
        process.start()
        return process

    running = {which: start(which) for which in ("server", "one worker", "another worker")}
    clients = Clients(port, token, pause=0.15 if kills == FEW else 0.3)
    killed, until = Counter[str](), time.monotonic() + 120
    while not clients.acknowledged and time.monotonic() < until:  # on a busy machine they may take long to begin
        time.sleep(0.05)
    for _ in range(kills):
        time.sleep(rng.expovariate(1 / 0.3))
        which = rng.choice(list(running))
        pid = running[which].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        running[which].join()
        killed[which] += 1
        running[which] = start(which)
    acknowledged = clients.end()
    until = time.monotonic() + 120
    while time.monotonic() < until and _open(service):
        time.sleep(0.2)
    for process in running.values():
        process.kill()
        process.join()
    _check(service, acknowledged)
    assert acknowledged
    assert not set(clients.refusals) - {0, 500, 502, 503, 504}, clients.refusals
    assert sum(killed.values()) == kills
    service.close()


def _open(service: Service) -> int:
    with database.reading(service.engine) as connection:
        return int(connection.scalar(select(func.count()).where(requests.c.state.in_(queue.OPEN))) or 0)


def _check(service: Service, acknowledged: dict[str, int]) -> None:
    with database.reading(service.engine) as connection:
        rows = connection.execute(select(requests)).all()
        told = {row.id: Counter(entry.kind for entry in queue.timeline(connection, row.id)) for row in rows}
        model = find(connection, "shop")
        version = find_version(connection, "shop", model.current)
        gone = connection.scalar(select(func.count()).where(subjects.c.node.is_(None)))
    assert set(acknowledged) <= set(told), "a request that was acknowledged is lost"
    assert Counter(row.state for row in rows) == {"done": len(rows)}
    once = Counter(dict.fromkeys(("received", "screened", "applied", "verified", "audited", "done"), 1))
    assert all(
        Counter({kind.removeprefix("request "): n for kind, n in each.items() if kind.startswith("request ")}) == once
        for each in told.values()
    ), "something happened twice, or not at all"
    assert len(set(acknowledged.values())) == len(acknowledged), "one submission was taken twice"
    assert model.forgot == len(rows) == gone
    run = open_version(service, model, version).verify()
    taken = sorted(run.receipts.taken.nodes)
    assert set(acknowledged.values()) <= set(taken)
    assert len(taken) == len(rows)
    with holding(service, "shop", "the test", lease=60) as held:
        assert held
        sweep(service, "shop", "the test")
    assert [place.name for place in service.folder("shop").iterdir()] == [version.folder]
    assert service.ledger.verify().entries > 6 * len(rows)

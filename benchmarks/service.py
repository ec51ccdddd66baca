"""A service under load: how many submissions a second, and does a long history slow it down?

    python benchmarks/service.py
    python benchmarks/service.py --history 1000 --seconds 3

A service is started as everybody starts it, with SQLite and one worker that is busy all the while. Clients submit at
growing rates, each rate for some seconds, one subject at a time, over loopback. Then very many requests are put into
its history, and every list of the API and of the page is asked for again and again.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch
from generated import planted
from pages.service import PAGE
from safetensors.torch import save_file
from shared import Document, arguments, made, write_document

import unweave as uw
from unweave.models import build
from unweave.serve import database, queue
from unweave.serve.policy import Policy
from unweave.serve.registry import register
from unweave.serve.service import Service
from unweave.serve.subjects import Asked, mark_gone, resolve
from unweave.serve.tokens import new_token

NODES, FEATURES, CLASSES = 20_000, 32, 4
RATES = (10, 20, 30, 40, 50, 60, 80)
"""Submissions a second."""

CLIENTS, CALLS, AT_ONCE = 16, 200, 500
SCOPES = ("submit", "read", "operate", "administer")
LISTS = {
    "requests": "/api/v1/requests?limit=50",
    "requests that are open": "/api/v1/requests?state=open",
    "requests that are done": "/api/v1/requests?state=done&limit=200",
    "requests of a model": "/api/v1/requests?model=shop",
    "requests in the middle": "/api/v1/requests?before={middle}",
    "models": "/api/v1/models",
    "one model": "/api/v1/models/shop",
    "versions": "/api/v1/models/shop/versions",
    "ledger": "/api/v1/ledger",
    "entries": "/api/v1/ledger/entries?limit=100",
    "entries in the middle": "/api/v1/ledger/entries?after={middle}&limit=100",
    "tokens": "/api/v1/tokens",
    "metrics": "/metrics",
    "page: queue": "/",
    "page: done": "/?state=done",
    "page: models": "/models",
    "page: model": "/models/shop",
    "page: ledger": "/ledger",
}


def prepare(home: Path) -> str:
    """A service with a model, and a token for it."""
    data = planted(NODES, 6 * NODES, features=FEATURES, classes=CLASSES)
    run = uw.train(build("sgc", FEATURES, CLASSES), data, epochs=20)
    run.save(home.parent / "run")
    graph = home.parent / "graph.safetensors"
    save_file({key: value for key, value in data.to_dict().items() if torch.is_tensor(value)}, graph)
    service = Service.at(home)
    ids = {f"person {node}": node for node in range(NODES)}
    policy = Policy(method="gif", screen=False)
    register(service, "shop", home.parent / "run", ids=ids, graph=graph, policy=policy)
    token = new_token(service, "load", SCOPES)[1]
    service.close()
    return token


@contextmanager
def running(home: Path) -> Iterator[tuple[int, int]]:
    """The service, started as everybody does; its port and process."""
    log = home.parent / "log"
    how = {"OMP_NUM_THREADS": "1", "UNWEAVE_SERVE_RATE": "1e9", "UNWEAVE_SERVE_BURST": "1000000000"}
    command = [
        sys.executable,
        "-c",
        "from unweave.cli import main; main()",
        "serve",
        "--home",
        str(home),
        "--port",
        "0",
    ]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | how)
    while (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        time.sleep(0.1)
    try:
        yield int(found[1]), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class Person:
    """One connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> float:
        """Seconds until all of the answer is there."""
        begin = time.perf_counter()
        self._connection.request(method, path, body, self._headers | headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status not in (200, 202):
            raise RuntimeError(f"{method} {path}: {answer.status}")
        return time.perf_counter() - begin


def submit_at(rate: int, seconds: float, port: int, token: str, first: int) -> Document:
    """Submissions at a rate; what is late is counted from when it should have begun."""
    due = [time.perf_counter() + 0.2 + number / rate for number in range(int(rate * seconds))]
    took: list[float] = []
    turn = iter(list(enumerate(due)))
    lock = threading.Lock()

    def work() -> None:
        person = Person(port, token)
        while True:
            with lock:
                number, at = next(turn, (-1, 0.0))
            if number < 0:
                return
            time.sleep(max(0.0, at - time.perf_counter()))
            person.ask("POST", "/api/v1/models/shop/requests", json.dumps({"subjects": [f"person {first + number}"]}))
            took.append(time.perf_counter() - at)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": rate, "submissions": len(took), **_figures(took)}


def fill(home: Path, count: int) -> None:
    """Put requests into the history: what somebody asks for once more, and is answered."""
    service = Service.at(home)
    asked = Asked.of({"subjects": [f"person {NODES - 1}"]})
    with database.writing(service.engine) as connection:
        mark_gone(connection, "shop", [NODES - 1])
    for start in range(0, count, AT_ONCE):
        with database.writing(service.engine) as connection:
            found = resolve(service, connection, "shop", asked, [])
            for _ in range(min(AT_ONCE, count - start)):
                queue._enter(service, connection, "shop", asked, found, token=None, key=None, meant="")
        if start % 10_000 == 0:
            print(f"{start} of {count} in the history", flush=True)
    service.close()


def lists(port: int, token: str, middle: int) -> Document:
    """How long every list takes."""
    person = Person(port, token)
    cookie = _signed_in(port, token)
    found: Document = {}
    for name, path in LISTS.items():
        there = path.format(middle=middle)
        found[name] = _figures([person.ask("GET", there, Cookie=cookie) for _ in range(CALLS)])
    return found


def _signed_in(port: int, token: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/signin")
    answer = connection.getresponse()
    text = answer.read().decode()
    first = (answer.getheader("Set-Cookie") or "").split(";")[0]
    fields = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', text)) | {"token": token}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": first}
    connection.request("POST", "/signin", urlencode(fields), headers)
    answer = connection.getresponse()
    answer.read()
    return (answer.getheader("Set-Cookie") or "").split(";")[0]


def _figures(took: list[float]) -> Document:
    median, high = np.percentile(took, [50, 99])
    return {"median_ms": round(1e3 * float(median), 1), "p99_ms": round(1e3 * float(high), 1)}


def _memory(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return round(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024, 1)


def main() -> None:
    """Measure, and make the page."""
    parser = arguments(__doc__, "service", history=100_000, seconds=10.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "service"
        token = prepare(home)
        document: Document = {"load": [], "history": asked.history}
        with running(home) as (port, _):
            first = 0
            for rate in RATES:
                document["load"].append(submit_at(rate, asked.seconds, port, token, first))
                print(document["load"][-1], flush=True)
                first += int(rate * asked.seconds)
        with running(home) as (port, pid):
            document["before"] = lists(port, token, 10)
        fill(home, asked.history)
        with running(home) as (port, pid):
            document["memory_mib"] = [_memory(pid)]
            document["after"] = lists(port, token, asked.history)
            for _ in range(3):
                lists(port, token, asked.history)
                document["memory_mib"].append(_memory(pid))
        write_document(asked.out / "service.json", document | made("cpu"))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

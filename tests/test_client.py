"""The client against a service that listens on a port of its own."""

import hashlib
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from safetensors.torch import save_file

import unweave as uw
from unweave.client import Client
from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.api.app import create_app
from unweave.serve.policy import Policy
from unweave.serve.registry import register
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.tokens import first_token
from unweave.serve.worker import Worker
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a model ``shop``."""
    place = tmp_path_factory.mktemp("client")
    data = small_graph(nodes=90)
    model = uw.models.GCN(data.num_features, int(data.num_classes), hidden=4)
    uw.train(model, data, seed=0, epochs=20, weight_decay=1e-2, forgettable=True).save(place / "run")
    tensors = {key: value for key, value in data.to_dict().items() if torch.is_tensor(value)}
    save_file(tensors, place / "graph.safetensors")
    found = Service.at(place / "service")
    ids, columns = {f"person-{node}": node for node in range(90)}, [f"column {number}" for number in range(8)]
    how: dict[str, Any] = {"graph": place / "graph.safetensors", "policy": Policy(method="gif", screen=False)}
    register(found, "shop", place / "run", ids=ids, columns=columns, **how)
    yield found
    found.close()


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    """A client of it, over a real connection."""
    config = uvicorn.Config(create_app(service, Settings(home=service.home)), port=0, log_config=None, ws="none")
    server, started = uvicorn.Server(config), threading.Event()
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        started.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Client(f"http://127.0.0.1:{port}/", first_token(service) or "")
    server.should_exit = True
    thread.join()


def work(service: Service) -> None:
    worker = Worker(service)
    while worker.step():
        pass


def in_state(service: Service, name: str, state: str) -> None:
    with database.writing(service.engine) as connection:
        queue.move(connection, queue.one(connection, name), state)


def test_a_request_is_submitted_followed_and_proved(client: Client, service: Service, tmp_path: Path) -> None:
    assert [model["name"] for model in client.models()] == ["shop"]
    taken = client.submit("shop", subjects=["person-3"], note="by mail", key="mail 7")
    assert client.submit("shop", subjects=["person-3"], note="by mail", key="mail 7")["id"] == taken["id"]
    assert client.request(taken["id"])["asked"]["note"] == "by mail"
    working = threading.Thread(target=work, args=(service,))
    working.start()
    done = client.wait(taken["id"], 60)
    working.join()
    assert done["state"] == "done"
    assert client.receipts(taken["id"])[0]["request"]["nodes"] == [3]
    assert zipfile.is_zipfile(client.evidence(taken["id"], tmp_path / "evidence.zip"))
    features = {"person-5": ["column 1"], "person-6": "all"}
    parts = client.submit("shop", edges=[("person-1", "person-2")], features=features, labels=["person-7"])
    assert parts["counts"] == {"edges": 1, "features": 2, "labels": 1}
    client.refuse(parts["id"], "only a trial")


def test_weights_are_fetched_when_they_are_new(client: Client, service: Service, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    assert client.weights("shop", path)
    assert not client.weights("shop", path), "they are here already"
    client.submit("shop", subjects=["person-11"])
    work(service)
    assert client.weights("shop", path)
    newest, *older = client.versions("shop")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == newest["weights"]
    assert all(version["purged"] for version in older)
    with pytest.raises(ServiceError, match="purged") as caught:
        client.weights("shop", path, 1)
    assert caught.value.status == 410
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_versions_of_many_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"": {"items": [{"number": 2}], "next": "2"}, "?before=2": {"items": [{"number": 1}], "next": None}}
    monkeypatch.setattr(client, "_json", lambda method, path: pages[path.removeprefix("/models/shop/versions")])
    assert [version["number"] for version in client.versions("shop")] == [2, 1]


def test_operators_decide(client: Client, service: Service) -> None:
    first, second = (client.submit("shop", subjects=[f"person-{node}"])["id"] for node in (20, 21))
    in_state(service, first, "waiting")
    in_state(service, second, "aside")
    assert client.approve(first)["state"] == client.retry(second)["state"] == "queued"
    with pytest.raises(ServiceError, match=r"queued after 0\.1 seconds") as caught:
        client.wait(first, 0.1)
    assert caught.value.status == 408
    assert [client.refuse(name, "a trial")["state"] for name in (first, second)] == ["refused", "refused"]


def test_what_is_refused_is_told_as_the_service_tells_it(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="never in the table") as caught:
        client.submit("shop", subjects=["nobody"])
    assert (caught.value.status, caught.value.details) == (422, {"unknown": ["nobody"]})
    with pytest.raises(ServiceError, match="no model 'none'"):
        client.submit("none", subjects=["nobody"])
    with pytest.raises(ServiceError, match="nothing at this address"):
        client.request("../tokens")
    with pytest.raises(ServiceError, match="not what they should be"):
        client.request("x")
    with pytest.raises(ServiceError, match="send a token"):
        Client(client.url, "unweave_other").models()
    with pytest.raises(ServiceError, match="no request"):
        client.evidence("0" * 32, tmp_path / "evidence.zip")
    assert not list(tmp_path.iterdir())


class _Strange(BaseHTTPRequestHandler):
    """Something else than a service."""

    seen: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        body = {"/api/v1/models": b"<html>", "/api/v1/requests/list": b"[]"}.get(self.path, b"x" * 10)
        status = {"/api/v1/requests/moved": 302, "/api/v1/requests/broken": 500}.get(self.path, 200)
        self.send_response(status)
        self.send_header("Location", "/api/v1/requests/elsewhere")
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", str(len(body) + 5 * self.path.endswith("evidence")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def strange() -> Iterator[Client]:
    server = HTTPServer(("127.0.0.1", 0), _Strange)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Client(f"http://127.0.0.1:{server.server_port}", "secret")
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_no_service_is_not_believed(strange: Client, tmp_path: Path) -> None:
    _Strange.seen.clear()
    with pytest.raises(ServiceError, match="did not answer as a service"):
        strange.models()
    with pytest.raises(ServiceError, match="did not answer as a service"):
        strange.request("list")
    with pytest.raises(ServiceError, match="answered 302"):
        strange.request("moved")
    assert len(_Strange.seen) == 3, "a token does not follow a redirect"
    with pytest.raises(ServiceError, match="answered 500"):
        strange.request("broken")
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(ServiceError, match="not what the service has"):
        strange.weights("shop", path)
    with pytest.raises(ServiceError, match="cut"):
        strange.evidence("x", path)
    assert path.read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_service_that_is_away_or_no_address(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="does not answer") as caught:
        Client("http://127.0.0.1:9", "x").models()
    assert caught.value.status == 503
    with pytest.raises(ServiceError, match="not known"):
        Client("http://127.0.0.1:9", "x").wait("0" * 32, 0.05)
    with pytest.raises(ServiceError, match="begins with https"):
        Client("ftp://service.test", "x")
    with pytest.raises(ServiceError, match="certificate"):
        Client("https://service.test", "x", certificate=tmp_path / "none.pem")
    assert "secret" not in repr(Client("https://service.test", "secret"))


def test_it_needs_neither_torch_nor_an_extra() -> None:
    code = "import sys, json, unweave.client; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    ours = {name for name in loaded if name.startswith("unweave")}
    assert "unweave.errors" in ours
    assert not {name for name in ours if name.split(".")[1:2] not in ([], ["client"], ["errors"], ["_core"])}
    assert not {"torch", "numpy", "httpx", "requests", "fastapi"} & set(loaded)

"""A request from its submission to its end, on SQLite and on PostgreSQL."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sqlalchemy import select

import unweave as uw
from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.papers import read
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, go_back, open_version, register, set_policy
from unweave.serve.service import Service
from unweave.serve.tables import requests, versions
from unweave.serve.worker import Worker
from unweave.testing import small_graph


def state_of(service: Service, name: str) -> str:
    with database.reading(service.engine) as connection:
        return str(queue.one(connection, name).state)


def kinds(service: Service, name: str) -> list[str]:
    with database.reading(service.engine) as connection:
        return [entry.kind.removeprefix("request ") for entry in queue.timeline(connection, name)]


def work(service: Service) -> None:
    worker = Worker(service)
    while worker.step():
        pass


def test_a_request_goes_from_received_to_done(shop: Service) -> None:
    answer = queue.submit(shop, "shop", {"subjects": ["person-3"], "note": "by mail"})
    assert answer.new
    assert answer.row.state == "received"
    work(shop)
    told = kinds(shop, answer.row.id)
    assert told == ["received", "screened", "applied", "verified", "audited", "subject key destroyed", "done"]
    assert state_of(shop, answer.row.id) == "done"
    with database.reading(shop.engine) as connection:
        model = find(connection, "shop")
        run = open_version(shop, model, find_version(connection, "shop", model.current))
        applied = next(e for e in queue.timeline(connection, answer.row.id) if e.kind == "request applied")
        receipt = json.loads(read(connection, applied.body["receipts"][0]))
    assert (model.current, model.forgot) == (2, 1)
    assert receipt["request"]["nodes"] == [3]
    assert not (run.data.edge_index == 3).any()
    assert shop.ledger.verify().entries > 5


def test_what_a_request_names_is_found_by_the_owners_ids(shop: Service) -> None:
    with database.reading(shop.engine) as connection:
        model = find(connection, "shop")
        data = open_version(shop, model, find_version(connection, "shop", 1)).data
    one, other = (f"person-{node}" for node in data.edge_index[:, 0].tolist())
    asked = {"edges": [[one, other]], "features": {"person-7": ["column 2"], "person-8": "all"}, "labels": ["person-9"]}
    answer = queue.submit(shop, "shop", asked)
    work(shop)
    with database.reading(shop.engine) as connection:
        model = find(connection, "shop")
        after = open_version(shop, model, find_version(connection, "shop", 2)).data
    assert state_of(shop, answer.row.id) == "done"
    assert after.edge_index.size(1) == data.edge_index.size(1) - 2
    assert float(after.x[7, 2]) == 0 != float(data.x[7, 2])
    assert not after.x[8].any()
    assert not bool(after.train_mask[9])
    assert torch.equal(after.x[10], data.x[10])


def test_ids_that_were_never_there_are_refused_with_a_list(shop: Service) -> None:
    with pytest.raises(ServiceError, match="2 of 3 ids") as caught:
        queue.submit(shop, "shop", {"subjects": ["person-1", "nobody", "no one"]})
    assert caught.value.details["unknown"] == ["nobody", "no one"]
    with pytest.raises(ServiceError, match="no such columns") as caught:
        queue.submit(shop, "shop", {"features": {"person-1": ["column 1", "age"]}})
    assert caught.value.details["unknown_columns"] == ["age"]
    with database.reading(shop.engine) as connection:
        assert not queue.listed(connection)


def test_what_is_gone_is_said_and_the_rest_is_carried_out(shop: Service) -> None:
    queue.submit(shop, "shop", {"subjects": ["person-3"]})
    work(shop)
    again = queue.submit(shop, "shop", {"subjects": ["person-3"]})
    assert (again.row.state, again.gone) == ("done", ("person-3",))
    assert "already" in again.row.reason
    partly = queue.submit(shop, "shop", {"subjects": ["person-3", "person-4"]})
    assert (partly.row.state, partly.gone) == ("received", ("person-3",))
    work(shop)
    assert state_of(shop, partly.row.id) == "done"


def test_the_same_key_is_the_same_request(shop: Service) -> None:
    first = queue.submit(shop, "shop", {"subjects": ["person-3"]}, token="a", idempotency="k")
    again = queue.submit(shop, "shop", {"subjects": ["person-3"]}, token="a", idempotency="k")
    assert (again.row.id, again.new) == (first.row.id, False)
    assert queue.submit(shop, "shop", {"subjects": ["person-4"]}, token="b", idempotency="k").new
    with pytest.raises(ServiceError, match="another request"):
        queue.submit(shop, "shop", {"subjects": ["person-5"]}, token="a", idempotency="k")


def test_requests_of_one_batch_share_a_version_and_a_bad_one_stands_alone(shop: Service) -> None:
    good = [queue.submit(shop, "shop", {"subjects": [f"person-{n}"]}).row.id for n in (3, 4)]
    bad = queue.submit(shop, "shop", {"edges": [["person-1", "person-1"]]}).row.id
    late = queue.submit(shop, "shop", {"subjects": ["person-5"]}).row.id
    work(shop)
    assert [state_of(shop, name) for name in (*good, late, bad)] == ["done", "done", "done", "refused"]
    with database.reading(shop.engine) as connection:
        row = queue.one(connection, bad)
    assert "person" not in row.reason
    assert "1" in row.reason
    assert row.key is None
    assert shop.ledger.verify()


def test_a_batch_waits_as_long_as_its_policy_says(shop: Service) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=False, within=3600, batch=2))
    first = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    work(shop)
    assert state_of(shop, first) == "queued"
    second = queue.submit(shop, "shop", {"subjects": ["person-4"]}).row.id
    work(shop)
    with database.reading(shop.engine) as connection:
        found = connection.execute(select(requests.c.version).where(requests.c.id.in_([first, second]))).scalars().all()
    assert found == [2, 2]


def test_versions_that_remember_are_purged_and_never_current_again(shop: Service) -> None:
    queue.submit(shop, "shop", {"subjects": ["person-3"]})
    work(shop)
    folders = {place.name.split("-")[0] for place in shop.folder("shop").iterdir()}
    assert folders == {"2"}
    with pytest.raises(ServiceError, match="purged"):
        go_back(shop, "shop", 1)
    set_policy(shop, "shop", Policy(method="gif", screen=False, keep=1))
    queue.submit(shop, "shop", {"subjects": ["person-4"]})
    work(shop)
    assert {place.name.split("-")[0] for place in shop.folder("shop").iterdir()} == {"2", "3"}
    with pytest.raises(ServiceError, match="remembers what 1 requests"):
        go_back(shop, "shop", 2)
    with database.reading(shop.engine) as connection:
        rows = connection.execute(select(versions.c.number, versions.c.purged).order_by(versions.c.number)).all()
    assert [tuple(row) for row in rows] == [(1, True), (2, False), (3, False)]


def test_an_abnormal_request_waits_for_an_approval(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    monkeypatch.setattr(Worker, "_look", lambda *_: {"flagged": True, "statement": "far from random"})
    first = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    second = queue.submit(shop, "shop", {"subjects": ["person-4"]}).row.id
    work(shop)
    assert [state_of(shop, name) for name in (first, second)] == ["waiting", "waiting"]
    queue.approve(shop, first, by="token 1")
    queue.refuse(shop, second, by="token 1", reason="an attack")
    with pytest.raises(ServiceError, match="was refused"):
        queue.approve(shop, second, by="token 1")
    work(shop)
    assert [state_of(shop, name) for name in (first, second)] == ["done", "refused"]
    assert "approved" in kinds(shop, first)


def test_what_a_machine_fails_at_is_tried_again_and_set_aside(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [time.time()]
    monkeypatch.setattr("unweave.serve.worker.now", lambda: clock[0])
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id

    def fails(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_carry_out", fails)
        worker = Worker(shop)
        for _ in range(12):
            clock[0] += 10_000
            worker.step()
    assert state_of(shop, name) == "aside"
    queue.retry(shop, name, by="token 1")
    clock[0] += 10_000
    work(shop)
    assert state_of(shop, name) == "done"


def test_no_file_of_the_service_has_the_id_of_who_was_deleted(shop: Service, tmp_path: Path) -> None:
    for number in (3, 30, 31):
        queue.submit(shop, "shop", {"subjects": [f"person-{number}"], "note": f"called by telephone {number}"})
    before = [path for path in tmp_path.rglob("*") if path.is_file() and b"person-3" in path.read_bytes()]
    assert not before  # not even while they wait
    work(shop)
    shop.close()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert b"person-" not in content, path
        assert b"telephone" not in content, path


def test_a_version_that_does_not_pass_its_check_is_not_built_upon(shop: Service) -> None:
    worker, name = Worker(shop), queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker._finishing, "finish", lambda *_: False)
        worker.step()
    assert state_of(shop, name) == "applied"
    weights = next(shop.folder("shop").glob("2-*/run/weights.safetensors"))
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    Worker(shop).step()
    with database.reading(shop.engine) as connection:
        row = queue.one(connection, name)
    assert (row.state, row.key is None) == ("applied", False)
    assert "did not pass its check" in row.reason
    weights.write_bytes(kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unweave.serve.worker.now", lambda: time.time() + 3600)
        patch.setattr("unweave.serve.finishing.now", lambda: time.time() + 3600)
        work(shop)
    assert state_of(shop, name) == "done"


def enrolled(service: Service, place: Path, run: uw.Run, **given: Any) -> None:
    """Register a run with its graph, and an id for every node."""
    run.save(place / "run")
    tensors = {key: value for key, value in run.data.to_dict().items() if torch.is_tensor(value)}
    save_file(tensors, place / "g.safetensors")
    ids = {f"person-{node}": node for node in range(int(run.data.num_nodes))}
    register(service, "shop", place / "run", ids=ids, graph=place / "g.safetensors", **given)


@pytest.mark.parametrize("url", [None], ids=["sqlite"])
def test_an_audit_reports_on_a_version(service: Service, tmp_path: Path, few_references: None) -> None:
    data = small_graph(nodes=200)
    data.train_mask = data.train_mask & (torch.arange(200) < 120)
    data.test_mask = ~(data.train_mask | data.val_mask)
    model = uw.models.SGC(data.num_features, int(data.num_classes))
    run = uw.train(model, data, forgettable=True, weight_decay=1e-3, examine=False)
    enrolled(service, tmp_path, run, policy=Policy(screen=False, budget="50%", at_least=0.1, audit="quick"))
    asked = [f"person-{node}" for node in data.train_mask.nonzero().flatten().tolist()[:12]]
    name = queue.submit(service, "shop", {"subjects": asked}).row.id
    work(service)
    with database.reading(service.engine) as connection:
        told = next(e for e in queue.timeline(connection, name) if e.kind == "request audited")
        assert json.loads(read(connection, told.body["report"]))["verdict"] == told.body["verdict"]
    assert state_of(service, name) == "done"


def test_a_certified_run_is_served_by_its_own_method_alone(service: Service, tmp_path: Path) -> None:
    data = small_graph(nodes=90)
    run = uw.train(uw.models.SGC(data.num_features, int(data.num_classes)), data, certify=(1.0, 1e-4))
    (tmp_path / "wrong").mkdir()
    with pytest.raises(ServiceError, match="choose certified"):
        enrolled(service, tmp_path / "wrong", run)
    enrolled(service, tmp_path, run, policy=Policy(method="certified", screen=False))
    name = queue.submit(service, "shop", {"subjects": ["person-3"]}).row.id
    work(service)
    assert state_of(service, name) == "done"

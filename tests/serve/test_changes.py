"""Data that is added and corrected, from its submission to its end, by the same door as what is deleted."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import unweave as uw
from tests.serve.person import Person, words
from tests.serve.test_service import kinds, state_of, work
from tests.serve.web import Web
from unweave.changes import Change
from unweave.errors import ServiceError
from unweave.serve import database, queue, worker as working
from unweave.serve.evidence import package, verify_package
from unweave.serve.papers import read
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, open_version, set_policy
from unweave.serve.service import Service
from unweave.serve.worker import Worker

ONE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""What no database knows anything of."""

ROW = [0.5, -0.25, 2.0, 0.125, 0.0, 0.75, -1.0, 0.375]
COLUMNS = {f"column {place}": value for place, value in enumerate(ROW)}
NEW = {"id": "newcomer", "features": COLUMNS, "label": 1, "edges": ["person-5", "person-6"]}


def current(service: Service) -> uw.Run:
    with database.reading(service.engine) as connection:
        model = find(connection, "shop")
        return open_version(service, model, find_version(connection, "shop", model.current))


def receipts(service: Service, name: str) -> list[dict[str, Any]]:
    with database.reading(service.engine) as connection:
        applied = next(e for e in queue.timeline(connection, name) if e.kind == "request applied")
        return [json.loads(read(connection, digest)) for digest in applied.body["receipts"]]


def row_of(service: Service, name: str) -> Any:
    with database.reading(service.engine) as connection:
        return queue.one(connection, name)


def test_a_change_goes_from_received_to_done(shop: Service, tmp_path: Path) -> None:
    before = current(shop).data
    asked = {
        "subjects": ["person-3"],
        "add": {"nodes": [NEW], "edges": [["newcomer", "person-8"]]},
        "correct": {"features": {"person-7": {"column 2": 1.5}, "person-9": ROW}, "labels": {"person-9": 2}},
        "note": "by mail",
    }
    answer = queue.submit(shop, "shop", asked)
    assert json.loads(answer.row.what)["counts"] == {
        "subjects": 1,
        "add_nodes": 1,
        "add_edges": 1,
        "correct_features": 2,
        "correct_labels": 1,
    }
    work(shop)
    told = ["received", "screened", "applied", "verified", "audited", "subject key destroyed", "done"]
    assert kinds(shop, answer.row.id) == told
    run = current(shop)
    assert run.data.num_nodes == 91
    assert torch.equal(run.data.x[90], torch.tensor(ROW))
    assert (int(run.data.y[90]), bool(run.data.train_mask[90])) == (1, True)
    assert {int(v) for u, v in run.data.edge_index.t() if u == 90} == {5, 6, 8}
    assert float(run.data.x[7, 2]) == 1.5
    assert torch.equal(run.data.x[9], torch.tensor(ROW))
    assert int(run.data.y[9]) == 2
    assert not (run.data.edge_index == 3).any()
    assert torch.equal(run.data.x[10], before.x[10])
    receipt = receipts(shop, answer.row.id)[0]
    assert receipt["kind"] == "change"
    assert receipt["request"]["add"]["nodes"] == [90]
    run.verify()
    gone = queue.submit(shop, "shop", {"subjects": ["newcomer"]})
    again = queue.submit(shop, "shop", {"subjects": ["person-3"]})
    assert again.gone == ("person-3",)
    work(shop)
    assert state_of(shop, gone.row.id) == "done"
    assert not (current(shop).data.edge_index == 90).any()
    evidence = tmp_path / "evidence.zip"
    evidence.write_bytes(package(shop, answer.row.id))
    found = verify_package(evidence)
    assert found.outcome == "followed"
    assert "1 node and 3 edges added" in found.receipts[0]
    assert shop.ledger.verify().entries > 10


@ONE
def test_who_was_deleted_may_come_back_as_somebody_new(shop: Service) -> None:
    queue.submit(shop, "shop", {"subjects": ["person-3"]})
    work(shop)
    queue.submit(shop, "shop", {"add": {"nodes": [NEW | {"id": "person-3"}]}})
    work(shop)
    queue.submit(shop, "shop", {"labels": ["person-3"]})
    work(shop)
    after = current(shop).data
    assert not bool(after.train_mask[90])
    assert torch.equal(after.x[90], torch.tensor(ROW))
    assert not after.x[3].any()


@ONE
def test_a_change_is_carried_out_by_itself_and_in_its_turn(shop: Service) -> None:
    asked: list[dict[str, Any]] = [
        {"subjects": ["person-3"]},
        {"labels": ["person-4"]},
        {"correct": {"labels": {"person-4": 0}}},
        {"add": {"nodes": [NEW]}},
        {"subjects": ["person-20"]},
    ]
    set_policy(shop, "shop", Policy(method="retrain", screen=False))
    names = [queue.submit(shop, "shop", each).row.id for each in asked]
    work(shop)
    assert [state_of(shop, name) for name in names] == ["done"] * 5
    assert [row_of(shop, name).version for name in names] == [2, 2, 3, 4, 5]
    assert int(current(shop).data.y[4]) == 0


@ONE
def test_only_forgetting_is_a_request(shop: Service) -> None:
    empty = {"nodes": [], "edges": []}
    answer = queue.submit(shop, "shop", {"subjects": ["person-3"], "add": empty, "correct": {"labels": {}}})
    work(shop)
    assert receipts(shop, answer.row.id)[0]["kind"] == "request"
    late = queue.submit(shop, "shop", {"correct": {"labels": {"person-3": 1}}})
    assert (late.row.state, late.gone) == ("done", ("person-3",))


def test_no_file_has_a_value_that_went(shop: Service, tmp_path: Path) -> None:
    value = 12345.678
    stored = struct.pack("<f", value)
    right = {"correct": {"features": {"person-30": {"column 2": value}}, "labels": {"person-31": 2}}}
    answer = queue.submit(shop, "shop", right)

    def holding(*marks: bytes) -> list[str]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return sorted({path.name for path in files for mark in marks if mark in path.read_bytes()})

    assert holding(b"12345.67") == []  # not even while it waits
    work(shop)
    assert holding(b"12345.67") == []
    assert holding(stored) == ["graph.safetensors"]
    receipt = receipts(shop, answer.row.id)[0]
    guess = Change(correct={"features": {30: {2: value}}, "labels": {31: 2}})
    assert receipt["asked"] == guess.outline()
    assert receipt["request_digest"] != guess.digest
    queue.submit(shop, "shop", {"subjects": ["person-30"]})
    work(shop)
    shop.close()
    assert holding(b"12345.67", stored, b"person-") == []


@ONE
def test_under_a_policy_that_screens_somebody_looks_at_it_first(shop: Service) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    name = queue.submit(shop, "shop", {"add": {"nodes": [NEW]}}).row.id
    bad = queue.submit(shop, "shop", {"correct": {"labels": {"person-4": 99}}}).row.id
    work(shop)
    assert state_of(shop, name) == "waiting"
    assert state_of(shop, bad) == "refused"
    queue.approve(shop, name, by="token 1")
    work(shop)
    assert state_of(shop, name) == "done"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"add": [1]}, "add has nodes and edges"),
    ({"add": {"people": []}}, "'people' is not known"),
    ({"add": {"nodes": {}, "edges": "ab"}}, "must be a list"),
    ({"add": {"nodes": [{"id": "x"}]}}, "at least the first two"),
    ({"add": {"nodes": [{"features": ROW}]}}, "at least the first two"),
    ({"add": {"nodes": [NEW | {"age": 3}]}}, "at least the first two"),
    ({"add": {"nodes": [NEW, NEW]}}, "the same id"),
    ({"add": {"nodes": [NEW | {"id": "person-4"}]}}, "already"),
    ({"add": {"nodes": [NEW | {"features": {"column 1": 2.0}}]}}, "1 of 8 columns"),
    ({"add": {"nodes": [NEW | {"features": [1.0, "two"]}]}}, "a finite number"),
    ({"add": {"nodes": [NEW | {"features": [float("nan")] * 8}]}}, "a finite number"),
    ({"add": {"nodes": [NEW | {"features": 3}]}}, "a list of numbers"),
    ({"add": {"nodes": [NEW | {"mask": "holdout"}]}}, "none of train, val, test"),
    ({"add": {"nodes": [NEW | {"edges": ["nobody"]}]}}, "never in the table"),
    ({"add": {"edges": [["person-1"]]}}, "a pair of two ids"),
    ({"add": {"edges": [["person-1", 7]]}}, "an id is a text"),
    ({"correct": {"labels": {"nobody": 1}}}, "never in the table"),
    ({"correct": {"labels": {"person-1": True}}}, "number of a class"),
    ({"correct": {"labels": ["person-1"]}}, "an object by id"),
    ({"correct": {"features": {"person-1": {"shoe size": 44}}}}, "no such columns"),
    ({"correct": {"features": {"person-1": {}}}}, "no such columns"),
    ({"correct": {"edge_weights": [["person-1", "person-2"]]}}, "has no weight"),
    ({"subjects": ["person-1"], "correct": {"labels": {"person-1": 1}}}, "the same change forgets"),
]


@ONE
def test_what_is_no_change_is_refused_and_not_entered(shop: Service) -> None:
    entries = shop.ledger.verify().entries
    for document, wrong in WRONG:
        with pytest.raises(ServiceError, match=wrong) as caught:
            queue.submit(shop, "shop", document)
        assert caught.value.status == 422, document
    set_policy(shop, "shop", Policy(method="gif", memory_mib=100))
    with pytest.raises(ServiceError, match="deletions alone"):
        queue.submit(shop, "shop", {"add": {"nodes": [NEW]}})
    assert shop.ledger.verify().entries == entries + 1


@ONE
def test_what_does_not_fit_the_graph_is_refused_without_its_values(shop: Service) -> None:
    u, v = (f"person-{node}" for node in current(shop).data.edge_index[:, 0].tolist())
    bad: list[dict[str, Any]] = [
        {"correct": {"labels": {"person-4": 98765}}},
        {"add": {"nodes": [NEW | {"features": [98765.0]}]}},
        {"add": {"edges": [[u, v]]}},
        {"correct": {"edge_weights": [[u, v, 98765.0]]}},
    ]
    names = [queue.submit(shop, "shop", document).row.id for document in bad]
    first, second = (queue.submit(shop, "shop", {"add": {"nodes": [NEW]}}).row.id for _ in range(2))
    work(shop)
    for name in (*names, second):
        assert state_of(shop, name) == "refused"
        assert "98765" not in row_of(shop, name).reason
        assert "does not fit the graph" in row_of(shop, name).reason
    assert state_of(shop, first) == "done"
    assert current(shop).data.num_nodes == 91


@ONE
def test_a_worker_that_dies_on_the_way_adds_nobody_twice(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    name = queue.submit(shop, "shop", {"add": {"nodes": [NEW]}}).row.id

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    for step in ("announce", "enrol_new", "write_version"):  # after all was said, in the midst, and before
        with monkeypatch.context() as patch:
            patch.setattr(working, step, die)
            with pytest.raises(KeyboardInterrupt):
                Worker(shop).step()
        assert state_of(shop, name) == "queued"
    work(shop)
    assert state_of(shop, name) == "done"
    assert current(shop).data.num_nodes == 91
    queue.submit(shop, "shop", {"subjects": ["newcomer"]})
    work(shop)
    assert not current(shop).data.x[90].any()


@ONE
def test_changes_come_by_the_api_and_by_the_page(shop: Service) -> None:
    web = Web(shop)
    body = {"add": {"nodes": [NEW]}, "correct": {"labels": {"person-4": 2}}}
    taken = web("POST", "models/shop/requests", by="submit", json=body)
    assert taken.status_code == 202, taken.text
    shown = web.get(f"requests/{taken.json()['id']}")
    assert shown["asked"]["add"]["nodes"][0]["id"] == "newcomer"
    for wrong in ({"add": {"nodes": [{"id": "x", "features": []}]}}, {"correct": {"labels": {"person-4": "two"}}}):
        assert web("POST", "models/shop/requests", json=wrong).status_code == 422
    ada = Person(shop).sign_in()
    page = ada.submit(right_features="person-7: column 2=1.5, column 3 = -2", right_labels="person-8: 1")
    text = words(ada.get(page))
    assert "features of 1 subject to correct, 1 label to correct" in text
    assert "person-7" in text
    work(shop)
    after = current(shop).data
    assert after.num_nodes == 91
    assert after.x[7, 2:4].tolist() == [1.5, -2.0]
    assert int(after.y[8]) == 1
    assert int(after.y[4]) == 2
    for field, typed in {"right_features": "person-7: 3", "right_labels": "person-7: two"}.items():
        assert ada.post("/requests/new", **{"model": "shop", field: typed}).status_code == 422

"""What goes wrong with one request, one model or one worker is not the trouble of others, and nothing is lost by it."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.serve.test_service import kinds, state_of, work
from unweave.errors import DataError, LedgerError, ServiceError, UnweaveError
from unweave.run.run import Run
from unweave.serve import database, queue, running, worker
from unweave.serve.leases import holding
from unweave.serve.policy import Policy
from unweave.serve.registry import find, find_version, open_version, register, set_policy, sweep, sweep_unregistered
from unweave.serve.service import Service
from unweave.serve.settings import Settings
from unweave.serve.subjects import read_ids
from unweave.serve.tables import models, requests
from unweave.serve.worker import Worker


@pytest.fixture(params=["sqlite"])
def url(request: pytest.FixtureRequest) -> None:
    """None of this depends on the database."""


def fails(error: BaseException) -> Any:
    def wrong(*_: object, **__: object) -> None:
        raise error

    return wrong


def another_model(service: Service, trained: Path, name: str) -> None:
    ids, policy = read_ids(trained / "ids.csv"), Policy(method="gif", screen=True)
    register(service, name, trained / "run", ids=ids, graph=trained / "graph.safetensors", policy=policy)


@pytest.mark.parametrize("step", ["screen", "verify"])
def test_a_model_on_which_work_fails_does_not_hold_others_up(
    shop: Service, trained: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    another_model(shop, trained, "aaa")
    bad = queue.submit(shop, "aaa", {"subjects": ["person-3"]}).row.id
    good = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    really = getattr(Run, step)

    def wrong(self: Run, *given: Any, **how: Any) -> Any:
        if step == "screen" or not [
            place for place in shop.folder("shop").glob("2-*") if self.state.origin.path.parent == place
        ]:
            raise RuntimeError("out of memory")
        return really(self, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Run, step, wrong)
        work(shop)
    assert state_of(shop, good) == "done"
    assert state_of(shop, bad) in ("received", "applied")
    work(shop)
    assert state_of(shop, bad) == "done"


def test_an_edge_in_both_directions_is_screened_like_one(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    with database.reading(shop.engine) as connection:
        model = find(connection, "shop")
        data = open_version(shop, model, find_version(connection, "shop", 1)).data
    one, other = (f"person-{node}" for node in data.edge_index[:, 0].tolist())
    seen = []
    really = Run.screen

    def looked(self: Run, request: Any, **how: Any) -> Any:
        seen.append(request)
        return really(self, request, **how)

    monkeypatch.setattr(Run, "screen", looked)
    name = queue.submit(shop, "shop", {"edges": [[one, other], [other, one]]}).row.id
    work(shop)
    assert len(seen[0].edges) == 1
    assert state_of(shop, name) in ("done", "waiting")


def test_what_cannot_be_screened_waits_for_somebody(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=True))
    monkeypatch.setattr(Run, "screen", fails(DataError("there are no other nodes")))
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    work(shop)
    assert state_of(shop, name) == "waiting"


def test_a_passing_error_of_the_database_sets_nothing_aside(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    with monkeypatch.context() as patch:
        patch.setattr("unweave.serve.worker.announce", fails(LedgerError("the database is locked")))
        Worker(shop).step()
    assert state_of(shop, name) == "queued"
    monkeypatch.setattr("unweave.serve.worker.now", lambda: 4e9)
    monkeypatch.setattr("unweave.serve.finishing.now", lambda: 4e9)
    work(shop)
    assert state_of(shop, name) == "done"


def test_nothing_is_built_on_a_version_that_was_not_checked(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    first = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    with monkeypatch.context() as patch:
        patch.setattr(Run, "verify", fails(UnweaveError("not now")))
        Worker(shop).step()
    second = queue.submit(shop, "shop", {"subjects": ["person-4"]}).row.id
    work(shop)
    assert [state_of(shop, name) for name in (first, second)] == ["applied", "queued"]
    monkeypatch.setattr("unweave.serve.worker.now", lambda: 4e9)
    monkeypatch.setattr("unweave.serve.finishing.now", lambda: 4e9)
    work(shop)
    assert [state_of(shop, name) for name in (first, second)] == ["done", "done"]


def test_who_no_longer_holds_a_model_sweeps_nothing(shop: Service) -> None:
    fresh = shop.folder("shop") / "2-of-another-worker"
    fresh.mkdir()
    with holding(shop, "shop", "new", lease=60), pytest.raises(ServiceError, match="held by another"):
        sweep(shop, "shop", "old")
    assert fresh.is_dir()
    with holding(shop, "shop", "new", lease=60):
        sweep(shop, "shop", "new")
    assert not fresh.exists()


def test_a_version_whose_files_went_is_made_again(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    really = worker.write_version

    def stolen(service: Service, *given: Any) -> Any:
        made = really(service, *given)
        shutil.rmtree(service.folder("shop") / made.folder)
        return made

    with monkeypatch.context() as patch:
        patch.setattr("unweave.serve.worker.write_version", stolen)
        Worker(shop).step()
    with database.reading(shop.engine) as connection:
        assert find(connection, "shop").current == 1
    monkeypatch.setattr("unweave.serve.worker.now", lambda: 4e9)
    monkeypatch.setattr("unweave.serve.finishing.now", lambda: 4e9)
    work(shop)
    assert state_of(shop, name) == "done"


def test_a_request_is_not_done_while_files_remember(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    with monkeypatch.context() as patch:
        patch.setattr("unweave.serve.registry.shutil.rmtree", lambda *_, **__: None)
        Worker(shop).step()
    assert state_of(shop, name) == "audited"
    assert "subject key destroyed" not in kinds(shop, name)
    work(shop)
    assert state_of(shop, name) == "done"
    assert [place.name[:2] for place in shop.folder("shop").iterdir()] == ["2-"]


def test_a_smaller_number_to_keep_is_kept_at_once(shop: Service) -> None:
    set_policy(shop, "shop", Policy(method="gif", screen=False, keep=3))
    queue.submit(shop, "shop", {"subjects": ["person-3"]})
    work(shop)
    assert len(list(shop.folder("shop").iterdir())) == 2
    set_policy(shop, "shop", Policy(method="gif", screen=False))
    work(shop)
    assert len(list(shop.folder("shop").iterdir())) == 1


def test_what_a_killed_registration_left_goes(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    left = shop.home / "models" / "half"
    left.mkdir()
    sweep_unregistered(shop)
    assert left.is_dir()
    monkeypatch.setattr("unweave.serve.registry.now", lambda: 4e9)
    sweep_unregistered(shop)
    assert not left.exists()
    assert shop.folder("shop").is_dir()


def test_a_policy_under_which_nothing_could_be_done_is_refused(shop: Service) -> None:
    with pytest.raises(ServiceError, match="no request could be carried out"):
        set_policy(shop, "shop", Policy(method="replay"))


def test_a_worker_that_fails_ends(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unweave.serve.running.signal.signal", lambda *_: None)
    monkeypatch.setattr(Worker, "work", fails(RuntimeError("broken")))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            running.work(Settings(home=shop.home))
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert failed


def test_requests_that_kill_their_workers_are_set_aside(shop: Service) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    other = queue.submit(shop, "shop", {"subjects": ["person-4"]}).row.id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "_batch", lambda *_: [])
        Worker(shop).step()
    with database.writing(shop.engine) as connection:
        connection.execute(update(requests).where(requests.c.id == name).values(attempts=50))
        connection.execute(update(models).values(worker=None, until=None))
    work(shop)
    assert [state_of(shop, each) for each in (name, other)] == ["aside", "done"]


def test_who_waits_too_long_to_write_is_told_so(shop: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    told: list[str] = []

    def write() -> None:
        try:
            queue.submit(shop, "shop", {"subjects": ["person-3"]})
        except LedgerError as error:
            told.append(str(error))

    with database.writing(shop.engine):
        other = threading.Thread(target=write)
        other.start()
        other.join()
    assert "somebody has been writing" in told[0]
    write()
    assert len(told) == 1

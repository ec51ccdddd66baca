"""A copy that is made while the service runs is a whole service."""

import threading
from pathlib import Path

import pytest

from tests.serve.test_service import state_of, work
from unweave.errors import ServiceError
from unweave.serve import database, queue
from unweave.serve.backup import backup
from unweave.serve.registry import find, find_version, open_version
from unweave.serve.service import Service
from unweave.serve.worker import Worker


@pytest.mark.parametrize("url", [None], ids=["sqlite"])
def test_a_copy_of_a_running_service_goes_on_where_it_was_made(shop: Service, tmp_path: Path) -> None:
    stop = threading.Event()
    worker = threading.Thread(target=Worker(shop).work, args=(stop,), kwargs={"every": 0.01})
    worker.start()
    names = []
    for number in range(6):
        names.append(queue.submit(shop, "shop", {"subjects": [f"person-{number}"]}).row.id)
        backup(shop, tmp_path / f"copy {number}")
    stop.set()
    worker.join()
    for number in range(6):
        copied = Service.at(tmp_path / f"copy {number}", make=False)
        with database.reading(copied.engine) as connection:
            model = find(connection, "shop")
            version = find_version(connection, "shop", model.current)
        open_version(copied, model, version).verify()
        work(copied)
        assert {state_of(copied, name) for name in names[: number + 1]} == {"done"}
        assert copied.ledger.verify()
        copied.close()
    with pytest.raises(ServiceError, match="exists already"):
        backup(shop, tmp_path / "copy 0")


def test_what_lies_beside_a_database_is_copied(shop: Service, tmp_path: Path, url: str | None) -> None:
    backup(shop, tmp_path / "copy")
    copied = Service.at(tmp_path / "copy", url, make=False)
    name = queue.submit(copied, "shop", {"subjects": ["person-3"]}).row.id
    work(copied)
    assert state_of(copied, name) == "done"
    copied.close()

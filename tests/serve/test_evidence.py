"""Evidence packages: whole and honest, or refused."""

import random
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.serve.test_service import work
from unweave.errors import LedgerError, ServiceError
from unweave.serve import database, queue
from unweave.serve.evidence import _zip, package, verify_package
from unweave.serve.ledger import verify
from unweave.serve.ledger.ledger import lines_of
from unweave.serve.service import Service
from unweave.serve.tables import requests


@pytest.fixture(params=["sqlite"])
def url(request: pytest.FixtureRequest) -> None:
    """None of this depends on the database."""


@pytest.fixture
def done(shop: Service) -> str:
    """A request that is done, between others, after a change of the signing key."""
    queue.submit(shop, "shop", {"subjects": ["person-1"]})
    work(shop)
    shop.ledger.change_signing_key()
    name = queue.submit(shop, "shop", {"subjects": ["person-3"], "note": "by mail"}).row.id
    queue.submit(shop, "shop", {"subjects": ["person-4"]})
    work(shop)
    return str(name)


def test_a_third_party_checks_evidence_offline(shop: Service, done: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(package(shop, done))
    found = verify_package(path, key=shop.ledger.verify().first_key)
    assert (found.request, found.model, found.outcome) == (done, "shop", "forgotten")
    assert "Data" in found.receipts[0] or "Model" in found.receipts[0]
    content = path.read_bytes()
    assert b"person-" not in content
    assert b"by mail" not in content
    with pytest.raises(LedgerError, match="another one's"):
        verify_package(path, key="0" * 64)


def test_checkpoints_that_were_published_meanwhile_are_met(shop: Service, tmp_path: Path) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    point, path = shop.ledger.checkpoint(), tmp_path / "evidence.zip"
    work(shop)
    path.write_bytes(package(shop, name))
    assert verify_package(path, checkpoints=(point,))
    with pytest.raises(LedgerError, match="rewritten"):
        verify_package(path, checkpoints=(replace(point, digest="0" * 64),))
    queue.submit(shop, "shop", {"subjects": ["person-4"]})
    with pytest.raises(LedgerError, match="not in this part"):
        verify_package(path, checkpoints=(shop.ledger.checkpoint(),))


def test_a_request_that_has_not_ended_has_no_evidence(shop: Service) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    with pytest.raises(ServiceError, match="once it has ended"):
        package(shop, name)
    queue.refuse(shop, name, by="x", reason="not theirs")
    assert package(shop, name)


def test_no_byte_of_evidence_can_be_changed_unnoticed(shop: Service, done: str, tmp_path: Path) -> None:
    content, path = package(shop, done), tmp_path / "evidence.zip"
    rng = random.Random(0)
    for place in sorted(rng.sample(range(len(content)), 150)):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(LedgerError):
            verify_package(path)


def test_files_of_evidence_cannot_be_left_out_added_or_swapped(shop: Service, done: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.zip"
    path.write_bytes(package(shop, done))
    with zipfile.ZipFile(path) as found:
        files = {name: found.read(name).decode() for name in found.namelist()}
    receipt = next(name for name in files if name.startswith("receipts/"))
    others = {**files, receipt: files[receipt].replace("unweave", "another", 1)}
    for changed in (
        {name: text for name, text in files.items() if name != receipt},
        {**files, "more.txt": "hello"},
        others,
        {**files, "README.txt": "All is well."},
        {},
    ):
        path.write_bytes(_zip(changed))
        with pytest.raises(LedgerError):
            verify_package(path)


def test_a_story_that_lacks_a_part_is_refused(shop: Service, tmp_path: Path) -> None:
    name = queue.submit(shop, "shop", {"subjects": ["person-3"]}).row.id
    shop.ledger.change_signing_key()
    queue.refuse(shop, name, by="x", reason="not theirs")
    with database.writing(shop.engine) as connection:  # the owner goes on to lie, with the right key
        shop.tell(connection, name, "request done", {"model": "shop", "outcome": "forgotten"})
        connection.execute(update(requests).where(requests.c.id == name).values(state="done"))
    path = tmp_path / "evidence.zip"
    path.write_bytes(package(shop, name))
    with pytest.raises(LedgerError, match="from its beginning to its end"):
        verify_package(path)
    with database.reading(shop.engine) as connection:
        lines = list(lines_of(connection))
    without = [line for line in lines if line.entry.kind not in ("request refused", "subject key destroyed")]
    with pytest.raises(LedgerError, match=r"after a gap|missing, doubled"):
        verify(without, whole=False)
    assert verify(lines, whole=False)


def test_a_part_of_a_ledger_has_one_stretch_and_keys_around_it(shop: Service) -> None:
    for _ in range(2):
        queue.submit(shop, "shop", {"subjects": ["person-3"]})
        shop.ledger.change_signing_key()
        queue.submit(shop, "shop", {"subjects": ["person-4"]})
    with database.reading(shop.engine) as connection:
        lines = list(lines_of(connection))
    keys = [line for line in lines if "public_key" in line.entry.body]
    for start in range(1, len(lines)):
        for end in range(start, len(lines)):
            part = [line for n, line in enumerate(lines) if start <= n <= end or line in keys]
            assert verify(part, whole=False)
            if end - start > 2:
                broken = [
                    line for n, line in enumerate(lines) if (start <= n <= end and n != start + 1) or line in keys
                ]
                if lines[start + 1] not in keys and len(broken) < len(part) and start > 0 and lines[start] not in keys:
                    with pytest.raises(LedgerError):
                        verify(broken, whole=False)

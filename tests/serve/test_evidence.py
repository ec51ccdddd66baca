"""Evidence packages: whole and honest, or refused."""

import random
import zipfile
from pathlib import Path

import pytest

from tests.serve.test_service import work
from unweave.errors import LedgerError, ServiceError
from unweave.serve import queue
from unweave.serve.evidence import _zip, package, verify_package
from unweave.serve.service import Service


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
    path, point = tmp_path / "evidence.zip", shop.ledger.checkpoint()
    path.write_bytes(package(shop, done))
    found = verify_package(path, checkpoints=(point,), key=shop.ledger.verify().first_key)
    assert (found.request, found.model, found.outcome) == (done, "shop", "forgotten")
    assert "Data" in found.receipts[0] or "Model" in found.receipts[0]
    content = path.read_bytes()
    assert b"person-" not in content
    assert b"by mail" not in content
    with pytest.raises(LedgerError, match="another one's"):
        verify_package(path, key="0" * 64)


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

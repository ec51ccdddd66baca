"""A ledger: what it proves, what it forgets, and every way to tamper with it."""

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, text, update

from tests.serve.conftest import side_by_side
from unweave.errors import LedgerError
from unweave.serve import database
from unweave.serve.database import METADATA, entries
from unweave.serve.ledger import Keys, Ledger, Signed, export, fingerprint, read_checkpoint, verify, verify_file
from unweave.serve.ledger.keys import NEXT, signature_fits
from unweave.serve.ledger.ledger import lines_of

WHO = "ada.lovelace@example.org"


@pytest.fixture
def ledger(tmp_path: Path, url: str | None) -> Iterator[Ledger]:
    made = Ledger.at(tmp_path / "home", url)
    yield made
    made.engine.dispose()


def add(ledger: Ledger, number: int) -> Signed:
    with database.writing(ledger.engine) as connection:
        return ledger.append(connection, "received", {"number": number})


def received(ledger: Ledger, who: str = WHO) -> tuple[str, int]:
    """The key and the place of a request of somebody."""
    with database.writing(ledger.engine) as connection:
        key = ledger.new_subject_key(connection)
        done = ledger.append(connection, "received", {"nodes": 1}, personal={"subject": who}, key=key)
    return key, done.entry.sequence


def test_entries_follow_each_other_and_are_verified(ledger: Ledger) -> None:
    signed = [add(ledger, number) for number in range(5)]
    assert [line.entry.sequence for line in signed] == [2, 3, 4, 5, 6]
    assert all(later.entry.previous == earlier.entry.digest for earlier, later in pairwise(signed))
    found = ledger.verify(key=ledger.keys.fingerprint)
    assert (found.entries, found.head, found.last) == (6, signed[-1].entry.digest, signed[-1].entry.at)
    with pytest.raises(LedgerError, match="another one's"):
        ledger.verify(key="0" * 64)


def test_it_is_opened_once(ledger: Ledger, tmp_path: Path, url: str | None) -> None:
    add(ledger, 1)
    again = Ledger.at(tmp_path / "home", url)
    assert again.verify() == ledger.verify()
    assert again.verify().entries == 2
    again.engine.dispose()


def test_an_entry_is_part_of_the_transaction_it_tells_of(ledger: Ledger) -> None:
    def fail() -> None:
        with database.writing(ledger.engine) as connection:
            ledger.append(connection, "received", {})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ledger.verify().entries == 1


def test_the_tables_are_what_the_migrations_make(ledger: Ledger) -> None:
    with ledger.engine.connect() as connection:
        how = {"version_table": database.VERSION}
        assert compare_metadata(MigrationContext.configure(connection, opts=how), METADATA) == []


def test_what_is_personal_can_be_read_until_its_key_is_destroyed(ledger: Ledger, tmp_path: Path) -> None:
    key, place = received(ledger)
    with database.reading(ledger.engine) as connection:
        assert ledger.personal(connection, place) == {"subject": WHO}
    before = ledger.checkpoint()
    with database.writing(ledger.engine) as connection:
        ledger.destroy(connection, key)
    database.scrub(ledger.engine)
    with database.reading(ledger.engine) as connection, pytest.raises(LedgerError, match="is gone"):
        ledger.personal(connection, place)
    assert ledger.verify(checkpoints=[before]).entries == 3
    with database.writing(ledger.engine) as connection, pytest.raises(LedgerError, match="destroyed, or never made"):
        ledger.append(connection, "received", {}, personal={"subject": WHO}, key=key)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_file_has_the_subject_or_its_key(ledger: Ledger, tmp_path: Path) -> None:
    keys = [received(ledger, f"{number} {WHO}") for number in range(20)]
    with database.reading(ledger.engine) as connection:
        secrets = [row.key for row in connection.execute(text("SELECT key FROM subject_keys"))]
        sealed = [row.sealed for row in connection.execute(text("SELECT sealed FROM entries WHERE sealed IS NOT NULL"))]
    assert any(secret in held for held in contents(tmp_path) for secret in secrets), "they are there as long as needed"
    for key, _ in keys:
        with database.writing(ledger.engine) as connection:
            ledger.destroy(connection, key)
    database.scrub(ledger.engine)
    export(ledger, tmp_path / "ledger.jsonl")
    assert len(secrets) == len(sealed) == 20
    for held in contents(tmp_path):
        assert WHO.encode() not in held
        assert not any(part in held for part in (*secrets, *sealed))


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_no_file_of_a_server_has_the_subject(ledger: Ledger, server: tuple[str, Path]) -> None:
    """Its log keeps the key for a while, which the docs say; what is personal was never there as it is."""
    key, _ = received(ledger)
    with database.writing(ledger.engine) as connection:
        ledger.destroy(connection, key)
    database.scrub(ledger.engine)
    files = contents(server[1])
    assert any(key.encode() in held for held in files), "the entries are there"
    assert not any(WHO.encode() in held for held in files)


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def test_a_personal_part_belongs_to_its_entry(ledger: Ledger) -> None:
    with database.writing(ledger.engine) as connection:
        key = ledger.new_subject_key(connection)
        for who in ("a", "b"):
            ledger.append(connection, "received", {}, personal={"subject": who}, key=key)
        first = connection.execute(text("SELECT sealed FROM entries WHERE sequence = 2")).scalar_one()
        connection.execute(update(entries).where(entries.c.sequence == 3).values(sealed=first))
        with pytest.raises(LedgerError, match="changed, or belongs to another"):
            ledger.personal(connection, 3)
    with pytest.raises(LedgerError, match="personal part of entry 3 was changed"):
        ledger.verify()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE entries SET text = replace(text, '\"number\":1', '\"number\":7') WHERE sequence = 3", "not signed"),
        ("DELETE FROM entries WHERE sequence = 3", "missing, doubled or swapped"),
        ("DELETE FROM entries WHERE sequence = 1", "does not open"),
        ("DELETE FROM entries WHERE sequence = 5", "ends before the place"),
        ("DELETE FROM entries", "no entry"),
        ("UPDATE entries SET sequence = 9 WHERE sequence = 3", "missing, doubled or swapped"),
        ("UPDATE entries SET signature = upper(signature) WHERE sequence = 3", "not signed"),
        ("UPDATE entries SET text = '{}' WHERE sequence = 3", "other types"),
        ("UPDATE entries SET text = text || ' ' WHERE sequence = 3", "no line of a ledger"),
        ("UPDATE ledger SET sequence = 4", "ends before the place"),
    ],
)
def test_who_writes_to_the_database_is_noticed(ledger: Ledger, statement: str, told: str) -> None:
    for number in range(4):
        add(ledger, number)
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql(statement)
    with pytest.raises(LedgerError, match=told):
        ledger.verify()


def test_every_byte_of_an_export_counts(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(3):
        add(ledger, number)
    ledger.change_signing_key()
    received(ledger)
    path = tmp_path / "ledger.jsonl"
    point = export(ledger, path)
    whole = path.read_bytes()
    assert verify_file(path, checkpoints=[point]) == ledger.verify()
    chance = random.Random(0)
    for place in sorted(chance.sample(range(len(whole)), 400)):
        other = chance.choice([byte for byte in range(256) if byte != whole[place]])
        path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
        with pytest.raises(LedgerError):
            verify_file(path)
    for cut in chance.sample(range(len(whole)), 50):
        path.write_bytes(whole[:cut])
        with pytest.raises(LedgerError):
            verify_file(path)


def drop(lines: list[str]) -> list[str]:
    return lines[:2] + lines[3:]


def swap(lines: list[str]) -> list[str]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def replay(lines: list[str]) -> list[str]:
    return [*lines[:3], lines[2], *lines[3:]]


def shorten(lines: list[str]) -> list[str]:
    return [*lines[:-2], lines[-1]]


def head(lines: list[str]) -> list[str]:
    return lines[-1:]


@pytest.mark.parametrize("tamper", [drop, swap, replay, shorten, head])
def test_lines_cannot_be_moved(tamper: Callable[[list[str]], list[str]], ledger: Ledger, tmp_path: Path) -> None:
    for number in range(4):
        add(ledger, number)
    path = tmp_path / "ledger.jsonl"
    export(ledger, path)
    path.write_text("\n".join(tamper(path.read_text().splitlines())) + "\n")
    with pytest.raises(LedgerError):
        verify_file(path)


def test_lines_of_another_ledger_do_not_fit(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.at(tmp_path / "other")
    add(ledger, 1), add(other, 1)
    with database.reading(ledger.engine) as one, database.reading(other.engine) as two:
        mixed = [*list(lines_of(one))[:1], *list(lines_of(two))[1:]]
    with pytest.raises(LedgerError, match="of another ledger"):
        verify(mixed)


def test_who_has_the_key_and_rewrites_the_chain_is_noticed_by_a_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(4):
        add(ledger, number)
    published = read_checkpoint(ledger.checkpoint().text)
    add(ledger, 4)
    assert ledger.verify(checkpoints=[published]).entries == 6
    path = tmp_path / "rewritten"
    rewritten = Ledger.at(path)
    for name in ("keys/signing.pem",):
        (path / name).write_bytes((tmp_path / "home" / name).read_bytes())
    with rewritten.engine.begin() as connection:  # the same owner begins anew, with the same id and key
        connection.execute(text("DELETE FROM entries"))
        connection.execute(text("DELETE FROM ledger"))
    (path / "keys" / "ledger").unlink()
    forged = Ledger.at(path)
    for number in (7, 7, 7, 7, 7):
        add(forged, number)
    assert forged.verify(key=ledger.keys.fingerprint).entries == 6, "by itself it is a ledger in order"
    with pytest.raises(LedgerError, match="another ledger"):
        forged.verify(checkpoints=[published])


def test_a_chain_rewritten_from_some_entry_on_is_noticed_by_a_checkpoint(ledger: Ledger) -> None:
    for number in range(4):
        add(ledger, number)
    published = ledger.checkpoint()
    with ledger.engine.begin() as connection:
        connection.execute(text("DELETE FROM entries WHERE sequence >= 4"))
        kept = list(lines_of(connection))[-1].entry
        connection.execute(update(database.ledger).values(sequence=kept.sequence, digest=kept.digest, at=kept.at))
    short = ledger.verify()
    with pytest.raises(LedgerError, match="some are gone"):
        ledger.verify(checkpoints=[published])
    for number in (8, 9):
        add(ledger, number)
    assert ledger.verify().entries == short.entries + 2
    with pytest.raises(LedgerError, match="the chain was rewritten"):
        ledger.verify(checkpoints=[published])


def test_a_checkpoint_is_signed_for_what_it_is(ledger: Ledger) -> None:
    line, point = add(ledger, 1), ledger.checkpoint()
    assert not signature_fits(ledger.keys.public, "ledger checkpoint", line.entry.digest, line.signature)
    forged = json.loads(point.text)
    forged["checkpoint"]["at"] = "2020-01-01T00:00:00.000000+00:00"
    changed = read_checkpoint(json.dumps(forged, sort_keys=True, separators=(",", ":")))
    with pytest.raises(LedgerError, match="not signed"):
        ledger.verify(checkpoints=[changed])
    for bad in ("{}", '{"checkpoint":{}}', '{"checkpoint":1}', "x", "[" * 100_000, "1" * 10_000, ""):
        with pytest.raises(LedgerError):
            read_checkpoint(bad)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_the_database_is_readable_for_its_owner_alone(tmp_path: Path, url: None) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    made = Ledger.at(tmp_path / "open", url)
    add(made, 1)
    found = [path for path in (tmp_path / "open").iterdir() if path.is_file()]
    assert found
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    (tmp_path / "open" / "service.db").chmod(0o644)
    for make in (False, True):
        with pytest.raises(LedgerError, match="chmod 600"):
            Ledger.at(tmp_path / "open", url, make=make)


@pytest.mark.parametrize("body", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {("a",): 1}])
def test_what_json_cannot_say_is_no_entry(ledger: Ledger, body: dict[str, object]) -> None:
    with database.writing(ledger.engine) as connection, pytest.raises(LedgerError, match="what JSON can say"):
        ledger.append(connection, "received", body)
    assert ledger.verify().entries == 1


def test_facts_are_read_back_as_they_were_signed(ledger: Ledger) -> None:
    body = {"ü": "\ud800", "tuple": (1, 2.5), "none": None, "7": -0.0}
    with database.writing(ledger.engine) as connection:
        signed = ledger.append(connection, "received", body)
    with database.reading(ledger.engine) as connection:
        assert list(lines_of(connection))[-1] == signed
    assert ledger.verify().entries == 2


def test_the_key_is_readable_for_its_owner_alone(ledger: Ledger) -> None:
    path = ledger.keys.folder / "signing.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in ledger.keys.folder.iterdir()) == ["ledger", "signing.pem"]
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600"):
        Keys(ledger.keys.folder)


def test_the_key_can_be_changed_and_the_chain_goes_on(ledger: Ledger, tmp_path: Path, url: str | None) -> None:
    add(ledger, 1)
    first, beside = ledger.keys.fingerprint, Ledger.at(tmp_path / "home", url)
    early = ledger.checkpoint()
    second = ledger.change_signing_key()
    assert second != first
    late = ledger.checkpoint()
    assert add(beside, 2).entry.signer == second, "another process follows"
    assert ledger.verify(key=first, checkpoints=[early, late]).public == ledger.keys.public
    assert not (ledger.keys.folder / NEXT).exists()
    beside.engine.dispose()


def test_a_change_of_keys_that_was_interrupted_is_finished(ledger: Ledger, tmp_path: Path, url: str | None) -> None:
    public = ledger.keys.prepare_next()
    with database.writing(ledger.engine) as connection:
        ledger._append(connection, "signing key changed", {"public_key": public})
        connection.execute(update(database.ledger).values(public=public))
    again = Ledger.at(tmp_path / "home", url)
    assert add(again, 1).entry.signer == fingerprint(public)
    assert again.verify().entries == 3
    again.engine.dispose()


def test_keys_of_another_ledger_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    foreign = Ledger(ledger.engine, Keys(tmp_path / "foreign"))
    with pytest.raises(LedgerError, match="restore the folder of keys"):
        add(foreign, 1)
    assert ledger.verify().entries == 1
    (tmp_path / "foreign" / "signing.pem").write_text("nothing")
    with pytest.raises(LedgerError, match="no private key that can be read"):
        Keys(tmp_path / "foreign")


def append_many(home: Path, url: str | None, times: int) -> None:
    ledger = Ledger.at(home, url)
    for number in range(times):
        add(ledger, number)
    os._exit(0)


def test_processes_take_turns(warm: ForkServerContext, tmp_path: Path, url: str | None) -> None:
    """From the first entry on: each may be the one that opens the ledger."""
    home = tmp_path / "home"
    side_by_side(warm, append_many, home, url, 10)
    ledger = Ledger.at(home, url)
    assert ledger.verify().entries == 31
    ledger.engine.dispose()


def test_a_place_is_taken_once(ledger: Ledger) -> None:
    """The row that says where the chain ends decides, whoever read it before."""
    signed = add(ledger, 1)
    with pytest.raises(LedgerError, match="try again"), ledger.engine.begin() as connection:
        ledger._add(connection, replace(signed.entry, sequence=9), None, "")
    assert ledger.verify().entries == 2
    taken = insert(entries).values(sequence=2, kind="x", text="x", signature="x")
    with pytest.raises(LedgerError, match="does not serve"), database.writing(ledger.engine) as connection:
        connection.execute(taken)

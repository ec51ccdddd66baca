"""What a reviewer broke once: keys that stayed in pages, rotations at once, entries that nobody could read back, …"""

import os
import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.serve.conftest import side_by_side
from tests.serve.test_ledger import add, contents, received
from unweave.errors import LedgerError
from unweave.serve import database
from unweave.serve.ledger import Keys, Ledger, database_of, verify_database
from unweave.serve.ledger.entries import DEEP
from unweave.serve.ledger.ledger import lines_of

SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
POSTGRES = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


@SQLITE
def test_keys_of_a_tree_of_many_pages_leave_no_trace(tmp_path: Path, url: None) -> None:
    """SQLite overwrites what it deletes, but not the copies that a page keeps when its tree is balanced anew."""
    ledger = Ledger.at(tmp_path / "home", url)
    with database.writing(ledger.engine) as connection:
        names = [ledger.new_subject_key(connection) for _ in range(180)]
        secrets = {row.id: row.key for row in connection.execute(text("SELECT id, key FROM subject_keys"))}
    for name in [name for n, name in enumerate(names) if n % 3][::-1]:
        with database.writing(ledger.engine) as connection:
            ledger.destroy(connection, name)
        secrets_left = secrets.pop(name)
        secrets[f"gone {name}"] = secrets_left
    database.scrub(ledger.engine)
    files = contents(tmp_path)
    gone = [secret for name, secret in secrets.items() if name.startswith("gone")]
    assert len(gone) == 120
    assert not any(secret[place : place + 8] in held for secret in gone for place in (0, 12, 24) for held in files)
    assert any(secret in held for secret in secrets.values() for held in files), "those that remain are there"
    ledger.engine.dispose()


def rotate_many(home: Path, url: str | None, times: int) -> None:
    ledger = Ledger.at(home, url)
    for _ in range(times):
        ledger.change_signing_key()
    os._exit(0)


def test_signing_keys_are_changed_in_turns(warm: ForkServerContext, tmp_path: Path, url: str | None) -> None:
    home = tmp_path / "home"
    side_by_side(warm, rotate_many, home, url, 5)
    ledger = Ledger.at(home, url)
    add(ledger, 1)
    assert ledger.verify(checkpoints=[ledger.checkpoint()]).entries == 17
    assert sorted(path.name for path in (home / "keys").iterdir()) == ["ledger", "signing.pem"]
    ledger.engine.dispose()


def test_a_rotation_that_was_interrupted_is_not_taken_for_the_next(tmp_path: Path, url: str | None) -> None:
    ledger = Ledger.at(tmp_path / "home", url)
    follow = ledger.keys.follow
    with pytest.MonkeyPatch.context() as patch:  # killed after its entry, before its key is in place
        calls = [follow, follow]

        def killed(known: str) -> None:
            calls.pop()(known)

        patch.setattr(ledger.keys, "follow", killed)
        with pytest.raises(IndexError):
            ledger.change_signing_key()
    (tmp_path / "home" / "keys" / ".signing-next.pem.left").write_text("of a process that was killed")
    before = ledger.verify().public
    assert ledger.change_signing_key() != before
    assert ledger.verify().public not in (before, "")
    assert sorted(path.name for path in (tmp_path / "home" / "keys").iterdir()) == ["ledger", "signing.pem"]
    ledger.engine.dispose()


@pytest.mark.parametrize(
    "kind", ["ledger opened", "signing key changed", "subject key destroyed", "", "x" * 65, "a\0", 5]
)
def test_only_the_ledger_says_what_it_did_itself(tmp_path: Path, kind: str) -> None:
    ledger = Ledger.at(tmp_path / "home")
    with database.writing(ledger.engine) as connection, pytest.raises(LedgerError, match="needs a kind"):
        ledger.append(connection, kind, {"public_key": "00"})
    assert ledger.verify().entries == 1


def test_what_is_added_can_be_read_back(tmp_path: Path) -> None:
    ledger = Ledger.at(tmp_path / "home")
    deep: dict[str, object] = {}
    for _ in range(DEEP + 1):
        deep = {"deeper": deep}
    with database.writing(ledger.engine) as connection:
        ledger.append(connection, "done", {"counts": {9: 1, 10: 2}, "\ud83d\ude00": 1, "\uffff": 2})
        with pytest.raises(LedgerError, match="nested"):
            ledger.append(connection, "done", deep)
    assert ledger.verify().entries == 2


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("INSERT INTO entries SELECT -7, kind, text, signature, key, sealed FROM entries WHERE sequence = 2", "row of"),
        ("UPDATE entries SET kind = 'other' WHERE sequence = 2", "says something else"),
        ("UPDATE entries SET sequence = 50 WHERE sequence = 3", "says something else"),
        ("UPDATE entries SET key = NULL WHERE sequence = 3", "says something else"),
        ("UPDATE entries SET sealed = NULL WHERE sequence = 3", "no longer there"),
        ("UPDATE entries SET sealed = (SELECT key FROM subject_keys) WHERE sequence = 3", "was changed"),
        ("UPDATE entries SET sealed = (SELECT key FROM subject_keys) WHERE sequence = 2", "was added"),
        ("DELETE FROM subject_keys", "nobody destroyed it"),
        ("UPDATE ledger SET at = 'zzzz'", "ends before"),
        ("UPDATE ledger SET public = 'zz'", "key in force"),
    ],
)
def test_every_column_is_checked(tmp_path: Path, url: str | None, statement: str, told: str) -> None:
    ledger = Ledger.at(tmp_path / "home", url)
    add(ledger, 1)
    received(ledger)
    assert ledger.verify().entries == 3
    with database.writing(ledger.engine) as connection:
        connection.exec_driver_sql(statement)
    with pytest.raises(LedgerError, match=told):
        ledger.verify()
    ledger.engine.dispose()


def test_a_key_that_comes_back_is_noticed(tmp_path: Path, url: str | None) -> None:
    ledger = Ledger.at(tmp_path / "home", url)
    key, place = received(ledger)
    with database.writing(ledger.engine) as connection:
        kept = connection.execute(text("SELECT id, key FROM subject_keys")).one()
        part = connection.execute(text("SELECT sealed FROM entries WHERE sequence = 2")).scalar_one()
        ledger.destroy(connection, key)
    with database.writing(ledger.engine) as connection:
        connection.execute(text("UPDATE entries SET sealed = :part WHERE sequence = 2"), {"part": part})
    with pytest.raises(LedgerError, match=f"entry {place} is still there"):
        ledger.verify()
    with database.writing(ledger.engine) as connection:
        connection.execute(text("INSERT INTO subject_keys VALUES (:id, :key)"), {"id": kept.id, "key": kept.key})
    with pytest.raises(LedgerError, match="there again"):
        ledger.verify()
    ledger.engine.dispose()


def test_a_key_is_destroyed_once(tmp_path: Path, url: str | None) -> None:
    ledger = Ledger.at(tmp_path / "home", url)
    key, _ = received(ledger)
    told: list[str] = []

    def destroy() -> None:
        try:
            with database.writing(ledger.engine) as connection:
                ledger.destroy(connection, key)
        except LedgerError as error:
            told.append(str(error))

    both = [threading.Thread(target=destroy) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(told) == 1
    assert "destroyed, or never made" in told[0]
    assert ledger.verify().entries == 3
    ledger.engine.dispose()


@POSTGRES
def test_what_is_added_while_its_key_is_destroyed_goes_too(tmp_path: Path, url: str) -> None:
    ledger = Ledger.at(tmp_path / "home", url)
    key, _ = received(ledger)
    waiting = threading.Event()

    def destroy() -> None:
        waiting.set()
        with database.writing(ledger.engine) as connection:
            ledger.destroy(connection, key)

    other = threading.Thread(target=destroy)
    with database.writing(ledger.engine) as connection:
        ledger.append(connection, "asked again", {}, personal={"subject": "ada"}, key=key)
        other.start()
        waiting.wait()
    other.join()
    assert ledger.verify().entries == 4
    ledger.engine.dispose()


def test_to_look_changes_nothing(tmp_path: Path, url: str | None) -> None:
    home = tmp_path / "home"
    ledger = Ledger.at(home, url)
    with database.writing(ledger.engine) as connection:
        connection.execute(text("DELETE FROM entries"))
        connection.execute(text("DELETE FROM ledger"))
    engine = database_of(home, url)
    with pytest.raises(LedgerError, match="no entry"):
        verify_database(engine)
    engine.dispose()
    for make in (False, True):
        with pytest.raises(LedgerError, match="was emptied, or is another one"):
            Ledger.at(home, url, make=make)
    with database.reading(ledger.engine) as connection:
        assert list(lines_of(connection)) == []
    with pytest.raises(LedgerError, match="no database"):
        database_of(home, f"sqlite:///{home / 'typo.db'}")
    assert not (home / "typo.db").exists()
    (home / "keys" / "signing.pem").unlink()
    with pytest.raises(LedgerError, match="no key"):
        Ledger.at(home, url, make=False)
    assert not (home / "keys" / "signing.pem").exists()
    ledger.engine.dispose()


@SQLITE
@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, None])
def test_what_is_no_database_of_ours_is_refused(tmp_path: Path, url: None, content: bytes | None) -> None:
    home = tmp_path / "who? 100%25"
    Ledger.at(home, url).engine.dispose()
    assert sorted(path.name for path in tmp_path.iterdir()) == [home.name]
    if content is None:
        engine = database.connect(database.in_file(home / "service.db"))
        with database.writing(engine) as connection:
            connection.execute(text("UPDATE unweave_version SET version_num = '9999'"))
        engine.dispose()
    else:
        for path in home.glob("service.db*"):
            path.unlink()
        (home / "service.db").write_bytes(content)
    for make in (False, True):
        with pytest.raises(LedgerError):
            Ledger.at(home, url, make=make)


def test_a_key_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = Keys(tmp_path / "keys").folder
    (folder / "signing.pem").rename(tmp_path / "elsewhere.pem")
    (folder / "signing.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(LedgerError, match="is a link"):
        Keys(folder)


def test_threads_find_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(Keys(tmp_path / "keys").public)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["signing.pem"]

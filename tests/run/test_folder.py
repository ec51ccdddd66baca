"""Folders, locks and receipts that are added to, with small files instead of a model."""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.run.test_interleavings import begin, done_in, files, forget, hopefully
from tests.sealing import seal
from unweave._core.document import canonical_json, to_json
from unweave.errors import RunError
from unweave.run import folder, lock, log
from unweave.run.folder import ANYTHING, locked, read_folder, write_folder
from unweave.run.lock import lock_of
from unweave.run.log import INDEX, LINES, Log


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(folder, "_known", {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    begin(tmp_path / "run", ["first"])
    return tmp_path / "run"


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this process does not know what it wrote."""
    monkeypatch.setattr(folder, "_known", {})


def test_who_saves_in_the_place_of_what_changed_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = read_folder(path)
    hopefully(path, "quick")
    another_process(monkeypatch)
    with pytest.raises(RunError, match=r"has changed since.* Nothing was written, and nothing is lost. Open the run"):
        forget(slow, "slow")
    assert done_in(read_folder(path)) == ["first", "quick"]


def test_two_runs_of_one_process_that_go_different_ways_do_not_undo_each_other(path: Path) -> None:
    here = read_folder(path)
    forget(here, "one")
    with pytest.raises(RunError, match="has changed since"):
        forget(here, "other")
    assert done_in(read_folder(path)) == ["first", "one"]


def test_a_run_is_saved_again_and_again_in_the_place_it_was_opened_from(path: Path) -> None:
    """As a calibration is, after each deletion, and a run that forgot one thing and then another."""
    here = read_folder(path)
    for metrics in (b"1", b"2"):
        write_folder(path, files(["first"]) | {"metrics.json": metrics}, here.receipts, here.digest)
    more = here.receipts.plus(b"{}", {}, undirected=False)
    write_folder(path, files(["first"]), more, here.digest)
    assert len(read_folder(path).receipts) == 2


def test_another_run_replaces_one_only_where_that_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="exists already"):
        write_folder(path, files([]), Log(), None)
    write_folder(path, files([]), Log(), ANYTHING)
    assert done_in(read_folder(path)) == []
    known = folder._known.copy()
    another_process(monkeypatch)
    hopefully(path, "of somebody else")
    monkeypatch.setattr(folder, "_known", known)
    with pytest.raises(RunError, match="has changed since it was last opened or written here"):
        write_folder(path, files([]), Log(), ANYTHING)
    assert done_in(read_folder(path)) == ["of somebody else"], "this process wrote it, and did not see it change"


def test_a_lock_is_waited_for_told_of_and_gone_in_the_end(path: Path) -> None:
    told, inside = threading.Event(), threading.Event()

    def other() -> None:
        with locked(path, told.set):
            inside.set()

    thread = threading.Thread(target=other)
    with locked(path):
        assert lock_of(path).exists()
        with locked(path, lambda: pytest.fail("one waits for oneself")):
            thread.start()
            assert told.wait(10)
        assert not inside.is_set()
    thread.join()
    assert inside.is_set()
    assert [found.name for found in path.parent.iterdir()] == ["run"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_hold_the_lock(path: Path) -> None:
    with locked(path):
        child = os.fork()
        if not child:
            with open(os.open(lock_of(path), os.O_RDWR), "rb") as handle:
                os._exit(int(lock._lock(handle.fileno(), wait=False)) + 2 * len(lock._own.holds))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hopefully(path, "after")


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "folder"])
def test_what_is_in_the_place_of_a_lock_is_neither_followed_nor_changed(path: Path, kind: str) -> None:
    precious = path.parent / "precious"
    precious.write_text("years of work")
    place = lock_of(path)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(precious if kind == "link" else path.parent / "nowhere")
    assert done_in(read_folder(path)) == ["first"], "who reads does not care"
    with pytest.raises(RunError, match="delete it"):
        hopefully(path, "more")
    assert precious.read_text() == "years of work"
    assert not (path.parent / "nowhere").exists()
    assert os.path.lexists(place)


def test_the_lock_of_somebody_else_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RunError, match="not a plain file of yours"), locked(path):
        pass


def test_a_workshop_that_is_a_link_is_left_alone(path: Path) -> None:
    """Opening a run once truncated whatever the lock in such a folder led to."""
    elsewhere = path.parent / "elsewhere"
    (elsewhere / "new").mkdir(parents=True)
    (elsewhere / "lock").write_text("years of work")
    (path.parent / ".run.unweave-12345678").symlink_to(elsewhere)
    read_folder(path)
    hopefully(path, "more")
    assert (elsewhere / "lock").read_text() == "years of work"
    assert (path.parent / ".run.unweave-12345678").is_symlink()


def test_a_system_without_locks_is_told_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with pytest.raises(RunError, match="no locks of files"):
        hopefully(path, "more")


def test_a_reader_beside_a_writer_breaks_nothing_and_sees_whole_runs(path: Path) -> None:
    """Both as fast as they can. A reader once took the lock out of the writer's workshop."""
    stop, wrong, seen = threading.Event(), [], []

    def read() -> None:
        try:
            while not stop.is_set():
                seen.append(len(done_in(read_folder(path))))
        except BaseException as error:
            wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(60):
        hopefully(path, f"{number}")
    stop.set()
    reader.join()
    assert not wrong
    assert seen == sorted(seen)
    assert len(read_folder(path).receipts) == 61


def added(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes of receipts were written to forget one thing more."""
    written, append = [], folder._append

    def counted(place: Path, at: int, content: Any, *, new: bool = False) -> None:
        parts = list(content)
        written.append(sum(map(len, parts)))
        append(place, at, parts, new=new)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "_append", counted)
        hopefully(path, name)
    return sum(written)


def test_a_request_writes_its_own_receipt_and_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = added(path, "a00", monkeypatch)
    for number in range(1, 30):
        assert added(path, f"a{number:02d}", monkeypatch) == first
    assert (path / LINES).stat().st_nlink == 1


def test_what_a_killed_process_added_is_nobodys_and_is_cut_off(path: Path) -> None:
    for name in (LINES, INDEX):
        with (path / name).open("ab") as stream:
            stream.write(b'{"half of a')
    assert done_in(read_folder(path)) == ["first"]
    hopefully(path, "next")
    assert done_in(read_folder(path)) == ["first", "next"]
    assert b"half" not in (path / LINES).read_bytes() + (path / INDEX).read_bytes()


def test_a_copy_made_of_links_keeps_its_own_receipts(path: Path) -> None:
    """As backups are made: what one of them forgets is not added to the other, and nothing is cut off there."""
    shutil.copytree(path, path.with_name("copy"), copy_function=os.link)
    hopefully(path, "here")
    hopefully(path.with_name("copy"), "there")
    assert done_in(read_folder(path)) == ["first", "here"]
    assert done_in(read_folder(path.with_name("copy"))) == ["first", "there"]


def test_without_links_receipts_are_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    hopefully(path, "more")
    assert done_in(read_folder(path)) == ["first", "more"]


def test_many_receipts_are_read_when_they_are_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        hopefully(path, f"{number}")
    monkeypatch.setattr(log, "IN_MEMORY", 10)
    content = (path / LINES).read_bytes()
    (path / LINES).write_bytes(content.replace(b'"1"', b'"7"'))
    found = read_folder(path)
    assert [took["nodes"] for took, _ in found.receipts.took()][1:] == [[f"{n}"] for n in range(5)]
    assert json.loads(found.receipts.line(1))["name"] == "0"
    with pytest.raises(RunError, match=r"line 3 of receipts.jsonl has been truncated or edited"):
        found.receipts.line(2)
    (path / LINES).write_bytes(content)
    forget(read_folder(path), "more")
    assert json.loads(found.receipts.line(1))["name"] == "0", "though its name is gone"


def test_receipts_of_a_long_stream_do_not_stay_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "IN_MEMORY", 10)
    monkeypatch.setattr(log, "KEPT", 4)
    now, logs = read_folder(path), []
    for number in range(10):
        more = now.receipts if not logs else logs[-1]
        logs.append(more.plus(b"%d" % number, {}, undirected=False))
        write_folder(path, files(["first"]), logs[-1], now.digest)
        assert len(logs[-1]._shared.lines) < 4
    assert [logs[-1].line(number) for number in range(1, 11)] == [b"%d" % number for number in range(10)]
    apart = logs[2].plus(b"apart", {}, undirected=False)
    assert b"".join(apart.lines_from(1)) == b"0\n1\n2\napart\n"
    shutil.rmtree(path)
    assert logs[-1].line(5) == b"4", "a file that is open is there"


def test_two_runs_that_go_on_from_one_have_their_own_receipts() -> None:
    start = Log().plus(b"a", {}, undirected=False)
    one, other = start.plus(b"b", {}, undirected=False), start.plus(b"c", {}, undirected=True)
    assert [b"".join(some.lines_from(0)) for some in (start, one, other)] == [b"a\n", b"a\nb\n", b"a\nc\n"]
    assert one.begins_with(start.extent)
    assert not one.begins_with(other.extent)
    assert not start.begins_with(one.extent)
    again = Log().plus(b"a", {}, undirected=False)
    assert again.extent == start.extent, "which is no longer the end of what it shares"


def test_a_run_of_the_first_format_is_read_and_written_in_the_second(path: Path) -> None:
    """With more receipts than version 0.1 could read again."""
    (path / "receipts").mkdir()
    names = {}
    for number in (1, 2, 10_000):
        receipt = {"name": f"{number}", "previous": None, "request": {"nodes": [number]}, "graph": {"undirected": True}}
        names[f"receipts/{number:04d}.json"] = to_json(receipt)
    for name, content in names.items():
        (path / name).write_bytes(content)
    for name in (LINES, INDEX):
        (path / name).unlink()
    manifest = json.loads((path / "manifest.json").read_text())
    digests = manifest["files"] | {name: folder.sha(content) for name, content in names.items()}
    seal(path, {"format": "unweave-run-1", "files": digests})
    found = read_folder(path)
    assert [json.loads(found.receipts.line(n))["name"] for n in range(3)] == ["1", "2", "10000"]
    assert list(found.receipts.took())[2] == ({"nodes": [10_000]}, True)
    assert not any(name.startswith("receipts") for name in found.files)
    write_folder(path, found.files, found.receipts, found.digest)
    assert not (path / "receipts").exists()
    again = read_folder(path)
    assert [again.receipts.line(n) for n in range(3)] == [found.receipts.line(n) for n in range(3)]
    assert json.loads((path / "manifest.json").read_text())["format"] == "unweave-run-2"


@pytest.mark.parametrize("name", ["weights.safetensors", LINES, INDEX, "manifest.json"])
def test_a_link_among_the_files_is_refused(path: Path, name: str) -> None:
    shutil.move(path / name, path.parent / "elsewhere")
    (path / name).symlink_to(path.parent / "elsewhere")
    with pytest.raises(RunError, match="missing or cannot be read"):
        read_folder(path)


def test_a_pipe_among_the_files_is_refused(path: Path) -> None:
    (path / "config.json").unlink()
    os.mkfifo(path / "config.json")
    with pytest.raises(RunError, match="not a plain file"):
        read_folder(path)


def test_a_file_that_is_too_large_is_not_read(path: Path) -> None:
    with (path / "config.json").open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(RunError, match="more than any such file"):
        read_folder(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 2},
        {"count": -1},
        {"count": 0},
        {"count": True},
        {"bytes": 10**12},
        {"index_bytes": 1},
        {"index_sha256": 3},
        {"head": None},
        {"more": 1},
    ],
)
def test_a_manifest_that_says_something_else_of_its_receipts_is_refused(path: Path, wrong: dict[str, Any]) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    seal(path, manifest | {"receipts": manifest["receipts"] | wrong})
    with pytest.raises(RunError):
        read_folder(path)


@pytest.mark.parametrize(
    "line",
    [b"{}", b"[]", b"3", b'{"bytes":-1,"digest":"","request":{},"undirected":true}', b"{},{}", b"", b"[" * 10_000],
)
def test_an_index_that_is_none_is_refused(path: Path, line: bytes) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / INDEX).write_bytes(line + b"\n")
    said = {"index_bytes": len(line) + 1, "index_sha256": folder.sha(line + b"\n")}
    seal(path, manifest | {"receipts": manifest["receipts"] | said})
    with pytest.raises(RunError, match=r"requests\.jsonl does not hold"):
        read_folder(path)


def test_canonical_lines_have_no_line_breaks() -> None:
    assert "\n" not in canonical_json({"note": "one\ntwo\u2028three"})
    assert canonical_json({"note": "one\ntwo\u2028three"}).isascii()

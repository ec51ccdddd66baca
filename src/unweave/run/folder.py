"""The folder of a run: written whole or not at all, by one process at a time, and every file known by its digest.

**Writing.** A folder is written in a workshop beside its place, ``.NAME.unweave-xxxxxxxx``, as ``new`` in it. Where
there is one already, both change places in one step, or, where the system has no such step, the old one is moved to
``old`` of the workshop first. The workshop is deleted last. All of it happens under the lock of the folder
(:mod:`unweave.run.lock`), and only where what is replaced is what was opened: two processes that open a run, forget and
save in its place never undo each other. Receipts are added to the file that is there, of which the new folder has
another name, and no other byte of them is written again.

**Being killed.** A process that is killed on the way leaves the old folder, the new one, or a workshop with both, of
which the old one counts until the new one is in place. Whoever writes next puts it back where it has to, and deletes
what was left.

Reading, which disturbs nobody, is in :mod:`unweave.run.manifest`.
"""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal

from unweave._core.document import document_digest, to_json
from unweave.errors import RunError
from unweave.run.lock import lock_of, locked
from unweave.run.log import INDEX, LINES, Extent, Log
from unweave.run.manifest import FORMAT, Manifest, Opened, leftovers, read_folder, read_manifest, sha

__all__ = ["ANYTHING", "Expected", "Opened", "locked", "read_folder", "recover_folder", "write_folder"]


class _Anything(Enum):
    ANYTHING = "whatever is there"


ANYTHING: Final = _Anything.ANYTHING
Expected = str | Literal[_Anything.ANYTHING] | None
"""What may be replaced: the run whose manifest has this digest, whatever is there, or (``None``) nothing."""

_known: dict[Path, set[str | None]] = {}
"""Digests of what this process wrote last, by place, and of what that replaced."""


def write_folder(path: Path, files: Mapping[str, bytes], receipts: Log, expected: Expected) -> str:
    """Write a run beside its place, with a manifest of the digests of its files, and move it there in one step.

    Args:
        path: The folder.
        files: All files but manifest and receipts.
        receipts: The receipts.
        expected: What may be replaced.

    Returns:
        The digest of the manifest.

    Raises:
        RunError: Something else is there than expected, it holds files that are not of the run, or it cannot be
            written. What was there is there still.
    """
    path = path.resolve()  # what a link leads to is replaced, not the link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write to {path.parent}: {error}") from error
    with locked(path):
        _recover(path)
        there = _there(path)
        _compare(path, there, receipts, expected)
        try:
            work = Path(tempfile.mkdtemp(prefix=f".{path.name}.unweave-", dir=path.parent))
        except OSError as error:
            raise RunError(f"cannot write to {path.parent}: {error}") from error
        try:
            digest = _fill(work / "new", files, receipts, path, there)
            _known[path] = {digest, None if there is None else there.digest}
            _move(work, path)
        except BaseException as error:
            with suppress(OSError):
                _finish(work, path)
            if not isinstance(error, OSError):
                raise
            raise RunError(f"cannot write {path}: {error}") from error
        with suppress(OSError):  # then they stay in memory
            receipts.written(path / LINES)
        try:
            _finish(work, path)
        except OSError as error:
            raise RunError(
                f"{path} was written, but what it replaced could not be deleted; delete {work}: {error}"
            ) from error
    return digest


def recover_folder(path: Path) -> None:
    """Put back what a killed process left half done, and delete whatever else it left beside the folder."""
    if leftovers(path) or lock_of(path).exists():
        with locked(path):
            _recover(path.resolve())


def _recover(path: Path) -> None:
    """The same for who holds the lock: nobody else can be at work in a workshop."""
    for work in leftovers(path):
        with suppress(OSError):
            _finish(work, path)


def _there(path: Path) -> Manifest | None:
    """What is in the place of a run that is about to be written; what is no run, or more than one, is refused."""
    if not os.path.lexists(path):
        return None
    found = read_manifest(path)
    names = {str(name.relative_to(path)) for name in path.rglob("*") if not name.is_dir() or name.is_symlink()}
    if others := sorted(names - found.names):
        raise RunError(
            f"{path} holds files that are not of the run ({', '.join(others[:3])}{', …' * (len(others) > 3)}), and "
            "would lose them when it is replaced; move them away, or choose another folder"
        )
    return found


def _compare(path: Path, there: Manifest | None, receipts: Log, expected: Expected) -> None:
    """Refuse to replace another run than was expected."""
    if there is None or there.digest == expected:
        return
    if expected is None:
        raise RunError(f"{path} exists already; choose another folder, or ask to overwrite it")
    ours = there.digest in _known.get(path, ())
    if expected is ANYTHING:
        if ours or path not in _known:
            return
    elif ours and receipts.begins_with(there.receipts):  # it was saved there since it was opened
        return
    raise RunError(
        f"{path} has changed since it was last opened or written here: another process or another run has saved there. "
        "Nothing was written, and nothing is lost. Open the run again and carry the requests out on that, or save this "
        "one to another folder"
    )


def _fill(new: Path, files: Mapping[str, bytes], receipts: Log, path: Path, there: Manifest | None) -> str:
    """Write all files of a run to a new folder; the digest of its manifest."""
    new.mkdir()
    for name, content in files.items():
        _write(new / name, content)
    if len(receipts) and not _add(new, path, receipts, Extent() if there is None else there.receipts):
        _append(new / LINES, 0, receipts.lines_from(0), new=True)
        _append(new / INDEX, 0, [receipts.index_from(0)], new=True)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "files": {name: sha(content) for name, content in files.items()},
        "receipts": receipts.extent.to_dict(),
    }
    digest = document_digest(manifest)
    _write(new / "manifest.json", to_json(manifest | {"digest": digest}))
    new.chmod(0o755)
    return digest


def _add(new: Path, path: Path, receipts: Log, known: Extent) -> bool:
    """Add receipts to the files that are in place, of which the new folder has another name; whether that can be done.

    What is in place does not change by it: its manifest says where its receipts end. Where such a file has a name
    elsewhere, it is not this run's alone, and is copied.
    """
    if not known.count or not receipts.begins_with(known):
        return False
    try:
        for name in (LINES, INDEX):
            if (path / name).lstat().st_nlink > 1:
                return False
        for name in (LINES, INDEX):
            os.link(path / name, new / name, follow_symlinks=False)
    except OSError:  # not every file system has links
        for name in (LINES, INDEX):
            (new / name).unlink(missing_ok=True)
        return False
    _append(new / LINES, known.bytes, receipts.lines_from(known.count))
    _append(new / INDEX, known.index_bytes, [receipts.index_from(known.count)])
    return True


def _append(path: Path, at: int, content: Iterable[bytes], *, new: bool = False) -> None:
    """Write to a file from some byte on; what was there is cut off."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
    with open(os.open(path, flags, 0o644), "wb") as stream:
        if os.fstat(stream.fileno()).st_size < at:
            raise OSError(f"{path.name} is shorter than the manifest says")
        stream.truncate(at)
        stream.seek(at)
        stream.writelines(content)
        stream.flush()
        os.fsync(stream.fileno())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _move(work: Path, path: Path) -> None:
    """Put the finished folder in place."""
    _sync(work / "new")
    if not path.exists():
        (work / "new").rename(path)
    elif not _exchange(work / "new", path):
        path.rename(work / "old")  # until the next step there is no folder in place; readers and _finish know
        try:
            (work / "new").rename(path)
        except OSError:
            (work / "old").rename(path)
            raise
    _sync(path.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step, where the system can (Linux); whether they did."""
    with suppress(OSError, AttributeError, TypeError):
        here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        return bool(ctypes.CDLL(None).renameat2(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)
    return False


def _finish(work: Path, path: Path) -> None:
    """Put the old folder back where a move stopped half-way, and delete the workshop."""
    if not path.exists() and (work / "old").exists() and (work / "new").exists():
        (work / "old").rename(path)
        _sync(path.parent)
    shutil.rmtree(work)


def _sync(folder: Path) -> None:
    """Have the names in a folder written to disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""The folder of a run: written whole or not at all, and every file known by its digest.

A folder is written in a workshop beside its place, ``.NAME.unweave-xxxxxxxx``, as ``new`` in it. Where there is one
already, both change places in one step, or, where the system has no such step, the old one is moved to ``old`` of the
workshop first. The workshop is deleted last. A process that is killed on the way leaves the old folder, the new one, or
a workshop with both; whoever opens or writes the run next completes the move, and deletes every workshop that no living
process holds the lock of.
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unweave._core.digest import document_digest, to_json
from unweave.errors import RunError
from unweave.receipt.traces import STATES

__all__ = ["check_folder", "read_folder", "recover_folder", "write_folder"]

FORMAT = "unweave-run-1"
STATE = tuple(name for part in STATES for name in part.files)
PARTS = ("weights.safetensors", "config.json", "split.json", "metrics.json")
DECAY = "decay.safetensors"
"""The weight decay of each entry, where it is not one number or some by name."""


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the files beside the folder's place, with a manifest of their digests, and move them there in one step."""
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "files": {name: _sha(text) for name, text in files.items()},
    }
    files = {**files, "manifest.json": to_json(manifest | {"digest": document_digest(manifest)})}
    path = path.resolve()  # what a link leads to is replaced, not the link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = _workshop(path)
    except OSError as error:
        raise RunError(f"cannot write to {path.parent}: {error}") from error
    with _held(work):
        try:
            for name, content in files.items():
                _write(work / "new" / name, content)
            (work / "new").chmod(0o755)
            _move(work, path)
        except BaseException as error:
            with suppress(OSError):
                _finish(work, path)
            if not isinstance(error, OSError):
                raise
            raise RunError(f"cannot write {path}: {error}") from error
        try:
            _finish(work, path)
        except OSError as error:
            raise RunError(
                f"{path} was written, but what it replaced could not be deleted; delete {work}: {error}"
            ) from error


def recover_folder(path: Path) -> None:
    """Complete a move that a killed process left half done, and delete whatever else it left beside the folder."""
    path = path.resolve()
    ours = re.compile(rf"\.{re.escape(path.name)}\.unweave-[a-z0-9_]{{8}}")
    with suppress(OSError):  # a place that cannot be read or written is for the caller to find out
        for work in path.parent.iterdir():
            if ours.fullmatch(work.name) and work.is_dir():
                with _held(work) as alone, suppress(OSError):
                    if alone:
                        _finish(work, path)


def check_folder(path: Path) -> None:
    """Refuse what is not a run, or holds more than one: it is about to be replaced, and that would be lost."""
    known = {"manifest.json", *_manifest(path)}
    there = {str(found.relative_to(path)) for found in path.rglob("*") if not found.is_dir() or found.is_symlink()}
    if others := sorted(there - known):
        raise RunError(
            f"{path} holds files that are not of the run ({', '.join(others[:3])}{', …' * (len(others) > 3)}), and "
            "would lose them when it is replaced; move them away, or choose another folder"
        )


def read_folder(path: Path) -> dict[str, bytes]:
    """All files of a run, each checked against the manifest."""
    recover_folder(path)
    contents = {}
    for name, expected in _manifest(path).items():
        try:
            if (path / name).is_symlink():
                raise OSError("it is a link")
            contents[name] = (path / name).read_bytes()
        except OSError as error:
            raise RunError(f"{path / name} is missing or cannot be read: {error}") from error
        if _sha(contents[name]) != expected:
            raise RunError(f"{path / name} has been truncated or edited: its digest does not match the manifest")
    return contents


def _manifest(path: Path) -> dict[str, str]:
    """The digests of a run's files, by name; names other than a run's own are refused."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        digest = manifest.pop("digest")
        files = dict(manifest["files"])
        edited = digest != document_digest(manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{path} is not a run: it has no manifest.json") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path / 'manifest.json'} is truncated or edited: {error}") from error
    if edited:
        raise RunError(f"{path / 'manifest.json'} has been edited: its digest does not match")
    if manifest.get("format") != FORMAT:
        raise RunError(f"{path} has the format {manifest.get('format')!r}; this version reads {FORMAT!r}")
    strange = [n for n in files if n not in (*PARTS, *STATE, DECAY) and not re.fullmatch(r"receipts/\d{4}\.json", n)]
    missing = [n for n in PARTS if n not in files]
    if strange or missing:
        raise RunError(f"{path / 'manifest.json'} names {strange or 'too few files'}: this is not a run")
    return files


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _workshop(path: Path) -> Path:
    """A new folder beside ``path`` to write in."""
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.unweave-", dir=path.parent))


@contextmanager
def _held(work: Path) -> Iterator[bool]:
    """Hold the lock of a workshop within the block; whether nobody else does. It goes when its process does."""
    try:
        import fcntl  # noqa: PLC0415 (not on every platform)

        lock = (work / "lock").open("w")
    except (ImportError, OSError):
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def _move(work: Path, path: Path) -> None:
    """Put the finished folder in place."""
    _sync(work / "new")
    if not path.exists():
        (work / "new").rename(path)
    elif not _exchange(work / "new", path):
        path.rename(work / "old")  # until the next step there is no folder in place; _finish knows
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
    """Complete a move that stopped half-way, and delete the workshop."""
    if not path.exists() and (work / "old").exists() and (work / "new").exists():
        (work / "new").rename(path)
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


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""Reading the folder of a run: what its manifest says, and every file checked against that.

A reader opens all files of a folder before it reads any, changes nothing and waits for nobody. Where the folder was
replaced before all of them were open, it begins again: who replaces a folder deletes the names of its files, and what
is open can be read to its end.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from unweave._core.document import canonical_json, document_digest
from unweave.errors import RunError
from unweave.receipt.traces import STATES
from unweave.run.lock import lock_of
from unweave.run.log import INDEX, LINES, Extent, Log

__all__ = ["FORMAT", "PARTS", "STATE", "Manifest", "Opened", "leftovers", "read_folder", "read_manifest", "sha"]

FORMAT, FIRST = "unweave-run-2", "unweave-run-1"
PARTS = ("weights.safetensors", "config.json", "split.json", "metrics.json")
STATE = tuple(name for part in STATES for name in part.files)
DECAY = "decay.safetensors"
"""The weight decay of each entry, where it is not one number or some by name."""

LARGEST = {"split.json": 2**30, ".json": 2**24, ".safetensors": 2**40}
"""Bytes that a file may have, by how its name ends; JSON takes some twenty times as much in memory."""

ATTEMPTS, PATIENCE = 50, 5
"""How often a reader begins again, some milliseconds apart, where the folder was replaced, and where it is away for a
moment. It needs all files to be there for as long as it takes to open them, which no writer is fast enough for."""

T = TypeVar("T")


@dataclass(frozen=True)
class Manifest:
    """What a folder says that it holds.

    Attributes:
        digest: Of all of it.
        files: The digests of its files, by name.
        receipts: How much of the files of receipts belongs to it.
        format: That of the folder.
    """

    digest: str
    files: dict[str, str]
    receipts: Extent
    format: str

    @property
    def names(self) -> set[str]:
        """All files of the folder."""
        return {"manifest.json", *self.files, *((LINES, INDEX) if self.receipts.count else ())}


@dataclass(frozen=True)
class Opened:
    """What was read from a folder.

    Attributes:
        path: The folder.
        digest: That of its manifest, for :func:`write_folder`.
        files: Its files by name, receipts not among them.
        receipts: The receipts.
    """

    path: Path
    digest: str
    files: dict[str, bytes] = field(repr=False)
    receipts: Log


def read_folder(path: Path) -> Opened:
    """All files of a run, each checked against the manifest."""
    return _undisturbed(path, _read)


def read_manifest(path: Path) -> Manifest:
    """What a folder says that it holds, unchecked."""
    return _undisturbed(path, _manifest)


def leftovers(path: Path) -> list[Path]:
    """The workshops beside a folder: that of whoever writes it now, or what was killed left them."""
    path = path.resolve()
    ours = re.compile(rf"\.{re.escape(path.name)}\.unweave-[a-z0-9_]{{8}}")
    with suppress(OSError):  # a place that cannot be read is for the caller to find out
        return [work for work in path.parent.iterdir() if ours.fullmatch(work.name) and _is_own_folder(work)]
    return []


def _is_own_folder(path: Path) -> bool:
    """A folder of this user, and not a link to one."""
    try:
        found = path.lstat()
    except OSError:  # its writer has finished
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _undisturbed(path: Path, read: Callable[[Path, int], T]) -> T:
    """Read a folder while others may replace it: begin again where it was replaced before all of it was open."""
    away = 0
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(0.002 * attempt)
        handle = _folder(path)
        if handle is None:
            away += 1
            if away == PATIENCE or not (leftovers(path) or lock_of(path).exists()):
                raise RunError(f"{path} is not a run: it has no manifest.json")
            continue
        try:
            return read(path, handle)
        except RunError:
            if _is_in_place(handle, path):
                raise
        finally:
            os.close(handle)
    raise RunError(f"{path} is replaced again and again by another process; open it when that has finished")


def _folder(path: Path) -> int | None:
    """The folder of a run, open; the old one where a move stopped half-way. ``None`` where there is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise RunError(f"{path} is not a run: {error.strerror}") from error
    for work in leftovers(path):
        with suppress(OSError):
            if (work / "new").exists():
                return os.open(work / "old", flags | os.O_NOFOLLOW)
    return None


def _is_in_place(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _read(path: Path, folder: int) -> Opened:
    """Read an open folder. All files are opened first: who replaces the folder deletes their names, not the files."""
    manifest = _manifest(path, folder)
    with ExitStack() as stack:
        handles = {}
        for name in sorted(manifest.names - {"manifest.json"}):
            handles[name] = _opened(path, folder, name)
            stack.callback(os.close, handles[name])
        contents = {name: _content(path / name, handles[name]) for name in manifest.files}
        for name, content in contents.items():
            if sha(content) != manifest.files[name]:
                raise RunError(f"{path / name} has been truncated or edited: its digest does not match the manifest")
        try:
            if manifest.format == FIRST:
                log = _first_receipts(contents)
            else:
                log = Log.read(manifest.receipts, handles[LINES], handles[INDEX]) if manifest.receipts.count else Log()
        except RunError as error:
            raise RunError(f"{path}: {error}") from error
    return Opened(path, manifest.digest, contents, log)


def _opened(path: Path, folder: int, name: str) -> int:
    """A file of an open folder, open for reading; refused where it, or a folder in it, is a link or something else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        if "/" in name:
            inner, _, rest = name.partition("/")
            within = os.open(inner, flags | os.O_DIRECTORY, dir_fd=folder)
            try:
                handle = os.open(rest, flags, dir_fd=within)
            finally:
                os.close(within)
        else:
            handle = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise RunError(f"{path / name} is missing or cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path / name} is not a plain file")
    return handle


def _content(path: Path, handle: int) -> bytes:
    """All of a file, unless it is larger than any of its kind."""
    most = next(size for ending, size in LARGEST.items() if path.name.endswith(ending))
    if (size := os.fstat(handle).st_size) > most:
        raise RunError(f"{path} has {size:,} bytes, more than any such file of a run ({most:,}): it was not read")
    try:
        with open(handle, "rb", closefd=False) as stream:
            return stream.read(size + 1)
    except (OSError, MemoryError) as error:
        raise RunError(f"{path} cannot be read: {error or 'there is not enough memory for it'}") from error


def _manifest(path: Path, folder: int) -> Manifest:
    """What a folder says that it holds; names other than a run's own are refused."""
    where = path / "manifest.json"
    try:
        os.stat("manifest.json", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise RunError(f"{path} is not a run: it has no manifest.json") from None
    handle = _opened(path, folder, "manifest.json")
    try:
        document = json.loads(_content(where, handle))
        digest = document.pop("digest")
        edited = digest != document_digest(document)
        kind, files = document.get("format"), document["files"]
        if not edited and kind not in (FORMAT, FIRST):
            raise RunError(f"{path} has the format {kind!r}; this version reads {FORMAT!r} and {FIRST!r}")
        extent = Extent.from_dict(document["receipts"]) if kind == FORMAT else Extent()
        if not all(isinstance(text, str) for text in (digest, *files, *files.values())):
            raise ValueError("it holds something else than digests")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{where} is truncated or edited: {error}") from error
    finally:
        os.close(handle)
    if edited:
        raise RunError(f"{where} has been edited: its digest does not match")
    receipts = r"receipts/\d{4,}\.json" if kind == FIRST else r"(?!)"
    strange = [n for n in files if n not in (*PARTS, *STATE, DECAY) and not re.fullmatch(receipts, n)]
    missing = [n for n in PARTS if n not in files]
    if strange or missing:
        raise RunError(f"{where} names {strange or 'too few files'}: this is not a run")
    return Manifest(digest, dict(files), extent, str(kind))


def _first_receipts(contents: dict[str, bytes]) -> Log:
    """The receipts of a run of version 0.1, taken from among its files."""
    log = Log()
    for name in sorted((name for name in contents if name.startswith("receipts/")), key=lambda n: int(n[9:-5])):
        try:
            document = json.loads(contents.pop(name))
            took, undirected = document["request"], document["graph"]["undirected"]
            if not isinstance(took, dict) or not isinstance(undirected, bool):
                raise TypeError("its request is none")
            log = log.plus(canonical_json(document).encode(), took, undirected)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{name} does not hold what a receipt holds: {error}") from error
    return log


def sha(content: bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(content).hexdigest()

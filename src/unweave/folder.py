"""The folder of a run: written whole or not at all, and every file known by its digest."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unweave._digest import document_digest
from unweave.errors import RunError

__all__ = ["check_folder", "read_folder", "to_json", "write_folder"]

FORMAT = "unweave-run-1"
STATE = ("prepared.safetensors", "prepared.json", "checkpoints.safetensors", "checkpoints.json", "calibration.json")
PARTS = ("weights.safetensors", "config.json", "split.json", "metrics.json")


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the files beside the folder's place, with a manifest of their digests, and move them there in one step."""
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "files": {name: _sha(text) for name, text in files.items()},
    }
    files = {**files, "manifest.json": to_json(manifest | {"digest": document_digest(manifest)})}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise RunError(f"cannot write to {path.parent}: {error}") from error
    try:
        for name, content in files.items():
            _write(staging / name, content)
        staging.chmod(0o755)
        _move(staging, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_folder(path: Path) -> None:
    """Refuse what is not a run."""
    _manifest(path)


def read_folder(path: Path) -> dict[str, bytes]:
    """All files of a run, each checked against the manifest."""
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


def to_json(document: Any) -> bytes:
    """A document as the bytes of a file."""
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


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
    strange = [n for n in files if n not in (*PARTS, *STATE) and not re.fullmatch(r"receipts/\d{4}\.json", n)]
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


def _move(staging: Path, path: Path) -> None:
    """Put the finished folder in place; an old one is moved aside first and deleted last."""
    if not path.exists():
        staging.rename(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    path.rename(aside / "run")
    try:
        staging.rename(path)
    except OSError:
        (aside / "run").rename(path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

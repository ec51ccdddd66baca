"""Write a file whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from unweave.errors import UnweaveError

__all__ = ["write_whole"]


def write_whole(path: str | Path, text: str) -> Path:
    """Write a text in place of what a file holds, in one step; the folder is made where it is missing.

    Raises:
        UnweaveError: It cannot be written; what was there is as it was.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UnweaveError(f"cannot write {path}: {error}") from error
    return path

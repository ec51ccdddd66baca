"""Where data files lie, how they come there, and whether they are what they claim to be."""

import hashlib
import os
from pathlib import Path

from torch_geometric.data import download_url

from unweave.datasets.catalogue import Entry
from unweave.errors import DataError, DataUnavailableError, IntegrityError

__all__ = ["VARIABLE", "fetch", "find_root", "known_sum"]

VARIABLE = "UNWEAVE_DATA"


def find_root(root: str | Path | None) -> Path:
    """The data folder: the argument, then ``UNWEAVE_DATA``, then the user's cache folder."""
    if root is not None:
        return Path(root)
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "unweave"


def fetch(name: str, entry: Entry, root: Path) -> Path:
    """The folder with all files of a data set, downloaded where they are missing.

    Raises:
        DataUnavailableError: Files are missing and the download failed.
    """
    raw = root / entry.folder / entry.inner
    missing = [file for file in entry.files if not (raw / file).is_file()]
    for file in missing:
        try:
            if not entry.url:
                raise DataError("nobody offers it for download")
            download_url(entry.url.format(file), str(raw), log=False)
        except Exception as error:  # the download library may raise almost anything
            raise DataUnavailableError(
                f"{name} is not on this machine and could not be downloaded ({error}). Put {', '.join(missing)} into "
                f"{raw}, or point {VARIABLE} (or root=) at a folder that holds "
                f"{(Path(entry.folder) / entry.inner).as_posix()}"
            ) from error
    return raw


def known_sum(path: Path, accepted: tuple[str, ...]) -> bool:
    """Whether the file has one of the accepted SHA-256 sums."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() in accepted


def refuse(path: Path) -> IntegrityError:
    """The error for a file that is not what it claims to be."""
    return IntegrityError(
        f"{path} is not the known file of that name (its SHA-256 sum differs), so it was not read; "
        "delete it to download it again"
    )

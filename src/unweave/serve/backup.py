"""Copy a service while it runs: a state of its database, and the files that this state names."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import select

from unweave.errors import ServiceError
from unweave.serve import database
from unweave.serve.ledger.keys import CURRENT
from unweave.serve.ledger.ledger import DATABASE, KEYS
from unweave.serve.service import MODELS, Service
from unweave.serve.tables import versions

__all__ = ["backup"]

TRIES = 10
"""Times that a version may go while it is copied."""


def backup(service: Service, out: str | Path) -> int:
    """Copy a service to a new folder, from which it can be started; how many versions it has.

    What is in PostgreSQL is not copied: dump it while no worker runs, and then copy the rest.

    Args:
        service: Which; it may be running.
        out: A folder that is not there yet.

    Raises:
        ServiceError: The folder is there, or cannot be written.
    """
    out = Path(out)
    if out.exists():
        raise ServiceError(f"{out} exists already; choose another folder")
    beside = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(mode=0o700, parents=True)
        for _ in range(TRIES):
            try:
                count = _copy(service, beside)
                break
            except (FileNotFoundError, shutil.Error):  # a version was purged meanwhile: the newer state is copied
                shutil.rmtree(beside, ignore_errors=True)
                beside.mkdir(mode=0o700)
        else:
            raise ServiceError(f"versions change faster than they can be copied; stop the workers while {out} is made")
        beside.rename(out)
    except OSError as error:
        raise ServiceError(f"cannot copy the service to {out}: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return count


def _copy(service: Service, out: Path) -> int:
    shutil.copytree(service.home / KEYS, out / KEYS)
    folders = _versions(service, out)
    if (service.home / KEYS / CURRENT).read_bytes() != (out / KEYS / CURRENT).read_bytes():
        raise FileNotFoundError("the signing key was changed meanwhile")
    for model, folder in folders:
        shutil.copytree(service.folder(model) / folder, out / MODELS / model / folder)
    return len(folders)


def _versions(service: Service, out: Path) -> list[tuple[str, str]]:
    """Copy the database where it is a file; the folders that the copy names."""
    query = select(versions.c.model, versions.c.folder).where(versions.c.purged.is_(False))
    if service.engine.dialect.name != "sqlite":
        with database.reading(service.engine) as connection:
            return [(row.model, row.folder) for row in connection.execute(query)]
    path = out / DATABASE
    path.touch(mode=0o600)
    place = str(service.engine.url.database)
    with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
        target.execute("UPDATE models SET worker = NULL, until = NULL")  # who holds the other one does not hold this
        target.commit()
        found = target.execute(str(query.compile(compile_kwargs={"literal_binds": True}))).fetchall()
    return [(model, folder) for model, folder in found]

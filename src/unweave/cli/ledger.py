"""``unweave ledger``: check what a service did, write it out, and publish where it stands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.options import Json
from unweave.cli.output import print_json, reports_errors, say

if TYPE_CHECKING:
    from unweave.serve.ledger import Checkpoint, Ledger

__all__ = ["ledger"]

ledger = typer.Typer(
    no_args_is_help=True, help="The ledger of a service: check it, write it out, publish where it stands."
)

Home = Annotated[Path, typer.Argument(help="Folder of the service.")]
Database = Annotated[str | None, typer.Option(help="URL of its database, where that is not in the folder.")]


@ledger.command()
@reports_errors
def verify(
    path: Annotated[
        Path, typer.Argument(help="File that `ledger export` wrote, evidence of a request, or folder of the service.")
    ],
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="Checkpoint that was published before; may be given several times.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Fingerprint of the key that must have opened it.")] = None,
    database: Database = None,
    json: Json = False,
) -> None:
    """Check a ledger from its first entry to its last. A file is checked offline: nothing else is needed."""
    _needed()
    from dataclasses import asdict

    from unweave.serve.ledger import database_of, read_checkpoint, verify_database, verify_file

    points = [read_checkpoint(_read(file)) for file in checkpoint or []]
    if path.suffix == ".zip":
        _verify_evidence(path, points, key, json=json)
        return
    if path.is_dir():
        engine = database_of(path, database)
        try:
            found = verify_database(engine, checkpoints=points, key=key)
        finally:
            engine.dispose()
    else:
        found = verify_file(path, checkpoints=points, key=key)
    if json:
        print_json(asdict(found))
        return
    say(f"In order: {found.entries:,} entries, the last of {found.last}.")
    say(f"Opened with the key {found.first_key}{'' if key is None else ', as expected'}; ledger {found.ledger}.")
    if points:
        say(f"It is the ledger that {len(points)} published {'checkpoint' if len(points) == 1 else 'checkpoints'} saw.")
    else:
        say("Without a published checkpoint its owner could have rewritten all of it (--checkpoint).")


@ledger.command()
@reports_errors
def export(home: Home, out: Annotated[Path, typer.Option(help="File to write.")], database: Database = None) -> None:
    """Write all entries and a checkpoint to a file. Nothing personal is in it."""
    _needed()
    from unweave.serve.ledger import export as write

    point = write(_open(home, database), out)
    say(f"{point.sequence:,} entries in {out}. Check them anywhere: unweave ledger verify {out}")


@ledger.command()
@reports_errors
def checkpoint(
    home: Home,
    out: Annotated[Path | None, typer.Option(help="File to write; otherwise it is printed.")] = None,
    database: Database = None,
) -> None:
    """Say where the ledger stands, signed. Published elsewhere, it shows whether the chain was rewritten later."""
    _needed()
    from unweave._core.writing import write_whole

    point = _open(home, database).checkpoint()
    if out is None:
        typer.echo(point.text)
    else:
        write_whole(out, point.text + "\n")
        say(f"{point.sequence:,} entries, as of {point.at}, in {out}. Keep it where the service cannot write.")


@ledger.command("change-key")
@reports_errors
def change_key(home: Home, database: Database = None) -> None:
    """Sign with a new key from now on, which the old one vouches for; the old one is gone."""
    _needed()
    say(f"Signing with {_open(home, database).change_signing_key()} from now on. Make a backup of the folder of keys.")


def _verify_evidence(path: Path, points: "list[Checkpoint]", key: str | None, *, json: bool) -> None:
    from dataclasses import asdict

    from unweave.serve.evidence import verify_package

    found = verify_package(path, checkpoints=tuple(points), key=key)
    if json:
        print_json(asdict(found))
        return
    say(f"In order: request {found.request} to {found.model}, {found.outcome}, ended {found.at}.")
    for verdict in found.receipts:
        say(f"Receipt: {verdict}")
    say(f"Ledger {found.ledger.ledger}, opened with the key {found.ledger.first_key}.")
    if not points:
        say("Without a published checkpoint its owner could have rewritten all of it (--checkpoint).")


def _open(home: Path, url: str | None) -> "Ledger":
    from unweave.serve.ledger import Ledger

    return Ledger.at(home, url, make=False)


def _read(path: Path) -> str:
    from unweave.errors import LedgerError

    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"cannot read {path}: {error}") from error


def _needed() -> None:
    """Say what to install, before any work."""
    from importlib.util import find_spec

    from unweave.errors import LedgerError

    if any(find_spec(name) is None for name in ("alembic", "cryptography", "sqlalchemy")):
        raise LedgerError("this needs more than is installed: pip install 'unweave[serve]'")

"""A ledger in a file of lines: every entry, then a checkpoint. Nothing personal is in it, and no database is needed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from unweave._core.writing import write_whole
from unweave.errors import LedgerError
from unweave.serve import database
from unweave.serve.ledger.chain import Checkpoint, Verified, read_checkpoint, verify
from unweave.serve.ledger.entries import Signed
from unweave.serve.ledger.ledger import Ledger, lines_of

__all__ = ["export", "verify_file"]


def export(ledger: Ledger, path: str | Path) -> Checkpoint:
    """Write all entries and a checkpoint, one a line; the checkpoint."""
    point = ledger.checkpoint()
    with database.reading(ledger.engine) as connection:
        lines = [line.line for line in lines_of(connection) if line.entry.sequence <= point.sequence]
    write_whole(path, "\n".join([*lines, point.text]) + "\n")
    return point


def verify_file(path: str | Path, *, checkpoints: Iterable[Checkpoint] = (), key: str | None = None) -> Verified:
    """Check an exported ledger; the arguments are those of :func:`unweave.serve.ledger.verify`.

    Raises:
        LedgerError: One byte of it was changed, or it is not what was published before.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"cannot read {path}: {error}; give the file that `unweave ledger export` wrote") from error
    *lines, last = text.split("\n") if text else ["", ""]
    if last or not lines:
        raise LedgerError(f"{path} does not end with a whole line; it was cut")
    *body, end = lines
    point = read_checkpoint(end)
    found = verify(_signed(body), checkpoints=[*checkpoints, point], key=key)
    if found.entries != point.sequence:
        raise LedgerError(
            f"{path} has {found.entries} entries and a checkpoint of {point.sequence}; it was put together"
        )
    return found


def _signed(lines: Iterable[str]) -> Iterator[Signed]:
    for line in lines:
        yield Signed.read(line)

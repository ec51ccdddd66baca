"""Save a run to a folder, whole or not at all."""

from dataclasses import replace
from pathlib import Path

from unweave.receipt.traces import replaced
from unweave.run.files import files_of
from unweave.run.folder import ANYTHING, Expected, write_folder
from unweave.run.receipts import Receipts
from unweave.run.state import State

__all__ = ["at", "save"]


def save(state: State, path: str | Path, *, overwrite: bool) -> State:
    """Write the parts of a run to a folder; see :meth:`unweave.Run.save`.

    Returns:
        The run as the folder holds it. Where that is the one it was opened from, it is known to be this one now, so
        that it may be replaced by what comes of this.
    """
    path, state = Path(path), at(state, path)
    home = state.origin if _is_home(state, path) else None
    expected: Expected = None if not overwrite else ANYTHING if home is None else home.digest
    digest = write_folder(path, files_of(state), Receipts.of(state.receipts).log, expected)
    return state if home is None else replace(state, origin=home._replace(digest=digest))


def at(state: State, path: str | Path) -> State:
    """A run as a folder will hold it: its receipts know whether the run before is replaced."""
    if not _is_home(state, path):
        return state
    assert state.origin is not None
    here = str(state.origin.path)
    return replace(state, receipts=tuple(replace(r, remembers=replaced(r.remembers, here)) for r in state.receipts))


def _is_home(state: State, path: str | Path) -> bool:
    """Whether a folder is the one that a run was opened from."""
    return state.origin is not None and Path(path).resolve() == state.origin.path.resolve()

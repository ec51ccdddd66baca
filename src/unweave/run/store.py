"""Save a run to a folder, whole or not at all."""

from dataclasses import replace
from pathlib import Path

from unweave._core import ranks
from unweave.run.files import files_of
from unweave.run.folder import ANYTHING, Expected, write_folder
from unweave.run.state import State

__all__ = ["is_home", "save"]


def save(state: State, path: str | Path, *, overwrite: bool) -> State:
    """Write the parts of a run to a folder; see :meth:`unweave.Run.save`.

    Returns:
        The run as the folder holds it. Where that is the one it was opened from, it is known to be this one now, so
        that it may be replaced by what comes of this.
    """
    path = Path(path)
    home = state.origin if is_home(state, path) else None
    expected: Expected = None if not overwrite else ANYTHING if home is None else home.digest
    digest = ranks.first(lambda: write_folder(path, files_of(state), state.receipts.log, expected))
    return state if home is None else replace(state, origin=home._replace(digest=digest))


def is_home(state: State, path: Path) -> bool:
    """Whether a folder is the one that a run was opened from."""
    return state.origin is not None and path.resolve() == state.origin.path.resolve()

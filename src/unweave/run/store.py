"""Save a run to a folder, whole or not at all."""

from dataclasses import replace
from pathlib import Path

from unweave.errors import RunError
from unweave.receipt.traces import replaced
from unweave.run.files import files_of
from unweave.run.folder import check_folder, recover_folder, write_folder
from unweave.run.state import State

__all__ = ["at", "save"]


def save(state: State, path: str | Path, *, overwrite: bool) -> Path:
    """Write the parts of a run to a folder; see :meth:`unweave.Run.save`."""
    path = Path(path)
    recover_folder(path)
    if path.exists() and not overwrite:
        raise RunError(f"{path} exists already; choose another folder, or ask to overwrite it")
    if path.exists():
        check_folder(path)  # only a run is ever overwritten
    write_folder(path, files_of(at(state, path)))
    return path


def at(state: State, path: str | Path) -> State:
    """A run as a folder will hold it: its receipts know whether the run before is replaced."""
    if state.origin is None or Path(path).resolve() != state.origin[0].resolve():
        return state
    here = str(state.origin[0])
    return replace(state, receipts=tuple(replace(r, remembers=replaced(r.remembers, here)) for r in state.receipts))

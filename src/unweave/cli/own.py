"""Models and graphs of one's own on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.names import DATA
from unweave.errors import RunError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from unweave.run.run import Run

__all__ = ["OwnGraph", "OwnModel", "graph_named", "is_path", "opened"]

OwnModel = Annotated[
    str | None,
    typer.Option("--model", help="Where the model is your own: package.module:factory, which gives the module."),
]
OwnGraph = Annotated[
    Path | None, typer.Option("--data", help="Where the graph is your own: a .pt or .safetensors file, or a folder.")
]


def is_path(text: str) -> bool:
    """Whether a name is that of a function, ``package.module:function``."""
    return ":" in text


def graph_named(name: str, seed: int, root: Path | None) -> "Data":
    """A data set by its name, or a graph by its file or folder."""
    from unweave.datasets import load
    from unweave.datasets.own import SUFFIXES, read_graph

    own = Path(name).suffix in SUFFIXES or (name not in DATA and Path(name).is_dir())
    return read_graph(name) if own else load(name, seed=seed, root=root)


def opened(path: Path, *, device: str = "cpu", root: Path | None, model: str | None, data: Path | None) -> "Run":
    """Open a run, whoever made its model."""
    from unweave._core.cost import find_device
    from unweave.datasets.own import read_graph
    from unweave.run.factory import made_by
    from unweave.run.run import Run

    parts = {} if model is None else made_by(model)
    how = {key: parts[key] for key in ("model", "loss", "forward") if key in parts}
    try:
        run = Run.open(path, root=root, data=None if data is None else read_graph(data), **how)
    except RunError as error:
        if "of your own" not in str(error) or "--data" in str(error):
            raise
        raise RunError(f"{error} (on the command line --model package.module:factory)") from error
    return run.to(find_device(device))

"""Models and graphs of one's own on the command line."""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.errors import ModelError, RunError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from unweave.run.run import Run

__all__ = ["OwnGraph", "OwnModel", "graph_named", "is_path", "made_by", "opened"]

OwnModel = Annotated[
    str | None,
    typer.Option("--model", help="Where the model is your own: package.module:factory, which gives the module."),
]
OwnGraph = Annotated[
    Path | None, typer.Option("--data", help="Where the graph is your own: a .pt or .safetensors file of tensors.")
]

PARTS = ("model", "loss", "forward", "weight_decay", "trainer")


def is_path(text: str) -> bool:
    """Whether a name is that of a function, ``package.module:function``."""
    return ":" in text


def made_by(path: str) -> dict[str, Any]:
    """What a factory gives: the module, or a dict with it and how it was trained.

    Args:
        path: ``package.module:factory``; modules of the current folder are found.

    Returns:
        ``model``, and where the factory gave them ``loss``, ``forward``, ``weight_decay`` and ``trainer``.
    """
    from torch import nn

    module, _, name = path.partition(":")
    if not (module and name):
        raise ModelError(f"--model {path} must be package.module:factory, a function that gives your module")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(import_module(module), name)
    except ImportError as error:
        raise ModelError(f"--model {path}: cannot import {module}: {error}") from error
    except AttributeError as error:
        raise ModelError(f"--model {path}: {module} has no {name}") from error
    found = factory()
    parts = dict(found) if isinstance(found, Mapping) else {"model": found}
    strange = sorted(set(parts) - set(PARTS))
    if strange or not isinstance(parts.get("model"), nn.Module):
        raise ModelError(
            f"--model {path} must give a torch.nn.Module, or a dict of {', '.join(PARTS)}; it gave "
            + (f"{', '.join(strange)} as well" if strange else type(found).__name__)
        )
    return parts


def graph_named(name: str, seed: int, root: Path | None) -> "Data":
    """A data set by its name, or a graph by its file; one without validation and test nodes gets them by the seed."""
    from unweave.datasets import load
    from unweave.datasets.own import SUFFIXES, read_graph

    return read_graph(name) if Path(name).suffix in SUFFIXES else load(name, seed=seed, root=root)


def opened(path: Path, *, device: str = "cpu", root: Path | None, model: str | None, data: Path | None) -> "Run":
    """Open a run, whoever made its model."""
    from unweave._core.cost import find_device
    from unweave.datasets.own import read_graph
    from unweave.run.run import Run

    parts = {} if model is None else made_by(model)
    how = {key: parts[key] for key in ("model", "loss", "forward") if key in parts}
    try:
        run = Run.open(path, root=root, data=None if data is None else read_graph(data), **how)
    except RunError as error:
        if "of your own" not in str(error):
            raise
        raise RunError(f"{error} (on the command line --model package.module:factory --data graph.pt)") from error
    return run.to(find_device(device))

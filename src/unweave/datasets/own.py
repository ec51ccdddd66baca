"""A graph of one's own from a file: tensors alone are read, and nothing in it is executed."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from unweave.datasets.folder import load_folder
from unweave.errors import DataError
from unweave.tasks import Graphs, Links, Recommendation, Relations

__all__ = ["SUFFIXES", "graph_bytes", "read_graph", "writing_graph"]

SUFFIXES = (".pt", ".pth", ".safetensors")
TASK, TASKS = "task", {kind.__name__: kind for kind in (Graphs, Links, Recommendation, Relations)}
"""What says in a file that a graph is that of a task, and which there are."""

HETERO = "holds a HeteroData; write torch.save(uw.tasks.Relations.of(data), path)"
"""What is said of a file whose graph nobody said what to learn on."""

NEEDED = ("x", "edge_index", "y", "train_mask")


def read_graph(path: str | Path) -> Data:
    """Read a graph that ``torch.save(data, "graph.pt")`` wrote, or tensors by name (a dict, or safetensors).

    It is read by torch's weights-only loading, which knows tensors, PyG's ``Data``, the graphs of tasks
    (:mod:`unweave.tasks`) and plain values. A folder is mapped
    (:func:`~unweave.datasets.folder.load_folder`).

    Args:
        path: A ``.pt``, ``.pth`` or ``.safetensors`` file, or a folder.

    Raises:
        DataError: It cannot be read so, or is no graph with ``x``, ``edge_index``, ``y`` and ``train_mask``.
    """
    path = Path(path)
    if path.is_dir():
        return load_folder(path)
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path} must be a folder of a graph, or a file that ends in {', '.join(SUFFIXES)}")
    try:
        found = load_file(path) if path.suffix == ".safetensors" else _weights_only(path)
    except OSError as error:
        raise DataError(f"cannot read the graph {path}: {error}") from error
    except Exception as error:  # whatever a broken file makes of the reader
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0]
        if "torch_geometric.data.hetero_data" in str(error):
            raise DataError(f"{path} {HETERO}") from error
        raise DataError(
            f"{path} cannot be read without executing what is in it ({reason[:200]}); write it anew as tensors: "
            "torch.save(data.to_dict(), path), or safetensors.torch.save_file"
        ) from error
    if isinstance(found, dict):
        if not all(isinstance(key, str) for key in found):
            raise DataError(f"{path} holds a dict whose keys are not names; a graph is a dict of tensors by name")
        found = _made(found, path)
    if isinstance(found, HeteroData):
        raise DataError(f"{path} {HETERO}")
    if not isinstance(found, Data):
        raise DataError(f"{path} holds a {type(found).__name__}, not a torch_geometric.data.Data or a dict of tensors")
    missing = [key for key in NEEDED if not isinstance(found.get(key), Tensor)]
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}; a graph needs {', '.join(NEEDED)}")
    if type(found) is Data and "num_classes" not in found and found.y.dtype == torch.long and found.y.numel():
        found.num_classes = int(found.y.max()) + 1  # what a built-in model is made for
    return found


@contextmanager
def writing_graph(data: Data, path: str | Path) -> Iterator[None]:
    """Write a graph to a ``.pt`` file that :func:`read_graph` reads; it takes its place when the block ends well.

    Raises:
        DataError: It cannot be written there.
    """
    path = Path(path)
    if path.suffix not in (".pt", ".pth"):
        raise DataError(f"{path} must end in .pt: that is how a graph is written")
    new, kept = path.with_name(f"{path.name}.new"), _kept(data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(kept, new)
    except (OSError, RuntimeError) as error:
        raise DataError(f"cannot write the graph {path}: {error}") from error
    yield
    new.replace(path)


def graph_bytes(data: Data) -> bytes:
    """What :func:`writing_graph` writes."""
    content = BytesIO()
    torch.save(_kept(data), content)
    return content.getvalue()


def _kept(data: Data) -> dict[str, object]:
    """What such a file holds of a graph, by name."""
    kept = {key: value for key, value in data.to_dict().items() if value is not None}
    odd = next((key for key, value in kept.items() if not isinstance(value, Tensor) and not _plain(value)), None)
    if odd is not None:
        raise DataError(f"data.{odd} is a {type(kept[odd]).__name__}, which such a file cannot hold; keep Run.data")
    if type(data) in TASKS.values():
        kept[TASK] = type(data).__name__
    return kept


def _made(found: dict[str, object], path: Path) -> Data:
    """The graph of what a file holds by name, of a task where it says so."""
    kind = found.pop(TASK, None)
    if kind is None and {"node_type", "edge_type", "spec"} <= found.keys():
        raise DataError(f"{path} does not say which task its graph is of; write torch.save(graph, path)")
    if kind is not None and (kind not in TASKS or not isinstance(found.get("spec"), dict)):
        raise DataError(f"{path} holds the graph of a task {kind!r}; there are {', '.join(TASKS)}, each with its spec")
    return Data(**found) if kind is None else TASKS[str(kind)](**found)


def _plain(value: object) -> bool:
    """Whether a value is made of nothing but numbers, texts, lists and dicts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float)


def _weights_only(path: Path) -> object:
    storages = [BaseStorage, GlobalStorage, NodeStorage, EdgeStorage]
    with torch.serialization.safe_globals([Data, HeteroData, DataEdgeAttr, DataTensorAttr, *storages, *TASKS.values()]):
        return torch.load(path, map_location="cpu", weights_only=True)

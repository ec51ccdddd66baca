"""A graph in a folder of ``.npy`` files that are mapped, not read: it may be larger than memory.

===================  ================================================================================================
``graph.json``       format, sizes, whether it is undirected, and size, type and SHA-256 of every other file
``x.npy``            features, ``[nodes, features]``, float32 or float64
``edge_index.npy``   ends of the stored edges, int64 ``[2, edges]``, sorted by target, then by source, each once
``indptr.npy``       where the edges into each node begin, int64 ``[nodes + 1]``: with the sources, a matrix in CSR
``weight.npy``       weights of the edges, where they have any, of the type of the features
``y.npy``            labels: class numbers as int64, −1 where none is known; or numbers to predict
``train_mask.npy``   training nodes, bool; ``val_mask.npy`` and ``test_mask.npy`` where there are some
``out_indptr.npy``   of a directed graph, the edges by source: where those of a node begin in ``out_edge.npy``
===================  ================================================================================================

Files are never written to, and never unpickled. What is derived from a graph lies in ``propagated/`` beside them.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore

from unweave._core.document import to_json
from unweave._core.mapped import Structure, open_array, open_tensor, release, sha_of, stamp_of
from unweave._core.threads import side_by_side
from unweave._core.writing import write_whole
from unweave.datasets.edges import check_edges, sorted_edges, uneven, write_ends, write_out, write_start
from unweave.datasets.stores import write_stores
from unweave.errors import DataError, IntegrityError, UnweaveError
from unweave.tasks.hetero import MASKS

__all__ = ["FORMAT", "load_folder", "read_sizes", "renew_seal", "save_folder", "seal_folder", "written"]

FORMAT = "unweave-graph-1"
FLOATS = ("float32", "float64")
KNOWN = ("x", "edge_index", "edge_weight", "y", *MASKS)
"""What of a graph is written; of anything else nobody would know that it is gone."""

ROWS = 1 << 13
"""Rows that are looked at a time."""


def save_folder(data: Data | tuple[FeatureStore, GraphStore], path: str | Path) -> Path:
    """Write a graph as a folder that :func:`load_folder` maps; it appears whole or not at all.

    Args:
        data: With ``x``, ``edge_index``, ``y``, ``train_mask``; ``edge_weight`` and other masks where it has them. Or
            PyG's pair of stores of one type of nodes, whose features are read by rows.
        path: The folder, which must not be there yet.

    Raises:
        DataError: The graph has something that such a folder cannot hold, or it cannot be written.
    """
    if isinstance(data, tuple):
        features, edges = data
        return written(Path(path), lambda work: write_stores(features, edges, work))
    graph = data
    _check_savable(graph)
    return written(Path(path), lambda work: _write_arrays(graph, work))


def written(path: Path, write: Callable[[Path], object]) -> Path:
    """A folder whose arrays somebody writes beside its place; it is sealed and moved there in one step."""
    work = _workshop(path)
    try:
        write(work)
        seal_folder(work)
        work.chmod(0o755)
        os.rename(work, path)
    except OSError as error:
        raise DataError(f"cannot write the graph {path}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def _write_arrays(data: Data, folder: Path) -> None:
    """The arrays of a graph in memory, its edges sorted."""
    weight = data.get("edge_weight")
    ends, values = sorted_edges(
        data.edge_index.cpu().numpy(), None if weight is None else weight.cpu().numpy(), int(data.num_nodes)
    )
    arrays: dict[str, Any] = {"x": data.x, "edge_index": ends, "y": data.y}
    arrays |= {name: data[name] for name in MASKS if data.get(name) is not None}
    arrays |= {} if values is None else {"weight": values}
    for name, value in arrays.items():
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)


def _check_savable(data: Data) -> None:
    if type(data) is not Data:
        raise DataError(f"a folder holds a plain torch_geometric.data.Data, got {type(data).__name__}")
    missing = [key for key in ("x", "edge_index", "y", "train_mask") if not isinstance(data.get(key), Tensor)]
    if missing:
        raise DataError(f"the graph has no {', '.join(missing)}; a folder needs x, edge_index, y and train_mask")
    if data.x.layout != torch.strided or str(data.x.dtype).removeprefix("torch.") not in FLOATS:
        raise DataError(
            f"a folder holds dense features of float32 or float64, got {data.x.layout} of {data.x.dtype}; "
            "use data.x = data.x.to_dense().float()"
        )
    tensors = (key for key, value in data.to_dict().items() if isinstance(value, Tensor | np.ndarray | list))
    if odd := [key for key in tensors if key not in KNOWN]:
        raise DataError(
            f"a folder cannot hold data.{odd[0]} ({', '.join(KNOWN)} it can); delete it from the graph first"
        )


def _workshop(path: Path) -> Path:
    """A folder beside the place of a new one."""
    if path.exists():
        raise DataError(f"{path} exists already; choose another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{path.name}.unweave-", dir=path.parent))
    except OSError as error:
        raise DataError(f"cannot write to {path.parent}: {error}") from error


def seal_folder(path: str | Path) -> Path:
    """Check the arrays that somebody wrote to a folder, add what is missing, and write ``graph.json`` last.

    What must be there: ``x.npy``, ``y.npy``, ``train_mask.npy`` and the edges, as ``edge_index.npy`` or, in CSR by
    target, as ``indptr.npy`` and ``indices.npy``. All is looked at in parts, in bounded memory.

    Raises:
        DataError: Something is missing or not what the layout says.
    """
    path = Path(path)
    x = open_array(path / "x.npy", kinds=FLOATS)
    if x.ndim != 2 or not x.size:
        raise DataError(f"{path / 'x.npy'} must have the shape [nodes, features], got {x.shape}")
    _check_finite(x, path / "x.npy")
    size = len(x)
    if not (path / "edge_index.npy").exists():
        start = open_array(path / "indptr.npy", (size + 1,), ("int64",))
        sources = open_array(path / "indices.npy", (int(start[-1]),), ("int64", "int32"))
        write_ends(path / "edge_index.npy", start, sources)
    ends = open_array(path / "edge_index.npy", kinds=("int64",))
    if ends.ndim != 2 or len(ends) != 2:
        raise DataError(f"{path / 'edge_index.npy'} must have the shape [2, edges], got {ends.shape}")
    if not (path / "indptr.npy").exists():
        write_start(path / "indptr.npy", ends, size)
    start, weight = open_array(path / "indptr.npy", (size + 1,), ("int64",)), _weight(path, x, ends.shape[1])
    found = check_edges(ends, start, weight, path)
    for name in ("out_indptr.npy", "out_edge.npy"):
        (path / name).unlink(missing_ok=True)
    if not found.undirected:
        write_out(path, ends, size)
    labels = _labels(path, size)
    names = [*_names(path, undirected=found.undirected), *(["weight.npy"] if weight is not None else [])]
    document = {
        "format": FORMAT,
        "nodes": size,
        "features": x.shape[1],
        "edges": int(ends.shape[1]),
        "classes": int(labels.max()) + 1 if labels.dtype == np.int64 and labels.ndim == 1 else 0,
        "undirected": found.undirected,
        "masks": {
            name: int(open_array(path / f"{name}.npy").sum()) for name in MASKS if (path / f"{name}.npy").exists()
        },
        "uneven_pairs": 0 if found.undirected else uneven(ends, start, weight),
        "files": dict(zip(names, side_by_side(_described, [path / name for name in names]), strict=True)),
    }
    write_whole(path / "graph.json", to_json(document).decode())
    return path


def _check_finite(x: Any, path: Path) -> None:
    def finite(first: int) -> bool:
        part = x[first : first + ROWS]
        found = bool(np.isfinite(part).all())
        release(x, part)
        return found

    places = range(0, len(x), ROWS)
    for first, fine in zip(places, side_by_side(finite, places), strict=True):
        if not fine:
            raise DataError(f"{path} is not finite after row {first}; replace NaN and infinity first")


def _described(path: Path) -> dict[str, Any]:
    array = open_array(path)
    return stamp_of(path) | {"type": array.dtype.name, "shape": list(array.shape), "sha256": sha_of(path)}


def _weight(path: Path, x: Any, edges: int) -> Any:
    if not (path / "weight.npy").exists():
        return None
    weight = open_array(path / "weight.npy", (edges,), (x.dtype.name,))
    if not bool(np.isfinite(weight).all()):
        raise DataError(f"{path / 'weight.npy'} is not finite; replace NaN and infinity first")
    return weight


def _labels(path: Path, size: int) -> Any:
    labels = open_array(path / "y.npy", kinds=("int64", *FLOATS))
    if labels.shape[:1] != (size,):
        raise DataError(f"{path / 'y.npy'} has the shape {labels.shape}; a label for each of {size} nodes is expected")
    for name in MASKS:
        if (path / f"{name}.npy").exists() or name == MASKS[0]:
            open_array(path / f"{name}.npy", (size,), ("bool",))
    return labels


def _names(path: Path, *, undirected: bool) -> list[str]:
    names = ["x.npy", "edge_index.npy", "indptr.npy", "y.npy"]
    names += [f"{name}.npy" for name in MASKS if (path / f"{name}.npy").exists()]
    return names if undirected else [*names, "out_indptr.npy", "out_edge.npy"]


def read_sizes(path: str | Path) -> dict[str, Any]:
    """What ``graph.json`` says, once it is known to be one; no other file is looked at."""
    path = Path(path) / "graph.json"
    try:
        document = json.loads(path.read_bytes())
        numbers = [document[key] for key in ("nodes", "features", "edges", "classes", "uneven_pairs")]
        numbers += [document["masks"]["train_mask"], *document["masks"].values()]
        files = document["files"]
        sound = all(type(n) is int and n >= 0 for n in numbers) and type(document["undirected"]) is bool
        parts = {"bytes", "mtime_ns", "type", "shape", "sha256"}
        sound = sound and all(parts <= set(file) for file in files.values())
    except OSError as error:
        raise DataError(
            f"{path.parent} is no folder of a graph: {error}; unweave.save_folder and `unweave convert` write one, and "
            "`unweave convert FOLDER` seals one whose arrays you wrote"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} does not describe a graph ({error!r}); make it anew by `unweave convert`") from error
    if document["format"] != FORMAT or not sound:
        raise DataError(f"{path} is of the format {document['format']!r}, and this version reads {FORMAT}")
    return dict(document)


def renew_seal(path: Path) -> None:
    """Note when the files of a folder were written, once each has been compared with its digest: after a copy."""
    load_folder(path, verify=True)
    known = read_sizes(path)
    times = {name: stamp_of(path / name) for name in known["files"]}
    if any(file["mtime_ns"] != times[name]["mtime_ns"] for name, file in known["files"].items()):
        known["files"] = {name: file | times[name] for name, file in known["files"].items()}
        with suppress(UnweaveError):  # where it cannot be noted, it is looked at again the next time
            write_whole(path / "graph.json", to_json(known).decode())


def load_folder(path: str | Path, *, verify: bool = False) -> Data:
    """Map the graph in a folder: its tensors are read where they are looked at.

    Sizes and types of all files, and all edges, are checked in bounded memory. A file that was written to, or copied,
    since it was sealed is read and compared with its digest.

    Args:
        path: What :func:`save_folder` or ``unweave convert`` wrote.
        verify: Compare every byte with the digests that ``graph.json`` has; it reads all files once.

    Returns:
        ``Data`` with ``x``, ``edge_index``, ``y``, the masks, ``edge_weight`` where there is one, and ``num_classes``.

    Raises:
        DataError: A file is missing, cut off or not what it should be.
        IntegrityError: A file is not the one that was written.
    """
    path = Path(path)
    known = read_sizes(path)
    files: dict[str, dict[str, Any]] = known["files"]
    size, edges = known["nodes"], known["edges"]
    shapes = {"x.npy": (size, known["features"]), "edge_index.npy": (2, edges), "indptr.npy": (size + 1,)}
    if missing := [name for name in (*shapes, "y.npy", "train_mask.npy") if name not in files]:
        raise DataError(f"{path / 'graph.json'} names no {missing[0]}; make it anew by `unweave convert`")
    for name, file in files.items():
        if Path(name).name != name:
            raise DataError(f"{path / 'graph.json'} names {name!r}, which is no file of this folder")
        now = stamp_of(path / name)
        if now["bytes"] != file["bytes"]:
            raise DataError(f"{path / name} has another size than graph.json says: cut off, or written to since")
        if (verify or now["mtime_ns"] != file["mtime_ns"]) and sha_of(path / name) != file["sha256"]:
            raise IntegrityError(
                f"{path / name} is not the file that was sealed; restore it. If the change is meant, delete graph.json "
                f"and seal the folder as it is now by `unweave convert {path}`; runs of the graph before will refuse it"
            )

    def tensor(name: str, structure: Structure | None = None) -> Tensor:
        file = files[name]
        shape = shapes.get(name, file["shape"])
        return open_tensor(path / name, shape, (file["type"],), digest=file["sha256"], structure=structure)

    start = tensor("indptr.npy")
    ends = open_array(path / "edge_index.npy", (2, edges), ("int64",))
    weight = tensor("weight.npy") if "weight.npy" in files else None
    found = check_edges(ends, start.numpy(), None if weight is None else weight.numpy(), path)
    if found.undirected != known["undirected"]:
        raise DataError(f"{path / 'graph.json'} says undirected={known['undirected']}, which its edges are not")
    out = {} if found.undirected else {"out_start": tensor("out_indptr.npy"), "out_edge": tensor("out_edge.npy")}
    how = Structure(start, found.undirected, known["uneven_pairs"], torch.from_numpy(found.loops), **out)
    data = Data(x=tensor("x.npy"), edge_index=tensor("edge_index.npy", how), y=tensor("y.npy"))
    for name in MASKS:
        if f"{name}.npy" in files:
            data[name] = tensor(f"{name}.npy")
    if weight is not None:
        data.edge_weight = weight
    data.num_classes = known["classes"]
    return data

"""Node-property graphs as OGB lays them out, written as a folder, without its package and in parts.

Both forms are read: ``raw/*.csv.gz``, and ``raw/data.npz`` with ``raw/node-label.npz`` of the larger ones; the split is
the one folder in ``split/``. Nothing is unpickled.
"""

import gzip
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from unweave._core.mapped import new_array
from unweave.datasets.sorting import write_sorted
from unweave.errors import DataError
from unweave.tasks.hetero import MASKS

__all__ = ["is_ogb", "write_ogb"]

LINES, ROWS, EDGES = 1 << 16, 1 << 16, 1 << 20
"""What is read at a time."""
SPLITS = dict(zip(("train", "valid", "test"), MASKS, strict=True))

Array = np.ndarray[Any, Any]


def is_ogb(path: Path) -> bool:
    """Whether a folder is laid out as OGB has it."""
    return any((path / "raw" / name).exists() for name in ("data.npz", "edge.csv.gz"))


def write_ogb(source: Path, folder: Path, *, both_ways: bool) -> int:
    """Write the arrays of such a graph to a folder; how many parallel edges were left out.

    Args:
        source: The folder that has ``raw`` and ``split``.
        folder: Where to.
        both_ways: Whether the reverse of every edge is written too, as OGB's loader does for ``ogbn-products``.

    Raises:
        DataError: A file is missing or not what it should be.
    """
    raw, binary = source / "raw", (source / "raw" / "data.npz").exists()
    try:
        size = (_features_npz if binary else _features_csv)(raw, folder)
        edges = _edges_npz(raw) if binary else (part.T for part in _lines(raw / "edge.csv.gz", np.int64))
        dropped = write_sorted(edges, size, folder, both_ways=both_ways)
        np.save(folder / "y.npy", _labels(raw, size, binary=binary), allow_pickle=False)
        for name, ids in _split(source).items():
            mask = np.zeros(size, np.bool_)
            mask[ids] = True
            np.save(folder / f"{name}.npy", mask, allow_pickle=False)
    except (OSError, KeyError, ValueError, IndexError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{source} is not laid out as OGB's node-property graphs are: {error}") from error
    return dropped


def _lines(path: Path, kind: Any) -> Iterator[Array]:
    """The rows of a table without a head, some at a time."""
    with gzip.open(path, "rt", encoding="ascii") as stream:
        while some := list(islice(stream, LINES)):
            yield np.loadtxt(some, dtype=kind, delimiter=",", ndmin=2)


def _features_csv(raw: Path, folder: Path) -> int:
    size = int(next(_lines(raw / "num-node-list.csv.gz", np.int64))[0, 0])
    x, at = None, 0
    for rows in _lines(raw / "node-feat.csv.gz", np.float32):
        x = new_array(folder / "x.npy", np.float32, (size, rows.shape[1])) if x is None else x
        x[at : at + len(rows)] = rows
        at += len(rows)
    if x is None or at != size:
        raise ValueError(f"node-feat.csv.gz has {at} rows for {size} nodes")
    x.flush()
    return size


def _features_npz(raw: Path, folder: Path) -> int:
    with zipfile.ZipFile(raw / "data.npz") as archive, archive.open("node_feat.npy") as stream:
        shape, kind = _head(stream)
        size, width = shape
        x = new_array(folder / "x.npy", np.float32, (size, width))
        for first in range(0, size, ROWS):
            some = min(ROWS, size - first)
            x[first : first + some] = _read(stream, kind, some * width).reshape(some, width)
        x.flush()
    return size


def _edges_npz(raw: Path) -> Iterator[Array]:
    """Edges of an archive: sources and targets are read side by side."""
    name = "edge_index.npy"
    with zipfile.ZipFile(raw / "data.npz") as archive, archive.open(name) as one, archive.open(name) as other:
        (shape, kind), _ = _head(one), _head(other)
        count = shape[1]
        for first in range(0, count, EDGES):  # the second reader goes on to the targets
            _read(other, kind, min(EDGES, count - first))
        for first in range(0, count, EDGES):
            some = min(EDGES, count - first)
            yield np.stack([_read(one, kind, some), _read(other, kind, some)])


def _head(stream: IO[bytes]) -> tuple[tuple[int, ...], Any]:
    version = npy.read_magic(stream)
    shape, fortran, kind = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
    if kind.hasobject or fortran:
        raise ValueError("an array of objects, or not in C order")
    return shape, kind


def _read(stream: IO[bytes], kind: Any, count: int) -> Array:
    content = stream.read(count * kind.itemsize)
    if len(content) != count * kind.itemsize:
        raise ValueError("an array is cut off")
    return np.frombuffer(content, kind)


def _labels(raw: Path, size: int, *, binary: bool) -> Array:
    """Class numbers, −1 where there is none."""
    if binary:
        with np.load(raw / "node-label.npz", allow_pickle=False) as archive:
            found = archive["node_label"]
    else:
        found = np.concatenate(list(_lines(raw / "node-label.csv.gz", np.float64)))
    if found.shape not in ((size,), (size, 1)):
        raise ValueError(f"labels of the shape {found.shape} for {size} nodes; one class a node is expected")
    return np.where(np.isnan(found), -1, found).reshape(size).astype(np.int64)


def _split(source: Path) -> dict[str, Array]:
    folders = [path for path in (source / "split").iterdir() if path.is_dir()]
    if len(folders) != 1:
        raise ValueError(f"split/ has {len(folders)} folders; one is expected")
    none = np.zeros((0, 1), np.int64)
    files = {mask: folders[0] / f"{name}.csv.gz" for name, mask in SPLITS.items()}
    return {mask: np.concatenate([none, *_lines(path, np.int64)]).flatten() for mask, path in files.items()}

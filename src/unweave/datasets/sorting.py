"""Sort more edges than memory holds: by buckets of targets on disk, each sorted in memory."""

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from unweave.errors import DataError

__all__ = ["write_sorted"]

Array = np.ndarray[Any, Any]

BUCKETS = 256
"""Files that edges are dealt out to; a bucket is what is sorted in memory at a time."""


def write_sorted(parts: Iterable[Array], size: int, folder: Path, *, both_ways: bool) -> int:
    """Write ``edge_index.npy`` as a folder has it: sorted by target, then by source, each edge once.

    Args:
        parts: Edges, ``[2, m]`` a part, in any order; an edge that comes again is left out.
        size: Nodes.
        folder: Where.
        both_ways: Whether the reverse of every edge is written too.

    Returns:
        How many were left out.
    """
    work = folder / "buckets"
    work.mkdir()
    try:
        came = _deal(parts, size, work, both_ways=both_ways)
        return came - _collect(size, work, folder / "edge_index.npy")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _deal(parts: Iterable[Array], size: int, work: Path, *, both_ways: bool) -> int:
    """Edges as numbers, by the bucket of their target."""
    wide, came = -(-size // BUCKETS), 0
    with ExitStack() as stack:
        files = [stack.enter_context((work / str(n)).open("wb")) for n in range(BUCKETS)]
        for part in parts:
            ends = np.asarray(part, np.int64)
            if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= size):
                raise DataError(f"edges name nodes outside 0 … {size - 1}")
            loops = ends[0] == ends[1]
            ends = np.concatenate([ends, ends[::-1][:, ~loops]], axis=1) if both_ways else ends
            came += ends.shape[1]
            key = ends[1] * size + ends[0]
            bucket = ends[1] // wide
            order = bucket.argsort(kind="stable")
            begins = np.searchsorted(bucket[order], np.arange(BUCKETS + 1))
            key = key[order]
            for n, file in enumerate(files):
                if begins[n] < begins[n + 1]:
                    file.write(key[begins[n] : begins[n + 1]].data)
    return came


def _collect(size: int, work: Path, path: Path) -> int:
    """Sort bucket after bucket; how many edges there are."""
    count = 0
    with (work / "source").open("wb") as sources, (work / "target").open("wb") as targets:
        for n in range(BUCKETS):
            key = np.unique(np.fromfile(work / str(n), np.int64))
            (work / str(n)).unlink()
            sources.write((key % size).data)
            targets.write((key // size).data)
            count += key.size
    with path.open("wb") as out:
        npy.write_array_header_1_0(out, {"descr": "<i8", "fortran_order": False, "shape": (2, count)})
        for name in ("source", "target"):
            with (work / name).open("rb") as some:
                shutil.copyfileobj(some, out, 1 << 22)
    return count

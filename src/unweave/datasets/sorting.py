"""Sort more edges than memory holds: by buckets of targets on disk, each sorted in memory."""

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from unweave._core.threads import side_by_side
from unweave.errors import DataError

__all__ = ["write_sorted"]

Array = np.ndarray[Any, Any]

BITS = 8
"""Edges are dealt out to 2⁸ files by the first bits of their target; one of these is what a thread sorts at a time."""

NODES = 1 << 18
"""Nodes whose targets are written at a time."""


def write_sorted(parts: Iterable[Array], size: int, folder: Path, *, both_ways: bool) -> int:
    """Write ``edge_index.npy`` and ``indptr.npy`` as a folder has them: by target, then by source, each edge once.

    Args:
        parts: Edges, ``[2, m]`` a part, in any order; an edge that comes again is left out.
        size: Nodes.
        folder: Where.
        both_ways: Whether the reverse of every edge is written too.

    Returns:
        How many were left out.
    """
    bits = max(BITS, (size - 1).bit_length())
    if bits > 31:
        raise DataError(f"{size} nodes are more than the 2³¹ whose edges can be sorted")
    work = folder / "buckets"
    work.mkdir()
    try:
        came = _deal(parts, size, bits, work, both_ways=both_ways)
        return came - _collect(size, bits, work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _deal(parts: Iterable[Array], size: int, bits: int, work: Path, *, both_ways: bool) -> int:
    """Edges as numbers, target before source, by the first bits of the target."""

    def keyed(part: Array) -> tuple[Array, Array]:
        ends = np.asarray(part, np.int64)
        if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= size):
            raise DataError(f"edges name nodes outside 0 … {size - 1}")
        key = ends[1] << bits | ends[0]
        if both_ways:
            source, target = ends[:, ends[0] != ends[1]]
            key = np.concatenate([key, source << bits | target])
        bucket = (key >> (2 * bits - BITS)).astype(np.uint8)
        # of numbers this short the stable order is found without comparing them
        return key[bucket.argsort(kind="stable")], np.bincount(bucket, minlength=1 << BITS)

    came = 0
    with ExitStack() as stack:
        files = [stack.enter_context((work / str(n)).open("wb")) for n in range(1 << BITS)]
        for key, count in side_by_side(keyed, parts):
            came += key.size
            for file, some in zip(files, np.split(key, count.cumsum()[:-1]), strict=True):
                file.write(some.data)
    return came


def _collect(size: int, bits: int, work: Path, folder: Path) -> int:
    """Sort bucket after bucket, and write how many edges go into each node; how many there are."""

    def bucket(number: int) -> tuple[Array, Array]:
        path = work / str(number)
        key = np.fromfile(path, np.int64)
        path.unlink()
        key.sort()
        if key.size:
            key = key[np.r_[True, key[1:] != key[:-1]]]
        low = number << (bits - BITS)
        wide = max(0, min(1 << (bits - BITS), size - low))
        return key & ((1 << bits) - 1), np.bincount((key >> bits) - low, minlength=wide)

    def head(count: int) -> int:
        out.seek(0)
        npy.write_array_header_1_0(out, {"descr": "<i8", "fortran_order": False, "shape": (2, count)})
        return out.tell()

    start, low = np.zeros(size + 1, np.int64), 0
    with (folder / "edge_index.npy").open("wb") as out:
        begin = head(0)
        for some, count in side_by_side(bucket, range(1 << BITS)):
            out.write(some.data)
            start[low + 1 : low + 1 + count.size] = count
            low += count.size
        np.cumsum(start, out=start)
        _write_targets(start, out)
        if head(int(start[-1])) != begin:  # NumPy leaves room for digits
            raise DataError(f"{folder}: the head of edge_index.npy does not fit")
    np.save(folder / "indptr.npy", start, allow_pickle=False)
    return int(start[-1])


def _write_targets(start: Array, out: BinaryIO) -> None:
    """The node of each edge, by where those of each begin."""

    def repeated(low: int) -> Array:
        count = np.diff(start[low : low + NODES + 1])
        return np.repeat(np.arange(low, low + count.size), count)

    for some in side_by_side(repeated, range(0, start.size - 1, NODES)):
        out.write(some.data)

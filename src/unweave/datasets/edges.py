"""The edges of a graph in files: checked, sorted and indexed a part at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unweave._core.mapped import new_array, release
from unweave._core.threads import side_by_side
from unweave.errors import DataError

__all__ = ["Edges", "check_edges", "row_parts", "sorted_edges", "write_ends", "write_out", "write_start"]

PART = 1 << 16
"""Edges that are looked at a time: what is computed of them stays in a processor's cache."""

MANY = 1 << 21
"""The same where something is done for every node besides."""

Array = np.ndarray[Any, Any]


class Edges:
    """What a look at all edges tells.

    Attributes:
        loops: Ids of the edges from a node to itself.
        undirected: Whether every edge has its reverse, with the same weight.
    """

    def __init__(self, loops: Array, undirected: bool) -> None:
        self.loops, self.undirected = loops, undirected


def check_edges(ends: Array, start: Array, weight: Array | None, where: Path) -> Edges:
    """Look at all edges: that they name nodes, are sorted and there once each, and whether they go both ways.

    Whether they do is told by a sum of numbers that stand for pairs, 64 bits each, over the edges of either direction.

    Raises:
        DataError: They are not what the layout says.
    """
    if int(start[0]) != 0 or int(start[-1]) != ends.shape[1] or bool((start[1:] < start[:-1]).any()):
        raise DataError(f"{where}: indptr.npy does not rise from 0 to the number of edges, {ends.shape[1]}")

    def look(rows: tuple[int, int]) -> tuple[Array, np.uint64]:
        return _look(rows, ends, start, weight, where)

    loops, total = [np.zeros(0, np.int64)], np.uint64(0)
    with np.errstate(over="ignore"):
        for some, number in side_by_side(look, row_parts(start, PART, PART)):
            loops.append(some)
            total += number
    return Edges(np.concatenate(loops), int(total) == 0)


def row_parts(start: Array, edges: int, rows: int) -> Iterator[tuple[int, int]]:
    """Some rows after the other, at most so many with at most so many edges; of a hub all edges are taken."""
    low, size = 0, start.size - 1
    while low < size:
        high = int(np.searchsorted(start, start[low] + edges, side="right")) - 1
        high = min(max(high, low + 1), low + rows, size)
        yield low, high
        low = high


def _look(
    rows: tuple[int, int], ends: Array, start: Array, weight: Array | None, where: Path
) -> tuple[Array, np.uint64]:
    """Look at the edges into some nodes: which are loops, and the number that stands for their directions."""
    (low, high), size = rows, start.size - 1
    first, last = int(start[low]), int(start[high])
    source, target = (some[first:last] for some in ends)
    if not source.size:
        return source, np.uint64(0)
    if int(source.min()) < 0 or int(source.max()) >= size:
        raise DataError(f"{where}: edges name a source outside 0 … {size - 1}")
    fits = np.array_equal(target, np.repeat(np.arange(low, high), np.diff(start[low : high + 1])))
    if not fits and (int(target.min()) < 0 or int(target.max()) >= size):
        raise DataError(f"{where}: edges name a target outside 0 … {size - 1}")
    rising, same = source[1:] > source[:-1], target[1:] == target[:-1]
    if bool((same & ~rising).any()) or (not fits and bool((target[1:] < target[:-1]).any())):
        raise DataError(
            f"{where}: edges must be sorted by target, then by source, each once; near edge {first} they are not. "
            "unweave.save_folder writes them so"
        )
    if not fits:
        raise DataError(f"{where}: indptr.npy does not say where the edges into each node begin")
    number = _number(source, target, size, None if weight is None else weight[first:last])
    loops = np.flatnonzero(source == target) + first
    release(ends, source)
    release(ends, target)
    return loops, number


def _number(source: Array, target: Array, size: int, weight: Array | None) -> np.uint64:
    """Edges that go up less those that go down, each as a number that pair and weight decide."""
    number = (np.minimum(source, target) * size + np.maximum(source, target)).view(np.uint64)
    if weight is not None:
        number ^= _mixed(np.ascontiguousarray(weight, np.float64).view(np.uint64))
    number = _mixed(number)
    number *= np.sign(target - source).view(np.uint64)
    total: np.uint64 = number.sum(dtype=np.uint64)
    return total


def _mixed(number: Array) -> Array:
    """Numbers of 64 bits that look like chance (the finaliser of splitmix64)."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        number ^= number >> np.uint64(shift)
        number *= np.uint64(factor)
    number ^= number >> np.uint64(31)
    return number


def uneven(ends: Array, start: Array, weight: Array | None) -> int:
    """Pairs of nodes whose edges differ by direction: the reverse of each edge is looked for."""
    found = 0
    for first, (source, target) in _parts(ends):
        there = find(ends[0], start, source, target)
        known = there >= 0
        found += 2 * int(((source != target) & ~known).sum())
        if weight is not None:
            ids = np.arange(first, first + source.size)
            found += int((weight[ids[known]] != weight[there[known]]).sum())
    return found // 2


def find(sources: Array, start: Array, target: Array, source: Array) -> Array:
    """Ids of the edges from some sources to some targets; −1 where there is none."""
    low, high = start[target].copy(), start[target + 1].copy()
    end = high.copy()
    while bool((open_ := low < high).any()):
        middle = (low + high) // 2
        right = open_ & (sources[np.minimum(middle, sources.size - 1)] < source)
        low = np.where(right, middle + 1, low)
        high = np.where(open_ & ~right, middle, high)
    there = low < end
    there[there] = sources[low[there]] == source[there]
    return np.where(there, low, -1)


def sorted_edges(ends: Array, weight: Array | None, size: int) -> tuple[Array, Array | None]:
    """Edges in memory, sorted as the layout wants them.

    Raises:
        DataError: One is there twice.
    """
    key = ends[1].astype(np.int64) * size + ends[0]
    order = key.argsort(kind="stable")
    key = key[order]
    if bool((key[1:] == key[:-1]).any()):
        twice = int(key[1:][key[1:] == key[:-1]][0])
        raise DataError(
            f"the edge {twice % size} → {twice // size} is there more than once; draw parallel edges together first "
            "(torch_geometric.utils.coalesce)"
        )
    return ends[:, order], None if weight is None else weight[order]


def write_start(path: Path, ends: Array, size: int) -> None:
    """Where the edges into each node begin."""
    count = np.zeros(size + 1, np.int64)
    for _, (_, target) in _parts(ends):
        if int(target.min()) < 0 or int(target.max()) >= size:
            raise DataError(f"{path.parent}: edges name a target outside 0 … {size - 1}")
        count[1:] += np.bincount(target, minlength=size)
    np.save(path, count.cumsum(), allow_pickle=False)


def write_ends(path: Path, start: Array, sources: Array) -> None:
    """Both ends of edges that are given as rows of sources."""
    ends = new_array(path, np.int64, (2, sources.size))
    rows = np.arange(start.size - 1)
    for first in range(0, rows.size, MANY):
        some = rows[first : first + MANY]
        low, high = int(start[some[0]]), int(start[some[-1] + 1])
        ends[1, low:high] = np.repeat(some, np.diff(start[first : first + some.size + 1]))
    for first in range(0, sources.size, MANY):
        ends[0, first : first + MANY] = sources[first : first + MANY]
    ends.flush()


def write_out(folder: Path, ends: Array, size: int) -> None:
    """Ids of the edges by source, a part at a time."""
    count = np.zeros(size + 1, np.int64)
    for _, (source, _) in _parts(ends):
        count[1:] += np.bincount(source, minlength=size)
    start = count.cumsum()
    np.save(folder / "out_indptr.npy", start, allow_pickle=False)
    ids, place = new_array(folder / "out_edge.npy", np.int64, (ends.shape[1],)), start[:-1].copy()
    for first, (source, _) in _parts(ends):
        order = source.argsort(kind="stable")
        ordered = source[order]
        new = np.r_[True, ordered[1:] != ordered[:-1]]
        begins = np.flatnonzero(new)
        rank = np.arange(ordered.size) - np.repeat(begins, np.diff(np.r_[begins, ordered.size]))
        ids[place[ordered] + rank] = first + order
        place += np.bincount(source, minlength=size)
    ids.flush()


def _parts(ends: Array) -> Iterator[tuple[int, Array]]:
    for first in range(0, ends.shape[1], MANY):
        yield first, np.asarray(ends[:, first : first + MANY])
        release(ends)

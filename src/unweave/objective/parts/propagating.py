"""PᵏX of a whole graph in a folder, computed once, out of core, and kept beside it.

Of each step, columns are taken some at a time, as many as the memory allows: those of Pᵏ⁻¹X lie in memory, and rows of
PᵏX are computed by the edges as they lie in the folder, side by side on all threads, and written at once to the file of
their k, which takes its place when all are whole.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.document import document_digest, to_json
from unweave._core.mapped import mapped, open_array, open_tensor, release, stamp_of, structure_of
from unweave._core.threads import side_by_side
from unweave._core.writing import write_whole
from unweave.datasets.edges import row_parts
from unweave.errors import DataError
from unweave.graph.index import among, edge_values
from unweave.graph.view import GraphView
from unweave.models.propagation import Propagation

__all__ = ["FOLDER", "Degrees", "matrix_rows", "propagated_files"]

FOLDER = "propagated"
ROWS, EDGES = 1 << 15, 1 << 19
"""Rows that a thread reads or writes, and edges that it takes, at a time."""

Array = np.ndarray[Any, Any]
Lost = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Degrees:
    """What messages are divided by.

    Attributes:
        matrix: ``"mean"`` or ``"normalised"``.
        total: Of each node the number of edges into it, or the sum of their weights without loops.
        own: Of a normalised matrix the weight of each node's loop: its own, or 1.
    """

    matrix: str
    total: Tensor
    own: Tensor | None = None

    @classmethod
    def of(cls, view: GraphView, matrix: str) -> "Degrees":
        """Those of the whole graph that a view is of."""
        side = view.index.into
        if matrix == "mean":
            return cls(matrix, side.start.diff().double())
        loops = view.index.loops
        own = torch.ones(view.size, dtype=torch.float64)
        own[view.index.loop_nodes] = edge_values(view.base.get("edge_weight"), view.edge_index, loops)
        return cls(matrix, side.weight, own)

    def counted(self, weight: Tensor) -> Tensor:
        """What an edge counts in the degree of its target; as in PyG, weights do not count in a mean."""
        return torch.ones_like(weight) if self.matrix == "mean" else weight

    def at(self, nodes: Tensor, lost: Lost | None) -> "Degrees":
        """Those of some nodes, less what went."""
        total, own = self.total[nodes], None if self.own is None else self.own[nodes]
        if lost is not None and lost[0].numel():
            here = among(nodes, lost[0])
            at = torch.searchsorted(lost[0], nodes[here])
            if own is None:
                total[here] -= lost[1][at] + lost[2][at]
            else:
                total[here] -= lost[1][at]
                own[here] = torch.where(lost[2][at] != 0, 1.0, own[here])  # a node without a loop gets one of 1
        return Degrees(self.matrix, total, own)

    @cached_property
    def scale(self) -> Tensor:
        """D^-½ of a normalised matrix; nothing where the degree is zero."""
        assert self.own is not None
        scale = (self.total + self.own).rsqrt()
        return torch.where(torch.isinf(scale), 0.0, scale)

    @property
    def loop(self) -> Tensor | None:
        """The diagonal of a normalised matrix; ``None`` where loops are edges like others."""
        return None if self.own is None else self.own * self.scale.square()


def matrix_rows(
    sources: Degrees, place: Array, targets: Degrees, start: Array, weight: Tensor, loops: Array | None, kind: Any
) -> csr_matrix:
    """Rows of P without the diagonal that :attr:`Degrees.loop` has.

    Args:
        sources: What the columns are divided by.
        place: The column of each edge.
        targets: What the rows are divided by.
        start: Where the edges of each row begin.
        weight: Their weights.
        loops: Which of them are loops, where any are; of a normalised matrix those are left out.
        kind: Type of the numbers.
    """
    count, value = np.diff(start), weight.numpy()
    if sources.own is None:
        value = value / np.repeat(targets.total.numpy(), count)
    else:
        value = sources.scale.numpy()[place] * value * np.repeat(targets.scale.numpy(), count)
        if loops is not None:
            value[loops] = 0.0
    return csr_matrix((value.astype(kind), place, start), (count.size, sources.total.numel()))


def propagated_files(data: Data, degrees: Degrees, what: Propagation, limit: float) -> list[Tensor]:
    """PX, …, P^K X of a graph in a folder, mapped; what is not there is computed first.

    Raises:
        DataError: There is no room for it, or it cannot be written.
    """
    file = mapped(data.x)
    assert file is not None
    digests = [getattr(mapped(data.get(key)), "digest", None) for key in ("x", "edge_index", "edge_weight")]
    name = f"{what.matrix}{'-unit' * what.unit}-{document_digest(digests)[:16]}"
    paths = [file.path.parent / FOLDER / f"{name}-{k}.npy" for k in range(1, what.steps + 1)]

    def write() -> None:
        if not all(map(_as_written, paths)):
            _write(data, degrees, what, paths, limit)

    ranks.first(write)
    return [open_tensor(path, data.x.shape, (_type(data.x),)) for path in paths]


def _as_written(path: Path) -> bool:
    """Whether a file is there and as it was written; what is derived is otherwise made anew."""
    try:
        return bool(json.loads(_note(path).read_bytes()) == stamp_of(path))
    except (OSError, ValueError, DataError):
        return False


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _type(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _write(data: Data, degrees: Degrees, what: Propagation, paths: list[Path], limit: float) -> None:
    size, width = data.x.shape
    item, folder = data.x.element_size(), paths[0].parent
    some = int(min(width, max(1, limit // (size * item))))
    try:
        folder.mkdir(exist_ok=True)
        room, need = shutil.disk_usage(folder).free, len(paths) * size * width * item
        if room < need:
            raise DataError(
                f"{folder} needs {need / 2**30:.1f} GiB for the {len(paths)} propagated feature matrices, and "
                f"{room / 2**30:.1f} GiB are free there; make room, or use fewer steps (--layers)"
            )
        news = [path.with_name(f".{path.name}.{os.getpid()}") for path in paths]
        try:
            with ExitStack() as stack:
                before: Tensor | Array = data.x
                for new in news:
                    file = _Rows(stack, new, data.x)
                    for first in range(0, width, some):
                        # nothing here holds the columns: they are gone before the next are read
                        for low, rows in _step(
                            data, degrees, _columns(before, first, some, unit=what.unit and new is news[0])
                        ):
                            file.put(low, first, rows)
                    file.done()
                    before = open_array(new)
            for old in _stale(paths):
                old.unlink()
            for new, path in zip(news, paths, strict=True):
                os.replace(new, path)
                write_whole(_note(path), to_json(stamp_of(path)).decode())
        finally:
            for new in news:
                with suppress(OSError):
                    new.unlink()
    except OSError as error:
        raise DataError(
            f"cannot write what is propagated to {folder}: {error}; copy the graph to where it can be written, or "
            "leave memory_mib (--memory-mib) out"
        ) from error


def _stale(paths: list[Path]) -> list[Path]:
    """What was derived in the same way from a graph that is no longer in this folder, or by a process that died."""
    name = paths[0].stem.rpartition("-")[0]
    kind, _, own = name.rpartition("-")
    other = re.compile(rf"{re.escape(kind)}-(?!{own})[0-9a-f]{{16}}-\d+\.(npy|json)")
    begun = re.compile(rf"\.{re.escape(kind)}-[0-9a-f]{{16}}-\d+\.npy\.(\d+)")
    found = []
    for path in paths[0].parent.iterdir():
        half = begun.fullmatch(path.name)
        if other.fullmatch(path.name) or (half and not _lives(int(half[1]))):
            found.append(path)
    return found


def _lives(process: int) -> bool:
    """Whether a process of this machine is there still."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        pass
    return True


class _Rows:
    """A new ``.npy`` file that is written some columns at a time, by plain writes: no page of it stays mapped."""

    def __init__(self, stack: ExitStack, path: Path, like: Tensor) -> None:
        size, self._width = like.shape
        self._stream, self._type = stack.enter_context(path.open("w+b")), np.dtype(_type(like))
        head = {"descr": npy.dtype_to_descr(self._type), "fortran_order": False, "shape": (size, self._width)}
        npy.write_array_header_1_0(self._stream, head)
        self._begin, self._line = self._stream.tell(), self._width * self._type.itemsize
        self._stream.truncate(self._begin + size * self._line)

    def put(self, low: int, first: int, rows: Array) -> None:
        """Write some columns of some rows."""
        self._stream.seek(self._begin + low * self._line)
        if rows.shape[1] < self._width:
            there = np.frombuffer(bytearray(self._stream.read(len(rows) * self._line)), self._type)
            there = there.reshape(len(rows), self._width)
            there[:, first : first + rows.shape[1]] = rows
            rows = there
            self._stream.seek(self._begin + low * self._line)
        self._stream.write(rows.data)

    def done(self) -> None:
        """See to it that all of it is on disk."""
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _columns(held: Tensor | Array, first: int, some: int, *, unit: bool) -> Array:
    """Some columns of a mapped matrix; of rows of length 1 where that is asked for."""
    x: Array = held.numpy() if isinstance(held, Tensor) else held
    block = np.empty((len(x), min(some, x.shape[1] - first)), x.dtype)

    def read(row: int) -> None:
        part = x[row : row + ROWS]
        rows = torch.nn.functional.normalize(torch.from_numpy(part), dim=-1).numpy() if unit else part
        block[row : row + ROWS] = rows[:, first : first + some]
        release(held, part)

    for _ in side_by_side(read, range(0, len(x), ROWS)):
        pass
    return block


def _step(data: Data, degrees: Degrees, block: Array) -> Iterator[tuple[int, Array]]:
    """P times a matrix in memory, some rows at a time, each with the first of them."""
    known = structure_of(data.edge_index)
    assert known is not None
    start, sources, loops = known.start.numpy(), data.edge_index[0].numpy(), known.loops.numpy()
    _ = degrees.own is not None and degrees.scale  # once, before threads ask for it

    def rows(ends: tuple[int, int]) -> tuple[int, Array]:
        low, high = ends
        begin, end = int(start[low]), int(start[high])
        here = degrees.at(torch.arange(low, high), None)
        weight = edge_values(data.get("edge_weight"), data.edge_index, torch.arange(begin, end))
        own = loops[np.searchsorted(loops, begin) : np.searchsorted(loops, end)] - begin
        place = sources[begin:end]
        matrix = matrix_rows(degrees, place, here, start[low : high + 1] - begin, weight, own, block.dtype)
        found = matrix @ block
        if here.loop is not None:
            found += here.loop.numpy().astype(block.dtype)[:, None] * block[low:high]
        release(data.edge_index, place)
        return low, found

    return side_by_side(rows, row_parts(start, EDGES, ROWS))

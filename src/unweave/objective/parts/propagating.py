"""PᵏX of a whole graph in a folder, computed once, out of core, and kept beside it.

Columns are taken some at a time, as many as the memory allows: of them all K steps are done in memory, by the edges as
they lie in the folder, and each is written to the file of its k, which takes its place when it is whole.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
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
from unweave._core.mapped import mapped, open_tensor, release, stamp_of, structure_of
from unweave._core.writing import write_whole
from unweave.errors import DataError
from unweave.graph.index import among, edge_values
from unweave.graph.view import GraphView
from unweave.models.propagation import Propagation

__all__ = ["FOLDER", "Degrees", "propagated_files"]

FOLDER = "propagated"
ROWS, EDGES = 1 << 16, 1 << 21
"""Rows that are read and written, and edges that are taken, at a time."""

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

    def _at(self, nodes: Tensor, lost: Lost | None) -> tuple[Tensor, Tensor | None]:
        """Degree and loop of some nodes, less what went."""
        total, own = self.total[nodes], None if self.own is None else self.own[nodes]
        if lost is not None and lost[0].numel():
            here = among(nodes, lost[0])
            at = torch.searchsorted(lost[0], nodes[here])
            if own is None:
                total[here] -= lost[1][at] + lost[2][at]
            else:
                total[here] -= lost[1][at]
                own[here] = torch.where(lost[2][at] != 0, 1.0, own[here])  # a node without a loop gets one of 1
        return total, own

    def _scale(self, nodes: Tensor, lost: Lost | None) -> Tensor:
        total, own = self._at(nodes, lost)
        assert own is not None
        scale = (total + own).rsqrt()
        return torch.where(torch.isinf(scale), 0.0, scale)

    def values(self, edges: Tensor, source: Tensor, target: Tensor, lost: Lost | None, view: GraphView) -> Tensor:
        """The entries of P of some edges; of loops of a normalised matrix nothing, as :meth:`loop` has them."""
        weight = edge_values(view.base.get("edge_weight"), view.edge_index, edges)
        if self.own is None:
            return weight / self._at(target, lost)[0]
        return torch.where(source == target, 0.0, self._scale(source, lost) * weight * self._scale(target, lost))

    def loop(self, nodes: Tensor, lost: Lost | None) -> Tensor | None:
        """The diagonal of a normalised matrix; ``None`` where loops are edges like others."""
        _, own = self._at(nodes, lost)
        return None if own is None else own * self._scale(nodes, lost).square()


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
    some = int(min(width, max(1, limit // (3 * size * item))))
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
                files = [_Rows(stack, new, data.x) for new in news]
                for first in range(0, width, some):
                    block = _columns(data.x, first, some, unit=what.unit)
                    for file in files:
                        block = _step(data, degrees, block)
                        file.put(first, block)
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
    """What was derived in the same way from a graph that is no longer in this folder."""
    name = paths[0].stem.rpartition("-")[0]
    kind, _, own = name.rpartition("-")
    other = re.compile(rf"{re.escape(kind)}-(?!{own})[0-9a-f]{{16}}-\d+\.(npy|json)")
    return [path for path in paths[0].parent.iterdir() if other.fullmatch(path.name)]


class _Rows:
    """A new ``.npy`` file that is written some columns at a time, by plain writes: no page of it stays mapped."""

    def __init__(self, stack: ExitStack, path: Path, like: Tensor) -> None:
        self._size, self._width = like.shape
        self._stream, self._type = stack.enter_context(path.open("w+b")), np.dtype(_type(like))
        head = {"descr": npy.dtype_to_descr(self._type), "fortran_order": False, "shape": (self._size, self._width)}
        npy.write_array_header_1_0(self._stream, head)
        self._begin, self._line = self._stream.tell(), self._width * self._type.itemsize
        self._stream.truncate(self._begin + self._size * self._line)
        stack.callback(self._done)

    def _done(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def put(self, first: int, block: Array) -> None:
        whole = block.shape[1] == self._width
        for row in range(0, self._size, ROWS):
            some = block[row : row + ROWS]
            if not whole:
                self._stream.seek(self._begin + row * self._line)
                there = np.frombuffer(self._stream.read(len(some) * self._line), self._type).reshape(len(some), -1)
                there = there.copy()
                there[:, first : first + some.shape[1]] = some
                some = there
            self._stream.seek(self._begin + row * self._line)
            self._stream.write(np.ascontiguousarray(some).data)


def _columns(x: Tensor, first: int, some: int, *, unit: bool) -> Array:
    """Some columns of the features; of rows of length 1 where that is asked for."""
    block = np.empty((x.size(0), min(some, x.size(1) - first)), _type(x))
    for row in range(0, x.size(0), ROWS):
        part = x[row : row + ROWS]
        part = torch.nn.functional.normalize(part, dim=-1) if unit else part
        block[row : row + ROWS] = part[:, first : first + some].numpy()
        release(x)
    return block


def _step(data: Data, degrees: Degrees, block: Array) -> Array:
    """P times a matrix in memory."""
    found, view = np.empty_like(block), GraphView.of(data)
    known = structure_of(data.edge_index)
    assert known is not None
    start = known.start.numpy()
    for low, high in _parts(start):
        begin, end = int(start[low]), int(start[high])
        edges = torch.arange(begin, end)
        source, target = data.edge_index[0][begin:end], data.edge_index[1][begin:end]
        values = degrees.values(edges, source, target, None, view).numpy().astype(block.dtype)
        rows = csr_matrix((values, source.numpy(), start[low : high + 1] - begin), (high - low, len(block)))
        found[low:high] = rows @ block
        loop = degrees.loop(torch.arange(low, high), None)
        if loop is not None:
            found[low:high] += loop.numpy().astype(block.dtype)[:, None] * block[low:high]
    release(data.edge_index)
    return found


def _parts(start: Array) -> Iterator[tuple[int, int]]:
    """Rows whose edges are not too many to be taken at a time; of a hub all are."""
    low, size = 0, start.size - 1
    while low < size:
        high = int(np.searchsorted(start, start[low] + EDGES, side="right")) - 1
        high = min(max(high, low + 1), low + EDGES, size)
        yield low, high
        low = high

"""Tensors that lie in ``.npy`` files: mapped, read where they are looked at, and never written to.

A mapping is private: whoever writes to such a tensor writes to memory of the process, page by page, and the file stays
what it is. Nothing is reserved for that, so a file may be larger than memory. No file is unpickled.
"""

import hashlib
import math
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib import format as npy
from torch import Tensor

from unweave._core.compat import writes
from unweave._core.weak import ByTensor
from unweave.errors import DataError

__all__ = [
    "File",
    "Structure",
    "blank",
    "mapped",
    "new_array",
    "open_array",
    "open_tensor",
    "release",
    "rows_of",
    "sha_of",
    "stamp_of",
    "structure_of",
    "with_rows",
]

NORESERVE = 0x4000
"""``MAP_NORESERVE`` of Linux, which Python names from 3.13 on."""

READ = 1 << 22
"""Bytes that are read at a time."""


WINDOW = 1 << 16
"""Bytes that the system maps around a place that is looked at."""

BESIDE = 8
"""Pages between two that are wanted up to which all are read together."""

GATHERED = 1 << 11
"""Windows that are looked at before their pages are let go: 128 MiB in all."""


@dataclass(frozen=True)
class Structure:
    """What is known of mapped edges that are sorted by target, then by source, and there once each.

    Attributes:
        start: Where the edges into each node begin, ``[nodes + 1]``.
        undirected: Whether every edge has its reverse, with the same weight.
        uneven: Pairs of nodes whose edges differ by direction.
        loops: Ids of the edges from a node to itself.
        out_start: Of a directed graph: where the edges out of each node begin in ``out_edge``.
        out_edge: Ids of the edges by source.
    """

    start: Tensor
    undirected: bool
    uneven: int
    loops: Tensor
    out_start: Tensor | None = None
    out_edge: Tensor | None = None


@dataclass(frozen=True)
class File:
    """Where a tensor lies.

    Attributes:
        path: The file.
        digest: SHA-256 of the file; empty where nobody took it.
        structure: Of edges, how they lie there.
        memory: The mapping.
    """

    path: Path
    digest: str = ""
    structure: Structure | None = None
    memory: mmap.mmap | None = None


_files = ByTensor[tuple[int | None, File]]()


def mapped(tensor: object) -> File | None:
    """The file that a tensor lies in, while nobody has written to the tensor."""
    found = _files.get(tensor) if isinstance(tensor, Tensor) else None
    return None if found is None or writes(tensor) != found[0] else found[1]  # type: ignore[arg-type]


def structure_of(edge_index: object) -> Structure | None:
    """How mapped edges lie in their file; ``None`` of any others."""
    file = mapped(edge_index)
    return None if file is None else file.structure


def open_array(path: Path, shape: Iterable[int] | None = None, kinds: Iterable[str] = ()) -> np.ndarray[Any, Any]:
    """Map an array, once its file is known to hold all of it.

    Args:
        path: A ``.npy`` file.
        shape: What it must have, where that is known.
        kinds: Types that it may have, e.g. ``"float32"``.

    Raises:
        DataError: It cannot be read, is cut off, or is another array.
    """
    try:
        with path.open("rb") as stream:
            version = npy.read_magic(stream)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            found, fortran, dtype = header(stream)
            offset, size = stream.tell(), path.stat().st_size
            if dtype.hasobject or fortran or dtype.byteorder == ">":
                raise DataError(
                    f"{path} cannot be mapped: it holds {'objects' if dtype.hasobject else 'numbers in another order'}"
                    "; write it by numpy.save(path, numpy.ascontiguousarray(array))"
                )
            if kinds and dtype.name not in kinds:
                raise DataError(f"{path} holds {dtype.name}; it must be {' or '.join(kinds)}")
            if shape is not None and tuple(found) != tuple(shape):
                raise DataError(f"{path} has the shape {tuple(found)}, and {tuple(shape)} is expected")
            if size != offset + math.prod(found) * dtype.itemsize:
                raise DataError(
                    f"{path} has {size} bytes, and an array of {tuple(found)} {dtype.name} takes "
                    f"{offset + math.prod(found) * dtype.itemsize}: it is cut off, or was written to"
                )
            return np.frombuffer(_mapping(stream.fileno()), dtype, math.prod(found), offset).reshape(found)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read the array {path}: {error}") from error


def _mapping(handle: int) -> mmap.mmap:
    """A private mapping of a whole file, which may be written to without changing it."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    return mmap.mmap(handle, 0, flags=mmap.MAP_PRIVATE | NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def open_tensor(
    path: Path,
    shape: Iterable[int] | None = None,
    kinds: Iterable[str] = (),
    *,
    digest: str = "",
    structure: Structure | None = None,
) -> Tensor:
    """The same as a tensor that is known to be mapped."""
    array = open_array(path, shape, kinds)
    tensor = torch.from_numpy(array)
    _files[tensor] = writes(tensor), File(path, digest, structure, _memory(array))
    return tensor


def _memory(array: Any) -> mmap.mmap | None:
    """The mapping that an array lies in."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array if isinstance(array, mmap.mmap) else None


def release(held: Tensor | np.ndarray[Any, Any], part: Tensor | np.ndarray[Any, Any] | None = None) -> None:
    """Let go of the pages of what is mapped and nobody wrote to: they are read again when they are looked at.

    Args:
        held: A mapped tensor or array.
        part: Some of it without gaps, if not all.
    """
    file = mapped(held)
    memory = _memory(held) if file is None else file.memory
    if memory is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if part is None:
        memory.madvise(mmap.MADV_DONTNEED)
    elif part.nbytes:
        first = _address(part) - _address(np.frombuffer(memory, np.uint8))
        before = first % mmap.PAGESIZE
        memory.madvise(mmap.MADV_DONTNEED, first - before, part.nbytes + before)


def _address(held: Tensor | np.ndarray[Any, Any]) -> int:
    return held.data_ptr() if isinstance(held, Tensor) else int(held.__array_interface__["data"][0])


def rows_of(tensor: Tensor, ids: Tensor, whole: Tensor | None = None) -> Tensor:
    """Some rows of a tensor; those of a mapped one are read as they lie in the file, and their pages let go again.

    Args:
        tensor: The tensor.
        ids: Which rows.
        whole: The mapped tensor that it is a part of, where it is one.
    """
    whole = tensor if whole is None else whole
    if mapped(whole) is None or not ids.numel():
        return tensor[ids]
    found = tensor.new_empty(ids.numel(), *tensor.shape[1:])
    if bool((ids[1:] < ids[:-1]).any()):
        order = ids.argsort()
        found[order] = rows_of(tensor, ids[order], whole)
        return found
    window = ids * tensor[:1].nbytes // WINDOW
    number = F.pad((window[1:] != window[:-1]).cumsum(0), (1, 0)) // GATHERED
    first = 0
    for some in torch.split(ids, torch.bincount(number).tolist()):
        with _ahead(whole, tensor, some):
            torch.index_select(tensor, 0, some, out=found[first : first + some.numel()])
        release(whole, tensor[int(some[0]) : int(some[-1]) + 1])
        first += some.numel()
    return found


@contextmanager
def _ahead(whole: Tensor, tensor: Tensor, ids: Tensor) -> Iterator[None]:
    """Have the system read the pages of some rows, sorted, all at once and nothing else while they are looked at."""
    file = mapped(whole)
    if file is None or file.memory is None or not hasattr(mmap, "MADV_WILLNEED"):
        yield
        return
    memory, line = file.memory, tensor[:1].nbytes
    place = ids * line + (tensor.data_ptr() - _address(np.frombuffer(memory, np.uint8)))
    low, high = place // mmap.PAGESIZE, (place + line - 1) // mmap.PAGESIZE
    new = low[1:] - high[:-1] > BESIDE
    begins, ends = torch.cat([low[:1], low[1:][new]]), torch.cat([high[:-1][new], high[-1:]])
    memory.madvise(mmap.MADV_RANDOM)
    try:
        for begin, count in zip(begins.tolist(), (ends - begins + 1).tolist(), strict=True):
            memory.madvise(mmap.MADV_WILLNEED, begin * mmap.PAGESIZE, count * mmap.PAGESIZE)
        yield
    finally:
        memory.madvise(mmap.MADV_NORMAL)


def with_rows(tensor: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """A mapped tensor with other rows: of the file only the pages that they lie on are copied."""
    file = mapped(tensor)
    assert file is not None
    fresh = torch.from_numpy(open_array(file.path, tensor.shape))
    fresh[rows] = values
    return fresh


def blank(like: Tensor, size: int) -> Tensor:
    """Zeros, as many rows as ``size`` of the kind of another tensor's: only pages that are written to take memory."""
    shape = (size, *like.shape[1:])
    if like.device.type != "cpu" or not size or not hasattr(mmap, "MAP_PRIVATE"):
        return like.new_zeros(shape)
    kept = mmap.mmap(-1, math.prod(shape) * like.element_size(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANON | NORESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        kept.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(kept, dtype=like.dtype).reshape(shape)


def new_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new ``.npy`` file, mapped to be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return npy.open_memmap(path, "w+", np.dtype(dtype), shape)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error}") from error


def stamp_of(path: Path) -> dict[str, int]:
    """Size of a file and when it was written to last: by these it is known again without being read."""
    try:
        known = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}; restore it, or make the folder anew") from error
    return {"bytes": known.st_size, "mtime_ns": known.st_mtime_ns}


def sha_of(path: Path) -> str:
    """SHA-256 of a file, read in parts."""
    sha = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while part := stream.read(READ):
                sha.update(part)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return sha.hexdigest()

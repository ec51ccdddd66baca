"""Remember what was computed from tensors for as long as those tensors live and nobody writes to them.

Whether somebody wrote is known by torch's count of writes, and by a look at the contents: numpy, ``.data`` and other
libraries write without being counted. A look takes in the whole of a tensor on the CPU, but of a large matrix of
floating-point numbers a few rows only, since reading all features takes longer than a sparse model does. After writing
to some of those past torch call :func:`clear_memory`.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, TypeVar
from weakref import WeakSet, ref

import numpy as np
import torch
from torch import Tensor

from unweave._core.compat import outside_transforms, transformed, writes
from unweave._core.mapped import mapped
from unweave._core.weak import ByTensor

__all__ = ["Remembered", "clear_memory", "derive", "look", "origin", "remembered", "remembered_lightly", "stamp"]

T = TypeVar("T")
Stamp = tuple[int, int]

LARGE = 2**16
"""Numbers of a floating-point matrix beyond which a look takes in some rows only."""

ROWS = 4
"""About how many of them: enough to notice that all features were scaled."""

BLOCK = 256
_weights = np.random.default_rng(0).integers(-(2**62), 2**62, BLOCK) * 2 + 1
_seen = ByTensor[tuple[int, int, bytes | None]]()
_UNSEEN = (0, 0, None)
_parents = ByTensor["ref[Tensor]"]()
_children = ByTensor[ByTensor[tuple[Stamp, Stamp, Tensor | None]]]()
_all: "WeakSet[Remembered[Any]]" = WeakSet()


def stamp(tensor: Tensor) -> Stamp | None:
    """What is known of writes to a tensor without another look at it; ``None`` where torch does not count."""
    count = writes(tensor)
    return None if count is None else (count, _seen.get(tensor, _UNSEEN)[0])


def look(tensor: Tensor) -> Stamp | None:
    """The same after a look at what the tensor holds."""
    count = writes(tensor)
    if count is None or not tensor.is_cpu or tensor.layout != torch.strided or transformed(tensor):
        return stamp(tensor)
    if mapped(tensor) is not None:  # a look would read the file, which nobody writes to
        return stamp(tensor)
    changes, then, before = _seen.get(tensor, (0, count, None))
    now = _fingerprint(tensor)
    if (then, before) != (count, now):
        changes += then == count and before is not None  # written to, and not counted
        _seen[tensor] = changes, count, now
    return count, changes


def _fingerprint(tensor: Tensor) -> bytes:
    """Bytes that differ where tensors do: a weighted sum of every 256 words."""
    with outside_transforms():
        if tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel() > LARGE:
            tensor = tensor[:: max(1, tensor.size(0) // ROWS)]
        tensor = tensor.detach() if tensor.requires_grad else tensor
        known = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # which numpy does not know
        raw = known.numpy().ravel(order="K").view(np.uint8)  # as it lies in memory, without a copy where that is dense
    end = raw.size // (8 * BLOCK) * (8 * BLOCK)
    words = raw[:end].view(np.int64).reshape(-1, BLOCK)
    return bytes(np.einsum("ij,j->i", words, _weights).tobytes() + raw[end:].tobytes())


def derive(child: Tensor, parent: Tensor, kept: Tensor | None = None) -> None:
    """Note that one tensor is another of which a part went, so that what is known of that one can be patched for it.

    Both have been looked at, or made, just before. The note goes with either of them: nothing that hangs on the child
    tells of the parent once that is freed.

    Args:
        child: Those columns of ``parent`` that were kept; or, where none went, ``parent`` with entries set to zero.
        parent: The tensor it was made of.
        kept: The numbers of those columns.
    """
    made, of = stamp(child), stamp(parent)
    if child is not parent and made is not None and of is not None:
        _parents[child] = ref(parent)
        _children.setdefault(parent, ByTensor())[child] = made, of, kept


def origin(child: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """What a tensor that one has looked at was made of (:func:`derive`), while that lives and nobody writes to them."""
    parent = _parents[child]() if child in _parents else None
    if parent is None:
        return None
    made, of, kept = _children[parent][child]
    return (parent, kept) if made == stamp(child) and of == look(parent) else None


class Remembered(Generic[T]):
    """A function of tensors that is computed once for the same ones, told apart by identity and by writes to them.

    A tensor that is edited in place, copied or moved is another one. The memory hangs on the first argument and goes
    with it, so the result must not hold that tensor itself. Tensors without a count of writes (those of inference
    mode) are not remembered.

    Args:
        function: Its arguments, given by position, are tensors, ``None`` and hashable values, a tensor first.
        state: What tells whether somebody wrote to a tensor.
    """

    def __init__(self, function: Callable[..., T], state: Callable[[Tensor], Stamp | None]) -> None:
        self._function, self._state = function, state
        self._memory = ByTensor[dict[Any, Any]]()
        update_wrapper(self, function)
        _all.add(self)

    def __call__(self, first: Tensor, *others: Any) -> T:
        """What the function gives."""
        key, now = self._asked(first, others)
        if None in now:
            return self._function(first, *others)
        found = self._found(first, others, key, now)
        if found is None:
            found = (self._function(first, *others),)
            known = [ref(other) for other in others if isinstance(other, Tensor)]
            self._memory.setdefault(first, {})[key] = now, known, found
        return found[0]

    def known(self, first: Tensor, *others: Any) -> T | None:
        """What the function gave, where it was asked before."""
        found = self._found(first, others, *self._asked(first, others))
        return None if found is None else found[0]

    def clear(self) -> None:
        """Remember nothing."""
        self._memory.clear()

    def _asked(self, first: Tensor, others: tuple[Any, ...]) -> tuple[Any, list[Stamp | None]]:
        tensors = [first, *(other for other in others if isinstance(other, Tensor))]
        key = tuple("tensor" if isinstance(other, Tensor) else other for other in others)
        return key, [self._state(tensor) for tensor in tensors]

    def _found(self, first: Tensor, others: tuple[Any, ...], key: Any, now: list[Stamp | None]) -> tuple[T] | None:
        then, known, found = self._memory.get(first, {}).get(key, (None, [], None))
        tensors = (other for other in others if isinstance(other, Tensor))
        same = then == now and all(there() is other for there, other in zip(known, tensors, strict=True))
        return found if same else None


def remembered(function: Callable[..., T]) -> Remembered[T]:
    """Compute a function once for the same tensors (:class:`Remembered`), after a look at what they hold."""
    return Remembered(function, look)


def remembered_lightly(function: Callable[..., T]) -> Remembered[T]:
    """The same without a look, for what must not take time in proportion to the tensors."""
    return Remembered(function, stamp)


def clear_memory() -> None:
    """Forget everything that was computed from tensors; call it after writing to ``x`` through numpy or ``.data``.

    torch counts the writes that go through it, and the built-in models look at ``edge_index`` and ``edge_weight``
    themselves, so nobody has to call this who writes to those, or with torch.
    """
    for function in _all:
        function.clear()
    for table in (_parents, _children, _seen):
        table.clear()

"""Count the bytes of the tensors that a piece of work holds at a time, and stop it at a limit.

What is counted are the storages that torch's operations return, from when they appear until they are freed, so the
count is the same on every machine. Memory that a kernel takes for itself while it runs is not seen.
"""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unweave._core import ranks
from unweave._core.compat import DispatchMode, leaves, storage_key
from unweave.errors import BudgetError, MethodError

__all__ = ["MIB", "OverBudget", "TensorBytes", "check_memory", "no_memory", "storages_in"]

MIB = 2**20


class OverBudget(Exception):  # noqa: N818 (it is caught, never shown)
    """More bytes are held than allowed."""


def no_memory(error: RuntimeError) -> BudgetError | None:
    """What to say where an error of torch's means that memory ran out, on a GPU or here; ``None`` where it does not."""
    text = str(error)
    if not isinstance(error, torch.OutOfMemoryError) and "DefaultCPUAllocator" not in text:
        return None
    return BudgetError(
        f"memory ran out ({text.splitlines()[0]}); give memory_mib=… (--memory-mib on the command line), and the model "
        "is evaluated in blocks of nodes that take no more"
    )


class TensorBytes(DispatchMode):  # type: ignore[no-untyped-call]
    """Counts, within the block, the bytes of all tensors made there. Tensors that were there before are free.

    Attributes:
        peak: The most bytes held at a time.
    """

    def __init__(self, limit: float = float("inf")) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._limit = limit
        self._now = 0
        self._held: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; what it is given is known, what it returns may be new."""
        for storage in storages_in((args, kwargs)):
            self._hold(storage, 0)
        result = func(*args, **(kwargs or {}))
        for storage in storages_in(result):
            self._hold(storage, storage.nbytes())
        if self._now > self._limit:
            raise OverBudget
        return result

    def _hold(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage_key(storage)
        if key in self._held:
            return
        self._held[key] = size
        self._now += size
        self.peak = max(self.peak, self._now)
        weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key: int) -> None:
        self._now -= self._held.pop(key)


def storages_in(tree: object) -> Iterator[torch.UntypedStorage]:
    """The memory of all tensors that lists, tuples and dictionaries hold in the end."""
    for value in leaves(tree):
        yield from _storages(value)


def _storages(value: object) -> list[torch.UntypedStorage]:
    if not isinstance(value, Tensor):
        return []
    if value.layout == torch.strided:
        return [value.untyped_storage()]
    if value.layout == torch.sparse_csr:
        return [part.untyped_storage() for part in (value.crow_indices(), value.col_indices(), value.values())]
    return []


def check_memory(memory_mib: object) -> float:
    """A budget in MiB as bytes; that of a rank may have no bound."""
    if memory_mib == float("inf") and ranks.joined():
        return float("inf")
    if isinstance(memory_mib, bool) or not isinstance(memory_mib, int | float) or not 0 < memory_mib < float("inf"):
        raise MethodError(f"memory_mib must be a positive number of MiB, got {memory_mib!r}")
    return memory_mib * MIB

"""What is known of tensors, for as long as they live."""

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar
from weakref import ref

from torch import Tensor

__all__ = ["ByTensor"]

V = TypeVar("V")


class ByTensor(MutableMapping[Tensor, V]):
    """A dictionary of tensors that are told apart by identity, each of which goes with its tensor.

    As torch's ``WeakIdKeyDictionary``, which makes a reference and compares two in every look-up: as long as a small
    product takes, and every layer looks its graph up.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[ref[Tensor], V]] = {}

    def __getitem__(self, tensor: Tensor) -> V:
        found = self._held.get(id(tensor))
        if found is None or found[0]() is not tensor:
            raise KeyError(tensor.shape)
        return found[1]

    def get(self, tensor: Tensor, default: Any = None) -> Any:
        """What is known, without an exception on the way."""
        found = self._held.get(id(tensor))
        return default if found is None or found[0]() is not tensor else found[1]

    def __setitem__(self, tensor: Tensor, value: V) -> None:
        number, held = id(tensor), self._held
        held[number] = ref(tensor, lambda _: held.pop(number, None)), value

    def __delitem__(self, tensor: Tensor) -> None:
        self[tensor]
        del self._held[id(tensor)]

    def __iter__(self) -> Iterator[Tensor]:
        there = [reference() for reference, _ in list(self._held.values())]
        return iter([tensor for tensor in there if tensor is not None])

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Know nothing."""
        self._held.clear()

"""Remember what was computed from tensors for as long as those tensors live and nobody writes to them."""

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import Any, TypeVar
from weakref import ref

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["remembered"]

T = TypeVar("T")


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Compute a function once for the same tensors, told apart by identity and by torch's count of writes to them.

    A tensor that is edited in place, copied or moved is another one. The memory hangs on the first argument and goes
    with it, so the result must not hold that tensor itself. Tensors without a count of writes (those of inference
    mode) are not remembered.

    Args:
        function: Its arguments, given by position, are tensors, ``None`` and hashable values, a tensor first.
    """
    memory: MutableMapping[Tensor, dict[Any, Any]] = WeakIdKeyDictionary()

    @wraps(function)
    def remembering(first: Tensor, *others: Any) -> T:
        tensors = [first, *(other for other in others if isinstance(other, Tensor))]
        if any(tensor.is_inference() for tensor in tensors):
            return function(first, *others)
        plain = tuple("tensor" if isinstance(other, Tensor) else other for other in others)
        state = [(tensor, tensor._version) for tensor in tensors[1:]]
        entries = memory.setdefault(first, {})
        version, known, result = entries.get(plain, (None, [], None))
        same = version == first._version and len(known) == len(state)
        if not (same and all(a() is t and n == v for (a, n), (t, v) in zip(known, state, strict=True))):
            result = function(first, *others)
            entries[plain] = (first._version, [(ref(t), v) for t, v in state], result)
        return result  # type: ignore[no-any-return]

    return remembering

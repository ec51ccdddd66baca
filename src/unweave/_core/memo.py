"""Remember what was computed from tensors for as long as those tensors live and nobody writes to them."""

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import Any, TypeVar
from weakref import ref

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["derive", "origin", "remembered"]

T = TypeVar("T")

_origins: MutableMapping[Tensor, tuple[Any, ...]] = WeakIdKeyDictionary()


def derive(child: Tensor, parent: Tensor, kept: Tensor | None = None) -> None:
    """Note that one tensor is another of which a part went, so that what is known of that one can be patched for it.

    Args:
        child: Those columns of ``parent`` that were kept; or, where none went, ``parent`` with entries set to zero.
        parent: The tensor it was made of.
        kept: The numbers of those columns.
    """
    if not (child is parent or child.is_inference() or parent.is_inference()):
        _origins[child] = child._version, ref(parent), parent._version, kept


def origin(child: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """What a tensor was made of (:func:`derive`), for as long as that lives and nobody writes to either."""
    if child.is_inference() or child not in _origins:
        return None
    version, made_of, then, kept = _origins[child]
    parent = made_of()
    same = parent is not None and version == child._version and then == parent._version
    return (parent, kept) if same else None


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

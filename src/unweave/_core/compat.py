"""Every private name of torch and PyG that is used here, each in one place and each with what to do without it.

Nothing is wrong where one of them is missing in another version: it is slower, or refused in words.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

__all__ = [
    "DERIVED_OF_CODE",
    "TABLES",
    "DispatchMode",
    "knowledge_of_code",
    "leaves",
    "listened_to",
    "messages_listened_to",
    "outside_transforms",
    "passes_messages_its_own_way",
    "storage_key",
    "transformed",
    "writes",
]

_functorch = getattr(getattr(torch, "_C", None), "_functorch", None)
_is_wrapped = getattr(_functorch, "is_functorch_wrapped_tensor", None)
_outside = getattr(torch._C, "_DisableFuncTorch", None)


def writes(tensor: Tensor) -> int | None:
    """How often torch has seen somebody write to a tensor; ``None`` where it does not count."""
    return None if tensor.is_inference() else getattr(tensor, "_version", None)


def transformed(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` stands behind a tensor. Where nobody can tell, yes: nothing is kept."""
    return True if _is_wrapped is None or _outside is None else bool(_is_wrapped(tensor))


def outside_transforms() -> AbstractContextManager[Any]:
    """Compute as if no transform of ``torch.func`` were at work; where that cannot be, nothing asks for it."""
    return nullcontext() if _outside is None else _outside()


def listened_to(module: nn.Module) -> bool:
    """Whether somebody has hooks on calls of a module."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, name, True) for name in names)


def messages_listened_to(layer: MessagePassing) -> bool:
    """Whether somebody wants the messages of a layer: an explainer, or hooks on them."""
    return bool(getattr(layer, "explain", True)) or any(getattr(layer, name, True) for name in _MESSAGE_HOOKS)


_MESSAGE_HOOKS = tuple(
    f"_{part}_forward{when}_hooks"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "_pre")
)


DERIVED_OF_CODE = ("inspector",)
"""Attributes of a layer in which PyG notes what it found out about the layer's code."""

TABLES = ("_parameters", "_buffers", "_modules")
"""Attributes in which a module keeps its parameters, buffers and parts."""


def knowledge_of_code(model: nn.Module) -> list[object]:
    """What PyG found out about the code of a model's layers: the same for all of a kind, and long to copy."""
    return [known for module in model.modules() if (known := getattr(module, "inspector", None)) is not None]


def passes_messages_its_own_way(kind: type) -> bool:
    """Whether a class says by itself how messages are passed, beside what PyG writes into every class."""
    generated = f"{kind.__module__}_{kind.__name__}_"
    return any(
        name in vars(kind)
        and vars(kind)[name] is not getattr(MessagePassing, name, None)
        and not str(getattr(vars(kind)[name], "__module__", "")).startswith(generated)
        for name in _PASSING
    )


_PASSING = (
    "forward",
    "propagate",
    "message",
    "aggregate",
    "message_and_aggregate",
    "update",
    "edge_updater",
    "edge_update",
    "collect",
)


def storage_key(storage: torch.UntypedStorage) -> int:
    """A number that tells storages apart while they live."""
    return int(getattr(storage, "_cdata", None) or storage.data_ptr())


def leaves(tree: object) -> Iterator[object]:
    """What lists, tuples and dictionaries hold in the end."""
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()))
    else:
        yield tree


try:
    from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
except ImportError:  # pragma: no cover (a torch to come)

    class DispatchMode:  # type: ignore[no-redef]
        """Stands where torch's mode is missing, without which bytes cannot be counted."""

        def __init__(self) -> None:
            raise ImportError("this version of torch does not tell what its operations return; leave memory_mib out")

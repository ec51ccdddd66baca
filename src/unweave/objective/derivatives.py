"""What stands in the way of derivatives: models that compute something again behind autograd's back, or keep it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from unweave._core.memory import no_memory
from unweave.errors import ModelError, UnweaveError

__all__ = ["computed_once", "no_derivative"]

_AGAIN = (
    "the model computes parts of its forward again while it is differentiated (activation checkpointing), and would "
    "do so with other parameters than the first time; switch checkpointing off, and where memory is short give "
    "memory_mib= instead"
)


@contextmanager
def computed_once(model: nn.Module) -> Iterator[None]:
    """Refuse a model of which a module is called while it is differentiated.

    Parameters are lent to a module for a call; what is computed again later is computed with those it has itself.
    """
    again: list[nn.Module] = []
    plain = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    hooks = [module.register_forward_pre_hook(lambda called, _: again.append(called)) for module in plain]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if again:
        raise ModelError(_AGAIN)


def no_derivative(model: nn.Module, error: RuntimeError, otherwise: str) -> UnweaveError:
    """Why a model could not be differentiated."""
    short = no_memory(error)
    if short is not None:
        return short
    if "use_reentrant" in str(error):
        return ModelError(_AGAIN)
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        return ModelError(
            f"the model is compiled, and cannot be differentiated as it has to be ({error}); give the module that "
            "torch.compile was given, model._orig_mod: it has the same parameters"
        )
    return ModelError(otherwise)

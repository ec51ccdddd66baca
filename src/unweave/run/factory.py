"""A model of the user's own by the import path of a function that gives it."""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from unweave.errors import ModelError

__all__ = ["made_by"]

PARTS = ("model", "loss", "forward", "weight_decay", "trainer")


def made_by(path: str) -> dict[str, Any]:
    """What a factory gives: the module, or a dict with it and how it was trained.

    Args:
        path: ``package.module:factory``; modules of the current folder are found.

    Returns:
        ``model``, and where the factory gave them ``loss``, ``forward``, ``weight_decay`` and ``trainer``.
    """
    module, _, name = path.partition(":")
    if not (module and name):
        raise ModelError(f"--model {path} must be package.module:factory, a function that gives your module")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(import_module(module), name)
    except ImportError as error:
        raise ModelError(f"--model {path}: cannot import {module}: {error}") from error
    except AttributeError as error:
        raise ModelError(f"--model {path}: {module} has no {name}") from error
    found = factory()
    parts = dict(found) if isinstance(found, Mapping) else {"model": found}
    strange = sorted(set(parts) - set(PARTS))
    if strange or not isinstance(parts.get("model"), nn.Module):
        raise ModelError(
            f"--model {path} must give a torch.nn.Module, or a dict of {', '.join(PARTS)}; it gave "
            + (f"{', '.join(strange)} as well" if strange else type(found).__name__)
        )
    return parts

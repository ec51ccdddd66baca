"""Training loops of one's own, made forgettable: a plain one by :class:`Watch`, one of Lightning by its callback.

``uw.integrations.lightning`` needs the extra ``unweave[lightning]`` and is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unweave.integrations.watch import Watch

if TYPE_CHECKING:
    from unweave.integrations import lightning as lightning

__all__ = ["Watch", "lightning"]


def __getattr__(name: str) -> Any:
    """Import what needs an extra when it is first asked for."""
    if name != "lightning":
        raise AttributeError(f"module 'unweave.integrations' has no attribute {name!r}; it has {', '.join(__all__)}")
    return import_module("unweave.integrations.lightning")

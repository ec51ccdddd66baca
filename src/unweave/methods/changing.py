"""What asks for a change beside a request: which methods answer it, and whether a blank node leaves the model alone."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.changes import Change
from unweave.errors import MethodError, ModelError
from unweave.graph.alteration import Alteration, alter
from unweave.graph.removal import Removal, remove
from unweave.methods.base import Method
from unweave.models import Shards
from unweave.objective.checks import rounding
from unweave.objective.objective import Forward
from unweave.request import Request

__all__ = ["Asked", "as_asked", "carried_out", "check_answers", "look_blank", "spread_along"]

Asked = Request | Change
"""What a model is to follow: a deletion, or a change."""


def as_asked(asked: Asked) -> Asked:
    """A change that only forgets as the request that it is."""
    return asked if isinstance(asked, Request) else asked.deletion or asked


def check_answers(how: Method, *, defer: bool = False, bounded: bool = False) -> None:
    """Refuse a method that knows deletions alone, before any work."""
    if not how.changes:
        raise MethodError(
            f"method {how.name!r} answers deletions alone, not data that is added or corrected; use method='gif' or "
            "'retrain' for the change, or forget what is to go with a request of its own"
        )
    for asked, name in ((defer, "defer (--defer)"), (bounded, "memory_mib (--memory-mib)")):
        if asked:
            raise MethodError(f"{name} is for deletions alone, not for data that is added or corrected; leave it out")


def carried_out(data: Data, asked: Asked) -> tuple[Data, Removal]:
    """The graph before, of as many nodes as the one after, and what became of it."""
    if isinstance(asked, Request):
        return data, remove(data, asked)
    done = alter(data, asked)
    return done.before, done


def spread_along(data: Data, removal: Removal) -> Data:
    """The graph along which an influence spreads."""
    return removal.both if isinstance(removal, Alteration) else data


def look_blank(model: nn.Module, data: Data, removal: Removal, forward: Forward, outputs: Tensor | None = None) -> int:
    """Nodes without anything must leave what the model gives for all others as it is; otherwise it is refused.

    Args:
        model: The module, in eval mode.
        data: The graph as it was.
        removal: What became of it; a change that adds no node needs no look.
        forward: How the module is called.
        outputs: What it gives on the graph, where that is known.

    Returns:
        The passes that it took.
    """
    if not isinstance(removal, Alteration) or not removal.added.numel():
        return 0
    if isinstance(model, Shards):
        raise ModelError("shards hold a part of the graph each, and no part for a new node; train them anew")
    with torch.no_grad():
        before = forward(model, data) if outputs is None else outputs
        try:
            after = forward(model, removal.before)
        except Exception as error:  # a model of anyone's may have a row for every node
            raise ModelError(
                f"the model cannot be called with new nodes beside those it was trained on ({type(error).__name__}: "
                f"{error}); has it a row for every node? Then train it anew on the new graph"
            ) from error
    if bool(((before - after[: before.size(0)]).abs() > rounding(before)).any()):
        raise ModelError(
            "the model's predictions change when a node without features and edges is put beside the graph, as it "
            "mixes all nodes (a normalisation or a pooling over the whole graph), or draws at random; for new nodes "
            "train it anew on the new graph"
        )
    return 1 + (outputs is None)

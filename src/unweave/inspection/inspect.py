"""Inspect a model: what did which part of the graph do to it?"""

from torch import nn
from torch_geometric.data import Data

from unweave.curvature.prepared import Prepared
from unweave.inspection.inspection import Inspection
from unweave.inspection.opening import open_scores
from unweave.inspection.quantity import AnyQuantity
from unweave.objective.decay import AnyDecay
from unweave.objective.losses import AnyLoss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.training.adam import Progress

__all__ = ["inspect"]


def inspect(
    model: nn.Module,
    data: Data,
    of: AnyQuantity = "validation",
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    prepared: Prepared | None = None,
    hops: int | None = None,
    memory_mib: float | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Predict what a quantity would be without each node, label, edge and feature of the graph. Nothing is removed.

    One system is solved for the quantity. Its solution gives the effect of every item that is asked for afterwards,
    all of a kind in one go: what happens as messages stop flowing, and what training without it does.

    Args:
        model: The trained module; it stays as it is.
        data: The graph it was trained on.
        of: ``"validation"``, the mean loss of the validation nodes; ``"node:17"``, the margin of its prediction, or its
            output where that is a number; ``"class:3"``, the mean loss of the validation nodes of a class; a
            :class:`~unweave.Gap` between two groups; or a function (outputs, data) → a number.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it, when not as ``model(x, edge_index[, edge_weight])``.
        prepared: What :func:`unweave.prepare` computed for this model; without it the curvature is computed for this.
        hops: Message-passing steps of the model, where its layers do not tell.
        memory_mib: MiB that the removals that are worked on side by side may take; by default 512, and on a GPU a
            quarter of what is free there.
        progress: Called with (items scored, items) while those of a kind are, which is when they are first asked for.
            A module of one's own is called on a copy of what each removal changes, three times and once more for
            each of up to 32 directions: many layers on a small graph copy all of it for every node and edge.

    Raises:
        UnweaveError: Model, graph or quantity cannot be used; nothing was done then.
    """
    found = open_scores(
        model,
        data,
        of,
        weight_decay=weight_decay,
        loss=loss,
        forward=forward,
        prepared=prepared,
        hops=hops,
        memory_mib=memory_mib,
        progress=progress,
    )
    return Inspection(found.subject, found.value, found.warnings, found.weight_decay)

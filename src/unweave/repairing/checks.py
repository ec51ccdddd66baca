"""Refuse what cannot be repaired, before any work."""

import torch
from torch import Tensor

from unweave.errors import DataError, MethodError, ModelError
from unweave.graph.view import GraphView
from unweave.objective.checks import check_data
from unweave.repairing.unseen import deal
from unweave.run.run import Run
from unweave.tasks.task import Task

__all__ = ["KINDS", "check_repair", "halves"]

KINDS = ("triggers", "labels", "edges", "features")

LEAST = 10
"""Validation nodes in each half: with fewer, one node is more than a tenth of the F1 that decides."""


def check_repair(run: Run, kinds: tuple[str, ...], share: float | None, rounds: int, folds: int) -> None:
    """Refuse a run that cannot be repaired, or options that make no sense.

    Raises:
        DataError: The graph has no validation nodes to judge by, or is of a task that is not served.
        ModelError: The model is not one of classes, or its run waits for a verification.
        MethodError: An option is out of range.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds or len(set(kinds)) != len(kinds):
        raise MethodError(f"kinds must be some of {', '.join(KINDS)}, each once, got {kinds!r}")
    if share is not None and not 0 < share < 1:
        raise MethodError(f"false_share must lie between 0 and 1, got {share!r}")
    if rounds < 1 or folds < 2:
        raise MethodError(f"rounds must be at least 1 and folds at least 2, got {rounds!r} and {folds!r}")
    graph = run.state.graph
    if run.pending or isinstance(graph, GraphView):
        raise ModelError("the run has deferred requests that are not verified; call its verify() first")
    if isinstance(graph, Task):
        raise DataError(
            f"repair serves class labels of nodes on one graph, got a {type(graph).__name__}; forget with "
            "Run.forget what you find wrong there yourself"
        )
    check_data(graph)
    if graph.y.dim() != 1 or graph.y.is_floating_point() or not run.loss.classes:
        raise DataError(
            f"repair needs one class label a node and a loss of classes, got labels of shape {tuple(graph.y.shape)} "
            f"and type {graph.y.dtype} with the loss {run.loss}; there is nothing like it for others"
        )
    recipe = run.training.recipe
    if recipe is not None and recipe.certify is not None:
        raise MethodError("a certified model is not repaired, since detection looks at what is to go; train another")
    val = graph.get("val_mask")
    found = 0 if val is None else int((val & (graph.y >= 0) & ~graph.train_mask).sum())
    if found < 2 * LEAST:
        raise DataError(
            f"repair keeps only what helps on validation nodes that did not choose it, and the graph has {found} "
            f"(data.val_mask); give it at least {2 * LEAST}"
        )
    if int(torch.unique(graph.y[graph.train_mask]).numel()) < 2:
        raise DataError("all training nodes have one label, so that none can be told to be wrong; label another class")
    if kinds == ("edges",) and not bool((graph.edge_index[0] != graph.edge_index[1]).any()):
        raise DataError("the graph has no edges between nodes, so there are none to repair; ask for kinds=('labels',)")


def halves(run: Run, seed: int) -> tuple[Tensor, Tensor]:
    """Masks of the two halves of the validation nodes, classes spread over both."""
    data = run.data
    val = data.val_mask & (data.y >= 0) & ~data.train_mask
    side = deal(data.y, val, 2, seed)
    return val & (side == 0), val & (side == 1)

"""What a model says of nodes whose labels it has not seen.

A model that was trained on a label says little about whether that label is right. So the training nodes are dealt into
folds, and for each fold the model forgets its labels: a restart of its minimisation, which takes some gradients where
cross-validation takes a training. What the model of a fold says of the nodes of that fold it says unseen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.errors import ModelError, SolverError
from unweave.objective.scores import log_probabilities
from unweave.request import Request
from unweave.run.run import Run

__all__ = ["FOLDS", "Unseen", "deal", "unseen"]

FOLDS = 5
"""Eighty of a hundred labels stay in each. With ten folds, at twice the cost, labels are judged about the same: average
precision (nearest class, three in ten) 0.869 against 0.865 on Cora, 0.758 against 0.749 on CiteSeer."""

STEPS = 10
"""Gradients of a restart. With as many as it takes, two to four times that, labels are judged the
same: average precision on Cora (nearest class, a tenth) is 0.762 either way, on the demo graph (any class, a tenth)
0.720 against 0.727."""


@dataclass(frozen=True)
class Unseen:
    """Predictions of every node by a model that has not seen its label; on the CPU, where they are judged.

    Attributes:
        log_p: Log-probabilities of the classes, ``[nodes, classes]``.
        fold: The fold of each node. Nodes without a training label have one too: their model is one of those.
        passes: Sweeps over the graph that it took.
    """

    log_p: Tensor
    fold: Tensor
    passes: int


def deal(labels: Tensor, train: Tensor, folds: int, seed: int) -> Tensor:
    """A fold for every node, by chance; the training nodes of each class are spread over all folds."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(labels.numel(), generator=generator)
    key = labels.masked_fill(~train, torch.iinfo(labels.dtype).max).cpu()[order]  # other labels are not looked at
    order = order[key.argsort(stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(order.numel()) % folds
    return fold.to(labels.device)


def unseen(run: Run, *, folds: int = FOLDS, seed: int = 0) -> Unseen:
    """Predictions for every node by a model that has forgotten its label.

    Args:
        run: A run, prepared.
        folds: How many models to make.
        seed: Deals the nodes.

    Raises:
        ModelError: The model cannot forget a part of its labels, so that nothing can be said of them unseen.
    """
    data = run.data
    fold = deal(data.y, data.train_mask, folds, seed)
    log_p, passes = None, 0.0
    for number in range(folds):
        mine = fold == number
        labels = (mine & data.train_mask).nonzero().flatten().tolist()
        try:
            here = run.forget(Request(labels=labels), "gif", steps=STEPS, allow_class_loss=True) if labels else run
        except SolverError as error:
            raise ModelError(
                f"labels are judged by models that have forgotten them, and this one cannot forget {len(labels):,} of "
                f"them: {error}; train it with forgettable=True, or with more weight decay"
            ) from error
        found = log_probabilities(here.model, here.data, run.forward).double().detach()
        log_p = torch.zeros_like(found) if log_p is None else log_p
        log_p[mine] = found[mine]
        passes += 1 + (here.receipts[-1].passes or 0 if labels else 0)
    assert log_p is not None
    return Unseen(log_p.cpu(), fold.cpu(), round(passes))

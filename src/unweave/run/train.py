"""Train a model from scratch, and keep it with its graph and recipe."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.mapped import mapped
from unweave.errors import UnweaveWarning
from unweave.models import push
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.scores import validation
from unweave.run.run import Run
from unweave.training.adam import Progress
from unweave.training.agreement import shortcomings
from unweave.training.fit import train_model
from unweave.training.resuming import Resume

DROWNED = 100
"""Times as large as others numbers in some columns may be where rows are taken at length 1; what is a hundredth is a
ten-thousandth of the length squared. A GraphSAGE on 16 columns of sizes from 1e-4 to 1e4 had an F1 of 0.62, an ordinary
one 0.87. Numbers that are 0 do not count: a rare word is no smaller than a frequent one."""

BEFORE = "_before_polish"
"""How scores from before the polish are named among the others."""

__all__ = ["short_of", "train", "train_run"]


def train(
    model: nn.Module,
    data: Data,
    *,
    seed: int = 0,
    epochs: int | None = None,
    lr: float = 0.01,
    weight_decay: float | Mapping[str, float] | None = None,
    forgettable: bool = False,
    checkpoints: Sequence[float] = (),
    certify: tuple[float, float] | None = None,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    examine: bool = True,
    memory_mib: float | None = None,
    resume: str | Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train ``model`` in place, from scratch: its weights are drawn anew from ``seed``.

    Full-batch Adam on the mean loss of the training nodes. The same arguments give the same model, and the
    caller's random state is left as it was. Test labels are read once, for the final score.

    Args:
        model: Any module whose parts have ``reset_parameters``.
        data: A graph with masks.
        seed: Of the initial weights and of dropout.
        epochs: Full-batch epochs; by default as many as the validation nodes ask for (the recipe has their number), and
            100 before the polish of a forgettable model.
        lr: Learning rate. Where the number of epochs is left to validation and training loses again what it had learnt,
            a third of it is tried, and a third of that; the recipe has the one that gave the best model.
        weight_decay: Adam's weight decay, one number or by name of a parameter or module (``{"conv1": 5e-4}``; what is
            not named has none); 1e-4 by default, 1e-3 for a certified model. For a forgettable model the
            largest of four that the validation nodes do not show to be worse, by the length of the features.
        forgettable: Go on to a minimum of the objective, so that the model can forget almost as if retrained.
        checkpoints: Shares of the training that ``replay`` may be asked to do again, e.g. ``(0.05, 0.1, 0.2)``: the run
            keeps the state from which each begins, and for ``retrace`` the gradient there, which takes as long as an
            epoch. A state takes four times the weights, and remembers the graph.
        certify: (ε, δ): train a model that is linear in its parameters to the minimum of its objective with calibrated
            Gaussian noise, so that every model that :meth:`Run.forget` makes of it is (ε, δ)-certified removal
            (:mod:`unweave.certificate.release`). The noise comes from the system's entropy, not from ``seed``.
        loss: Per-node loss.
        forward: How to call the model on a graph, when not as ``model(x, edge_index[, edge_weight])``.
        examine: Of a forgettable model: also train one from another seed without some of the edges, to know whether
            every training would end where following a deletion leads (``metrics["agreement"]``); it takes as long
            again. On a graph of fewer than 2,500 nodes up to five are trained, while they agree.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph; it is then
            done in blocks of nodes, and dropout is drawn for every block. ``data.x`` may be a memory map.
        resume: A file that holds the ``checkpoints`` while training goes on, and is deleted at its end: the same call
            goes on from the last of them after it was interrupted. It remembers the graph.
        progress: Called with (done, total) as the work goes on.

    Returns:
        A run: the model, the graph, the recipe and its scores, ready to be saved or to forget.

    Warns:
        UnweaveWarning: The model learnt little, by features too long for the steps of training. Or it was to be
            forgettable, and no minimum was reached, another seed would end at another function, or validation F1 fell
            on the way. Each says what to do.
    """
    run = train_run(
        model,
        data,
        seed=seed,
        epochs=epochs,
        lr=lr,
        weight_decay=weight_decay,
        forgettable=forgettable,
        checkpoints=checkpoints,
        certify=certify,
        loss=loss,
        forward=forward,
        examine=examine,
        memory_mib=memory_mib,
        resume=resume,
        progress=progress,
    )
    for text in short_of(run) if ranks.is_first() else ():
        warnings.warn(text, UnweaveWarning, stacklevel=2)
    return run


def train_run(
    model: nn.Module,
    data: Data,
    *,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    examine: bool = True,
    resume: str | Path | None = None,
    **how: Any,
) -> Run:
    """The same for who tells what it is :func:`short_of` in a way of its own, or compares many."""
    kept = None if resume is None else Path(resume)
    done = train_model(model, data, loss=loss, forward=forward, examine=examine, resume=kept, **how)
    if kept is not None:
        Resume(kept).done()
    return Run(
        done.model,
        data,
        recipe=done.recipe,
        metrics=done.metrics,
        loss=loss,
        forward=forward,
        checkpoints=done.checkpoints,
        prepared=done.prepared,
    )


def short_of(run: Run) -> tuple[str, ...]:
    """What training came short of, as far as its state, scores and features tell."""
    unit = getattr(run.model, "unit", None)
    if run.prepared is None:
        return (*_lost(run), *(() if unit is True else _pushed(run, built=unit is False)))
    before = {key.removesuffix(BEFORE): value for key, value in run.metrics.items() if key.endswith(BEFORE)}
    told = shortcomings(run.prepared, before, run.metrics, validation(run.data, as_loss(run.loss)).numel())
    return (*told, *(_drowned(run.data, unit=unit) if isinstance(unit, bool) else ()))


def _lost(run: Run) -> tuple[str, ...]:
    """That training lost what it had learnt, and shorter steps gave no better model."""
    if run.recipe is None or not run.metrics.get("training_lost"):
        return ()
    return (
        f"after {run.recipe.epochs} epochs training (learning rate {run.recipe.lr:.2g}) lost half and more of what it "
        "had learnt, and shorter steps gave no better model by validation; this is the one from before: divide the "
        "features by their size, or normalise in the model",
    )


def _pushed(run: Run, *, built: bool) -> tuple[str, ...]:
    """That a model learnt less than half of what the most frequent class leaves, by steps too long for the features."""
    x, recipe, right = run.data.get("x"), run.recipe, run.metrics.get("train_f1")
    if right is None or recipe is None or recipe.certify is not None or not isinstance(x, Tensor) or x.dim() != 2:
        return ()
    if any("Norm" in type(module).__name__ for module in run.model.modules()):
        return ()
    labels = run.data.y[run.data.train_mask]
    most = float(labels.mode().values.eq(labels).double().mean())
    if right > (1 + most) / 2 or (moved := push(x, recipe.lr)) <= 1:
        return ()
    return (
        f"the model tells {right:.0%} of the training nodes' classes, where {most:.0%} have the same one, and rows of "
        f"data.x are so long that one step of Adam (learning rate {recipe.lr:.2g}) moves a unit by {moved:.2g} for all "
        "nodes at once, so that many may be zero for good: have rows shorter (torch_geometric.transforms."
        f"NormalizeFeatures{', or unit=True of this model' if built else ''}), or give a smaller "
        "learning rate",
    )


def _drowned(data: Data, *, unit: bool) -> tuple[str, ...]:
    """What rows of length 1, or one weight decay, leave little of: columns of small numbers beside those of others."""
    x = data.get("x")
    if not isinstance(x, Tensor) or x.dim() != 2 or mapped(x) is not None:
        return ()
    there = torch.count_nonzero(x, dim=0)
    sizes = torch.linalg.vector_norm(x, dim=0)[there > 0] / there[there > 0].sqrt()
    if not sizes.numel() or float(sizes.max()) <= DROWNED * float(sizes.min()):
        return ()
    why = "rows of length 1, as this model takes them, leave" if unit else "one weight decay for all of them leaves"
    return (
        f"numbers in the columns of data.x have sizes from {float(sizes.min()):.2g} to {float(sizes.max()):.2g}, and "
        f"{why} little of the small ones: divide every column by its size first"
        f"{', or build the model with unit=False' if unit else ''}",
    )

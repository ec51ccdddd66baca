"""Train a model from scratch by a recipe that can be repeated exactly."""

import torch
from torch import nn
from torch_geometric.data import Data

from unweave.fitting import Progress, Recipe, fit, reinitialise, seeded
from unweave.losses import Loss, cross_entropy
from unweave.meter import Meter
from unweave.metrics import score
from unweave.objective import Forward, Objective, call, decay_vector
from unweave.run import Run
from unweave.validation import check_data, check_labels, check_model, check_outputs

__all__ = ["train"]


def train(
    model: nn.Module,
    data: Data,
    *,
    seed: int = 0,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float = 1e-4,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    progress: Progress | None = None,
) -> Run:
    """Train ``model`` in place, from scratch: its weights are drawn anew from ``seed``.

    Full-batch Adam on the mean loss of the training nodes. The same arguments give the same model, and the
    caller's random state is left as it was. Test labels are read once, for the final score.

    Args:
        model: Any module whose parts have ``reset_parameters``.
        data: A graph with masks.
        seed: Of the initial weights and of dropout.
        epochs: Full-batch epochs.
        lr: Learning rate.
        weight_decay: Adam's weight decay.
        loss: Per-node loss.
        forward: How to call the model on a graph, when not as ``model(x, edge_index[, edge_weight])``.
        progress: Called with (done, epochs) after each epoch.

    Returns:
        A run: the model, the graph, the recipe and its scores, ready to be saved or to forget.
    """
    recipe = Recipe(seed=seed, epochs=epochs, lr=lr, weight_decay=weight_decay)
    check_data(data)
    check_model(model, data, trained=False)
    meter = Meter(data.x.device)
    with seeded(seed, meter.device):
        reinitialise(model)
        with torch.no_grad():
            check_labels(data, loss, check_outputs(forward(model.eval(), data), data))
    with seeded(seed, meter.device):  # again, so that the look at the outputs leaves no trace in the random stream
        reinitialise(model)
        objective = Objective(model, data, loss, decay_vector(model, weight_decay), forward, meter)
        with meter.phase("train"):
            fit(model, objective, lr=lr, epochs=epochs, progress=progress)
    metrics = score(model, data, loss, forward) | {"train_seconds": meter.seconds["train"]}
    return Run(model, data, recipe, metrics, loss=loss, forward=forward)

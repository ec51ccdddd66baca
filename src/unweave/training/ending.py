"""Training that ends when validation says enough."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unweave._core.tuning import TUNING
from unweave.objective.losses import Loss, mean_of
from unweave.objective.objective import Objective
from unweave.training.adam import Progress
from unweave.training.checkpoints import Checkpoint, Trainer

__all__ = ["Ended", "put_back", "train_until_enough"]

LITTLE = 1e-3
"""Share of a loss by which it must fall to count."""


@dataclass(frozen=True)
class Ended:
    """How a training ended.

    Attributes:
        epochs: Epochs after which the model was best on the validation nodes.
        looked: Epochs that were trained to know it.
        enough: Whether it ended by itself; ``False`` where it was cut off while it still became better.
        quality: F1 and loss on the validation nodes then; F1 is 0 where there are no classes.
        lost: Whether it had lost half of that again in the end, by the loss of the training nodes.
        tensors: Its parameters and buffers by name.
    """

    epochs: int
    looked: int
    enough: bool
    quality: tuple[float, float]
    lost: bool
    tensors: Mapping[str, Tensor]

    def better_than(self, other: "Ended") -> bool:
        """Whether it gave the better model, by the validation nodes."""
        return _better(self.quality, other.quality)


def train_until_enough(
    trainer: Trainer, model: nn.Module, objective: Objective, progress: Progress | None = None
) -> Ended:
    """Train a model in place for as long as it becomes better on the validation nodes, and leave it where it was best.

    A training of as many epochs gives the same model again: looking draws no random number. It goes on for half as long
    as the best took, and for 50 epochs at least; and while the model knows nothing, however long nothing happens: on
    Photo a GCN says the most frequent class for its first hundred epochs.

    Args:
        trainer: From a state to a state.
        model: Any module; it is trained from the start.
        objective: The loss, and a graph with validation nodes.
        progress: Called with (epochs done, epochs at most).
    """
    rules, data, loss = TUNING.ending, objective.data, objective.loss
    known = data.val_mask & (data.y >= 0) if loss.classes else data.val_mask
    state: Checkpoint | None = None
    best, kept, most, learnt, lost, enough = (-1.0, math.inf), None, 0.0, False, False, False
    while not enough and (state is None or state.epoch < rules.most):
        state = trainer(model, data, state, (0 if state is None else state.epoch) + rules.look)
        everywhere = objective.predict(model)
        outputs, labels = everywhere[known], data.y[known]
        now = _quality(outputs, labels, loss)
        learnt = learnt or _knows(now, outputs, labels, loss)
        gained = _gained(everywhere[data.train_mask], data.y[data.train_mask], loss)
        if kept is None or _better(now, best):
            best, kept, most = now, state, gained
        lost = learnt and most > 0 and gained < most / 2
        if progress is not None:
            progress(state.epoch, rules.most)
        enough = learnt and state.epoch - kept.epoch >= max(rules.patience, kept.epoch // 2)
    assert state is not None
    assert kept is not None
    put_back(model, kept.model)
    model.eval()
    return Ended(kept.epoch, state.epoch, enough, best, lost, kept.model)


def put_back(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a model its parameters and buffers of before, those too that its state dict leaves out."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(tensors[name])


def _quality(outputs: Tensor, labels: Tensor, loss: Loss) -> tuple[float, float]:
    """F1 on the validation nodes, where there are classes, and their loss."""
    value = float(mean_of(loss(outputs, labels), loss.mass(labels)))
    right = float((outputs.argmax(dim=-1) == labels).double().mean()) if loss.classes else 0.0
    return right, value


def _knows(now: tuple[float, float], outputs: Tensor, labels: Tensor, loss: Loss) -> bool:
    """Whether a model is better than to say of every node how frequent classes are, by its loss or its F1."""
    if not loss.classes or not labels.numel():
        return True
    most, nothing = _nothing(outputs, labels, loss)
    chance = 2 * math.sqrt(most * (1 - most) / labels.numel())
    return now[0] > most + chance or now[1] < (1 - TUNING.polish.knows) * nothing


def _gained(outputs: Tensor, labels: Tensor, loss: Loss) -> float:
    """By how much a model has lowered the loss of its training nodes; 0 where there are no classes to begin with."""
    return _nothing(outputs, labels, loss)[1] - _quality(outputs, labels, loss)[1] if loss.classes else 0.0


def _nothing(outputs: Tensor, labels: Tensor, loss: Loss) -> tuple[float, float]:
    """F1 and loss of who says of every node how frequent classes are, or that all are the same, where that is less.

    With class weights it is, or with smoothed labels where there is a class of no node.
    """
    share = torch.bincount(labels, minlength=outputs.size(-1)).to(outputs) / labels.numel()
    same = share.clamp(min=torch.finfo(outputs.dtype).tiny).log()
    told = (_quality(some.expand_as(outputs), labels, loss)[1] for some in (same, torch.zeros_like(same)))
    return float(share.max()), min(told)


def _better(now: tuple[float, float], best: tuple[float, float]) -> bool:
    """Whether F1 rose, or stayed while the loss fell by more than a thousandth of it."""
    return now[0] > best[0] or (now[0] == best[0] and best[1] - now[1] > LITTLE * abs(best[1]))

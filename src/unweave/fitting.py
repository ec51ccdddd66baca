"""The optimiser loop: full-batch Adam, nothing else inside, so that retraining is as fast as it can be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from unweave.errors import DivergenceError, ModelError
from unweave.objective import Objective

__all__ = ["Progress", "Recipe", "fit", "reinitialise", "seeded"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: Adam on the mean loss of the training nodes.

    Attributes:
        seed: Decides the initial weights and the dropout stream.
        epochs: Full-batch epochs.
        lr: Learning rate.
        weight_decay: Adam's ``weight_decay``, on every parameter.
    """

    seed: int = 0
    epochs: int = 100
    lr: float = 0.01
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if self.epochs < 1 or not self.lr > 0 or not self.weight_decay >= 0:
            raise ModelError(f"epochs and lr must be positive and weight_decay at least 0, got {self}")


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run the block with torch's generators seeded, and give the caller's back afterwards."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        yield


def reinitialise(model: nn.Module) -> None:
    """Draw new initial weights by the modules' own ``reset_parameters``, from torch's generator.

    Raises:
        ModelError: A module holds parameters and has no ``reset_parameters``.
    """
    reset = getattr(model, "reset_parameters", None)
    if callable(reset):
        reset()
        return
    own = [name for name, _ in model.named_parameters(recurse=False)]
    if own:
        raise ModelError(
            f"{type(model).__name__} holds the parameter {own[0]!r} and has no reset_parameters(), so it cannot be "
            "trained from scratch again; add reset_parameters(), or pass trainer= to method='retrain'"
        )
    for child in model.children():
        reinitialise(child)


def fit(
    model: nn.Module,
    objective: Objective,
    *,
    lr: float,
    epochs: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> int:
    """Train ``model`` in place and return the epochs done.

    Args:
        model: Starts from the weights it has.
        objective: Graph, training nodes, loss and weight decay.
        lr: Learning rate of Adam.
        epochs: Stop after so many.
        seconds: Stop after so long, after at least one epoch.
        progress: Called with (done, epochs) after each epoch.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    offset = 0
    for parameter in model.parameters():
        groups.setdefault(float(objective.decay[offset]), []).append(parameter)
        offset += parameter.numel()
    optimiser = torch.optim.Adam([{"params": p, "weight_decay": w} for w, p in groups.items()], lr=lr)
    model.train()
    start, done = perf_counter(), 0
    loss = torch.zeros(())
    while (epochs is None or done < epochs) and (not done or seconds is None or perf_counter() - start < seconds):
        optimiser.zero_grad()
        loss = objective.training_loss(model)
        torch.autograd.backward(loss)
        optimiser.step()
        done += 1
        if progress is not None:
            progress(done, epochs or done)
        if seconds is not None and objective.meter.device.type == "cuda":
            torch.cuda.synchronize(objective.meter.device)
    model.eval()
    if not torch.isfinite(loss):
        raise DivergenceError(f"training gave a loss that is not finite after {done} epochs; lower lr={lr}")
    return done

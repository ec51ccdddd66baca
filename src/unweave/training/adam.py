"""The optimiser loop: full-batch Adam, nothing else inside, so that retraining is as fast as it can be.

:class:`Adam` is the built-in :class:`~unweave.training.checkpoints.Trainer`, the same loop from a state to a state.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch_geometric.data import Data

from unweave._core import ranks
from unweave.errors import DivergenceError, MethodError, ModelError
from unweave.objective.decay import decays_in
from unweave.objective.objective import Objective
from unweave.objective.parameters import trained
from unweave.training.checkpoints import Checkpoint

__all__ = ["Adam", "Progress", "fit", "reinitialise", "seeded"]

SETTLED = 15
"""Steps that torch takes itself where a spectral norm is made."""

Progress = Callable[[int, int], None]


_DRAWING = RLock()
"""Held while torch's generators are seeded. Dropout and ``reset_parameters`` take no generator: they draw from torch's
own, which all threads share, so that two trainings at once would take each other's numbers. Reentrant, as a trainer of
the user's may call :func:`unweave.train`; trainings in several processes do not wait for each other."""


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run the block with torch's generators of the CPU and of one device seeded, and give the caller's back after.

    One thread at a time: another one that comes here waits.
    """
    cuda = [device] if device.type == "cuda" else []
    with _DRAWING, torch.random.fork_rng(devices=cuda):
        # torch.manual_seed would seed every device, also those not given back
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def reinitialise(model: nn.Module) -> None:
    """Draw new initial weights by the modules' own ``reset_parameters``, from torch's generator.

    Every parameter that is trained is spoiled first, so that one which nobody resets is noticed instead of carried
    over. Frozen ones stay what they are.

    Raises:
        ModelError: A parameter was not drawn anew; the model is as it was then.
    """
    kept = {parameter: parameter.detach().clone() for parameter in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    model.eval()  # a spectral norm looks at its weight while that is spoiled, and in training would keep what it saw
    spoil(model)
    try:
        _reset(model)
    finally:
        for module, mode in modes.items():
            module.training = mode
    try:
        refuse_spoilt(model, "add reset_parameters() to the module that holds it, or pass trainer= to method='retrain'")
    except ModelError:
        _restore(kept)
        raise
    _restore({parameter: value for parameter, value in kept.items() if not parameter.requires_grad})
    _settle(model)


def _settle(model: nn.Module) -> None:
    """Have parametrizations that keep something of their weight, as a spectral norm does, follow the one drawn anew."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, ParametrizationList) and any(True for _ in module.buffers()):
                mode = module.training
                module.train()
                for _ in range(SETTLED):
                    module()
                module.train(mode)


def _restore(kept: dict[nn.Parameter, Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in kept.items():
            parameter.copy_(value)


def spoil(model: nn.Module) -> None:
    """Fill every parameter that is trained with NaN."""
    with torch.no_grad():
        for parameter in trained(model).values():
            parameter.fill_(torch.nan)


def refuse_spoilt(model: nn.Module, advice: str) -> None:
    """Raise when a parameter still holds what :func:`spoil` put there."""
    for name, parameter in trained(model).items():
        if bool(torch.isnan(parameter).any()):
            raise ModelError(f"parameter {name!r} was not drawn anew, so training would not be from scratch; {advice}")


def _reset(module: nn.Module) -> None:
    """Reset a module, or its children where it cannot; message passing resets only what is its own."""
    for child in module.children():
        _reset(child)
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()


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
    return _descend(model, objective, _adam(model, objective, lr), epochs=epochs, seconds=seconds, progress=progress)


@dataclass(frozen=True, eq=False)
class Adam:
    """The built-in trainer, from a state to a state: full-batch Adam on the mean loss of the training nodes.

    Attributes:
        lr: Learning rate.
        objective: Weight decay, loss, how the module is called and in how much memory; its module and graph do not
            matter.
        progress: Called with (epochs done, until) after each.
    """

    lr: float
    objective: Objective
    progress: Progress | None = None

    def __call__(self, model: nn.Module, data: Data, start: Checkpoint | None, until: int, /) -> Checkpoint:
        """Train ``model`` in place; see :class:`~unweave.training.checkpoints.Trainer`."""
        if start is None:
            reinitialise(model)
        objective = self.objective.anew(model, data)
        optimiser = _adam(model, objective, self.lr)
        asked = _settings(optimiser)
        if start is not None:
            start.restore(model, optimiser)
        if _settings(optimiser) != asked:
            raise MethodError(
                f"the checkpoint was made with (learning rate, weight decay) {_settings(optimiser)}, not {asked}; "
                "give the recipe= and weight_decay= of that training"
            )
        before = 0 if start is None else start.epoch
        progress = self.progress
        tell = None if progress is None else lambda done, _: progress(before + done, until)
        _descend(model, objective, optimiser, epochs=until - before, progress=tell)
        return Checkpoint.take(until, model, optimiser)


def _adam(model: nn.Module, objective: Objective, lr: float) -> torch.optim.Adam:
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter, decay in zip(trained(model).values(), decays_in(model, objective.decay), strict=True):
        if isinstance(decay, str):
            raise ModelError(
                "full-batch Adam has one weight decay for each parameter, and this model has one for each entry, as "
                "AdamW left it; use method='gif', or 'retrain' with your own trainer="
            )
        groups.setdefault(decay, []).append(parameter)
    return torch.optim.Adam([{"params": p, "weight_decay": w} for w, p in groups.items()], lr=lr)


def _settings(optimiser: torch.optim.Optimizer) -> list[tuple[float, ...]]:
    """Learning rate and weight decay of each group, to the digits that a parameter has."""
    return [tuple(float(f"{group[key]:.6g}") for key in ("lr", "weight_decay")) for group in optimiser.param_groups]


def _descend(
    model: nn.Module,
    objective: Objective,
    optimiser: torch.optim.Optimizer,
    *,
    epochs: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> int:
    model.train()
    start, done = perf_counter(), 0
    loss = torch.zeros(())
    if seconds is not None and ranks.joined():
        raise MethodError("ranks do not stop by the clock, which is not the same on all; give epochs, not seconds")
    while (epochs is None or done < epochs) and (not done or seconds is None or perf_counter() - start < seconds):
        optimiser.zero_grad()
        loss = objective.backward(model)
        optimiser.step()
        done += 1
        if progress is not None:
            progress(done, epochs or done)
        if seconds is not None and objective.meter.device.type == "cuda":
            torch.cuda.synchronize(objective.meter.device)
    model.eval()
    if not torch.isfinite(loss):
        lr = optimiser.param_groups[0]["lr"]
        raise DivergenceError(f"training gave a loss that is not finite after {done} epochs; lower lr={lr}")
    return done

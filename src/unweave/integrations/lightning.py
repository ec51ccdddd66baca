"""A callback for PyTorch Lightning that makes a training forgettable at its end. Needs ``unweave[lightning]``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.errors import MethodError, ModelError
from unweave.integrations.watch import SHARES, Watch
from unweave.objective.decay import AnyDecay
from unweave.objective.losses import AnyLoss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.run.run import Run
from unweave.training.checkpoints import Checkpoint
from unweave.training.polish import Polished
from unweave.training.recipe import AnyTrainer

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise ImportError(
        "uw.integrations.lightning needs PyTorch Lightning: pip install 'unweave[lightning]'; a plain loop needs "
        "nothing more, see uw.integrations.Watch"
    ) from missing

__all__ = ["Forgettable"]

Fit = Callable[[nn.Module, Data, Callback], object]
"""A function that makes a new Lightning trainer with a callback, and fits a model on a graph by it."""


class Forgettable(Callback):
    """Makes what a Lightning trainer fits forgettable: ``callback.run`` is the run, once ``fit`` has returned.

    The module has the polished weights then. One process and one fit for each callback.

    Args:
        data: The graph it is trained on, whole, also where the loader gives samples of it.
        net: Name of the attribute of the LightningModule that answers, e.g. ``"model"``; the run then holds that alone
            and needs no Lightning. The LightningModule itself where none is given.
        weight_decay: What it is trained with, where the optimiser is not to be asked.
        loss: Per-node loss of ``training_step``.
        forward: How to call the model on the whole graph.
        checkpoints: Shares of the training to keep a state for, as :class:`~unweave.integrations.Watch` has them; the
            trainer must know ``max_epochs`` then.
        polish: Likewise.
        trainer: How to train it again: a function ``fit(model, data, callback)`` that draws new weights, makes a new
            Lightning trainer with this callback among its own, and fits; ``replay`` and ``retrace`` use it as well. Or
            what :class:`~unweave.integrations.Watch` takes.
        out: A new folder for the run.
    """

    def __init__(
        self,
        data: Data,
        *,
        net: str | None = None,
        weight_decay: AnyDecay | None = None,
        loss: AnyLoss = cross_entropy,
        forward: Forward = call,
        checkpoints: Sequence[float] = SHARES,
        polish: bool | Mapping[str, Any] = True,
        trainer: AnyTrainer | Fit | str | None = None,
        out: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._data, self._net, self._shares = data, net, checkpoints
        self._how: dict[str, Any] = {
            "weight_decay": weight_decay,
            "loss": loss,
            "forward": forward,
            "polish": polish,
            "trainer": _resumed_by(trainer, net),
            "out": out,
        }
        self._watch: Watch | None = None
        self._run: Run | None = None
        self._why = "fit was not called with this callback"

    @property
    def run(self) -> Run:
        """The run, ready to forget.

        Raises:
            ModelError: There is none, and why.
        """
        if self._run is None:
            raise ModelError(f"there is no run: {self._why}")
        return self._run

    @property
    def polished(self) -> Polished | None:
        """What the polish found, once it is done."""
        return None if self._watch is None else self._watch.polished

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Check all that could fail at the end."""
        if self._watch is not None:
            raise ModelError("this callback has watched a fit already; make a new Forgettable for another one")
        if trainer.world_size > 1:
            raise ModelError(
                f"the fit runs in {trainer.world_size} processes, and a polish takes one; fit with devices=1, or "
                "polish the trained module afterwards (unweave.polish)"
            )
        epochs = trainer.fit_loop.max_epochs
        if self._shares and (epochs in (None, -1) or trainer.max_steps != -1):
            raise ModelError(
                f"checkpoints are kept at shares of the epochs, and the trainer has max_epochs={epochs} and max_steps="
                f"{trainer.max_steps}; give it max_epochs alone, or give checkpoints=() here"
            )
        if not trainer.optimizers:
            raise ModelError("configure_optimizers gives no optimiser, so nothing is trained that could forget")
        served = _served(pl_module, self._net)
        many = epochs if epochs not in (None, -1) else 2**62
        how = {"epochs": many, "checkpoints": self._shares, **self._how}
        first, *others = _parts_of(trainer)
        self._watch = Watch(served, self._data, first, *others, **how)
        self._why = "fit has not returned yet"

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Keep a state where one is wanted: here, because schedules are stepped behind the end of an epoch."""
        assert self._watch is not None
        self._watch.reach(trainer.current_epoch)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Count the last epoch."""
        assert self._watch is not None
        self._watch.reach(trainer.current_epoch)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Remember why there is no run."""
        self._why = f"fit was interrupted by {type(exception).__name__} ({exception}); fit again with a new Forgettable"

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Polish where it was trained, and make the run; the module is on the CPU again by now."""
        assert self._watch is not None
        self._run = self._watch.finish_on(trainer.strategy.root_device)


class _Resume(Callback):
    """Puts a fit into a state, and ends it after so many epochs.

    Attributes:
        state: The one it ended in.
    """

    def __init__(self, model: nn.Module, net: str | None, start: Checkpoint | None, until: int | None) -> None:
        super().__init__()
        self._model, self._net, self._start, self._until = model, net, start, until
        self.state: Checkpoint | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Count from the epoch of the state on."""
        if _served(pl_module, self._net) is not self._model:
            raise MethodError("trainer= must fit the very model it is given, in place, and not a copy or a new one")
        if self._until is not None:
            trainer.fit_loop.max_epochs = self._until
        if self._start is not None:
            now = trainer.fit_loop.epoch_progress.current
            now.ready = now.started = now.processed = now.completed = self._start.epoch

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Restore the state, at the point of an epoch where it was taken."""
        if self._start is not None:
            self._start.restore(self._model, *_parts_of(trainer))
            self._start = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the state it ended in."""
        done = trainer.current_epoch
        if self._until is not None and done != self._until:
            raise MethodError(
                f"trainer= was asked to train until epoch {self._until} and ended after {done}: a callback of its own "
                "stops it; use method='retrain', or leave early stopping out of it"
            )
        self.state = Checkpoint.take(done, self._model, *_parts_of(trainer))


def _resumed_by(trainer: AnyTrainer | Fit | str | None, net: str | None) -> AnyTrainer | str | None:
    """A function of (model, data, callback) as a trainer that can stop and go on; anything else as it is."""
    if trainer is None or isinstance(trainer, str) or not callable(trainer):
        return trainer
    try:
        takes = inspect.signature(trainer)
    except (TypeError, ValueError):
        return trainer
    places = [p for p in takes.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(places) != 3 or places[2].default is not inspect.Parameter.empty:
        return trainer
    fit: Callable[..., object] = trainer

    def resumed(model: nn.Module, data: Data, start: Checkpoint | None, until: int) -> Checkpoint:
        callback = _Resume(model.train(), net, start, until)
        fit(model, data, callback)
        if callback.state is None:
            raise MethodError("trainer= did not fit with the callback it was given; put it among Trainer(callbacks=…)")
        return callback.state

    resumed.__qualname__ = str(getattr(fit, "__qualname__", type(fit).__name__))
    return resumed


def _served(module: nn.Module, net: str | None) -> nn.Module:
    """The part of a LightningModule that answers."""
    found = module if net is None else getattr(module, net, None)
    if not isinstance(found, nn.Module):
        raise ModelError(
            f"net={net!r} names no module of {type(module).__name__}; it has "
            f"{', '.join(name for name, _ in module.named_children()) or 'none'}"
        )
    return found


def _parts_of(trainer: Any) -> list[Any]:
    """Optimisers and schedules of a Lightning trainer."""
    return [*trainer.optimizers, *(config.scheduler for config in trainer.lr_scheduler_configs)]

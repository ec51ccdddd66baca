"""Watch a training loop: keep a few of its states, and make the model forgettable at the end.

The loop stays its owner's. Before it begins everything is checked that could fail at its end. While it runs, a state is
copied a few times. At the end the model is polished: the full-batch objective is minimised from where the loop left the
weights, so that it does not matter what of the loop was chance (sampled batches, dropout, early stopping).
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from unweave._core.digest import graph_digest
from unweave.curvature.preparation import check_calls
from unweave.errors import DataError, MethodError, ModelError, RunError, UnweaveWarning
from unweave.integrations.again import as_before
from unweave.objective.checks import check_data, check_model
from unweave.objective.decay import AnyDecay, WeightDecay, as_weight_decay, decay_vector
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import duplicate, trained
from unweave.objective.scores import score
from unweave.run.run import Run
from unweave.training.checkpoints import Checkpoint, Resumable, resume_at
from unweave.training.fit import check_shares
from unweave.training.path import trace_path
from unweave.training.polish import Polished, polish
from unweave.training.recipe import AnyTrainer
from unweave.training.trainer import as_trainer

__all__ = ["SHARES", "Watch"]

SHARES = (0.05, 0.2)
"""The shares of a training that can be replayed where nobody says others."""


class Watch:
    """A training loop of your own, at the end of which the model can forget.

    ::

        watch = uw.integrations.Watch(model, data, optimiser, epochs=200)
        for _ in range(200):
            ...  # your epoch
            watch.step()
        run = watch.finish()

    Args:
        model: The module that is trained, in place.
        data: The graph it is trained on, whole, also where the loop takes samples of it.
        optimiser: The one that trains it, and nothing else.
        parts: What else changes from epoch to epoch and a replay has to put back: a schedule, a second optimiser.
        epochs: How often :meth:`step` will be called, at most.
        weight_decay: What the model is trained with, where the optimiser is not to be asked.
        loss: Per-node loss of the loop.
        forward: How to call the module on the whole graph.
        checkpoints: Shares of the training that ``replay`` may be asked to do again; a state is kept where each begins.
            It takes some three times the weights, on the CPU, and remembers the graph.
        polish: Bring the model to a minimum, or options of :func:`unweave.polish` for it
            (``{"memory_mib": 4096, "examine": False}``). Without, the run has the model as training left it, and the
            states are those that ``retrace`` walks along.
        trainer: How to train it again, for what has to: your loop as a function of (model, data), or as an
            :class:`unweave.Trainer`, which ``replay`` and ``retrace`` need. It need not polish: what it gives is
            polished as this model is.
        out: A new folder for the run.

    Attributes:
        epoch: Epochs done.
        checkpoints: The states kept so far.
        polished: What the polish found, once it is done.

    Raises:
        UnweaveError: Something would fail at the end of the training; nothing has been trained yet.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        optimiser: torch.optim.Optimizer,
        *parts: Resumable,
        epochs: int,
        weight_decay: AnyDecay | None = None,
        loss: AnyLoss = cross_entropy,
        forward: Forward = call,
        checkpoints: Sequence[float] = SHARES,
        polish: bool | Mapping[str, Any] = True,
        trainer: AnyTrainer | str | None = None,
        out: str | Path | None = None,
    ) -> None:
        self.epoch = 0
        self.checkpoints: list[Checkpoint] = []
        self.polished: Polished | None = None
        self._model, self._data, self._parts = model, data, (optimiser, *parts)
        self._epochs, self._loss, self._forward = epochs, as_loss(loss), forward
        self._polish, self._trainer, self._out = polish, trainer, None if out is None else Path(out)
        self._ended = False
        if type(epochs) is not int or epochs < 1:
            raise ModelError(f"epochs must be a whole number of at least 1, got {epochs!r}")
        check_shares(checkpoints)
        if not (isinstance(polish, bool) or (isinstance(polish, Mapping) and polish)):
            raise ModelError(f"polish is True, False or some options of unweave.polish, got {polish!r}")
        if trainer is not None:
            as_trainer(trainer)
        check_data(data)
        self._decay = self._asked(weight_decay)
        self._rehearse()
        self._refuse_taken()
        self._stops = {resume_at(share, epochs) for share in checkpoints} - {0}
        self._graph = graph_digest(data)

    def step(self) -> None:
        """Say that an epoch is done, its schedule included; a state is kept where one is wanted."""
        self.reach(self.epoch + 1)

    def reach(self, epoch: int) -> None:
        """Say that so many epochs are done, for a loop that counts them itself."""
        if self._ended:
            raise ModelError("this training has ended: its run is made; watch a new training by a new one")
        if epoch > self._epochs:
            raise ModelError(
                f"epoch {epoch} of a training of epochs={self._epochs}; say how many there are before it begins"
            )
        self.epoch = epoch
        if epoch in self._stops and all(state.epoch != epoch for state in self.checkpoints):
            self.checkpoints.append(Checkpoint.take(epoch, self._model, *self._parts))

    def finish(self) -> Run:
        """End the training: polish the model, in place, and make a run of it that is ready to forget.

        A loop may end before ``epochs``, as early stopping does. What the user should know is told as warnings.

        Returns:
            The run, with a model of its own: what is done to the user's later does not matter to it.
        """
        return self.finish_on(next(self._model.parameters()).device)

    def finish_on(self, device: torch.device) -> Run:
        """The same by a device that need not be where the model is."""
        if self._ended:
            raise ModelError("finish was called before: the run is made; watch a new training by a new one")
        if not self.epoch:
            raise ModelError("not one epoch was done; call step() at the end of every epoch, and finish() after them")
        if graph_digest(self._data) != self._graph:
            raise DataError(
                "the graph is not the one that training began with: data was changed in place meanwhile; train on a "
                "copy of it (data.clone()), or watch from where it is what it will be"
            )
        self._refuse_taken()
        how: dict[str, Any] = {"loss": self._loss, "forward": self._forward}
        decay = as_weight_decay(self._decay, self._model)
        model, data = duplicate(self._model).to(device), copy.copy(self._data).to(device)
        states = tuple(state for state in self.checkpoints if state.epoch < self.epoch)
        told: list[str] = []
        options = None if self._polish is False else {} if self._polish is True else dict(self._polish)
        trainer = as_before(self._trainer, self.epoch, decay, **how, polish=options)
        if options is not None:
            done = self.polished = polish(model, data, weight_decay=decay, **how, **options)
            told, model = [*done.warnings], done.model
        else:
            states, why = self._traced(states, model, data, decay)
            told += why
        run = Run(model.eval(), data, weight_decay=decay, trainer=trainer, checkpoints=states, **how)
        run = run.replace(prepared=self.polished.prepared) if self.polished is not None else run.prepare()
        memory = None if options is None else options.get("memory_mib")
        run = run.replace(metrics=score(run.model, data, run.loss, run.forward, memory_mib=memory))
        if self._out is not None:
            run.save(self._out)
            told += [why for why in [run.training.unstorable] if why is not None]
        if self.polished is not None:
            _give_back(run.model, self._model)
        self._ended = True
        for text in told:
            warnings.warn(text, UnweaveWarning, stacklevel=3)
        return run

    def _asked(self, weight_decay: AnyDecay | None) -> AnyDecay:
        """What is to be known of the weight decay; the optimisers train this model, and nothing else."""
        optimisers = [part for part in self._parts if isinstance(part, torch.optim.Optimizer)]
        if optimisers[:1] != [self._parts[0]]:
            raise ModelError(f"the optimiser is a torch.optim.Optimizer, got {type(self._parts[0]).__name__}")
        held = {id(p) for o in optimisers for group in o.param_groups for p in group["params"] if p.requires_grad}
        mine = {id(parameter): name for name, parameter in trained(self._model).items()}
        missing = [name for parameter, name in mine.items() if parameter not in held]
        if missing:
            raise ModelError(
                f"the optimiser does not hold the parameter {missing[0]!r} of the model; give the one that trains this "
                "very model (not a copy), and freeze what it does not train: requires_grad_(False)"
            )
        if held - set(mine):
            raise ModelError(
                f"the optimiser also trains {len(held - set(mine))} parameters that are no part of the model; give the "
                "module that holds all of them as the model, with forward=lambda model, data: …"
            )
        if weight_decay is None and len(optimisers) > 1:
            raise ModelError(
                f"there are {len(optimisers)} optimisers; say by weight_decay= what the model is trained with, as one "
                "number or by name"
            )
        found = optimisers[0] if weight_decay is None else weight_decay
        if self._polish is not False and not self._decays(found):
            raise ModelError(
                "the model is trained without weight decay, and can be brought to a minimum only with some: give the "
                "optimiser weight_decay=3e-3 or so, or keep the model as training leaves it by polish=False"
            )
        return found

    def _decays(self, found: AnyDecay) -> bool:
        """Whether there is some weight decay; what AdamW's amounts to is known only after training."""
        if isinstance(found, torch.optim.Optimizer):
            return any(group.get("weight_decay", 0) for group in found.param_groups)
        return bool(decay_vector(self._model, as_weight_decay(found, self._model)).any())

    def _rehearse(self) -> None:
        """Do once what is done at the end, as far as it can fail, with a copy of the model where the graph is."""
        own = duplicate(self._model).to(self._data.x.device)
        check_model(own, self._data, trained=False)
        if not (isinstance(self._polish, Mapping) and self._polish.get("memory_mib") is not None):
            check_calls(own, self._data, self._loss, self._forward)
        Checkpoint.take(0, self._model, *self._parts)

    def _refuse_taken(self) -> None:
        if self._out is not None and self._out.exists():
            raise RunError(f"{self._out} exists already; choose another folder")

    def _traced(
        self, states: tuple[Checkpoint, ...], model: nn.Module, data: Data, decay: WeightDecay
    ) -> tuple[tuple[Checkpoint, ...], list[str]]:
        """The states with what ``retrace`` needs; as they are, and why, where it cannot be had."""
        if not states:
            return (), []
        try:
            how: dict[str, Any] = {"loss": self._loss, "forward": self._forward}
            return trace_path(states, model, data, weight_decay=decay, **how), []
        except MethodError as error:
            return states, [f"retrace cannot use the states of this training: {error}"]


def _give_back(source: nn.Module, target: nn.Module) -> None:
    """Put the weights and buffers of a polished copy into the module it was copied from."""
    values = {**dict(source.named_parameters()), **dict(source.named_buffers())}
    with torch.no_grad():
        for name, place in [*target.named_parameters(), *target.named_buffers()]:
            place.copy_(values[name])

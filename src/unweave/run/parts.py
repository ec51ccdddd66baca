"""What a run is made of: put together, looked at, put together anew."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import nn
from torch_geometric.data import Data

from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.graph.view import GraphView
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.debt import Standing, standing_of
from unweave.objective.checks import check_kind
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, Loss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.receipt.summary import Summary, summarise
from unweave.run.receipts import Receipts
from unweave.run.state import Origin, State
from unweave.training.checkpoints import Checkpoint
from unweave.training.recipe import AnyTrainer, Recipe, Training

__all__ = ["Parts"]


class Parts:
    """The parts of a run, by name; none of them ever changes."""

    _state: State

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        *,
        weight_decay: AnyDecay | None = None,
        loss: AnyLoss = cross_entropy,
        forward: Forward = call,
        trainer: AnyTrainer | str | None = None,
        recipe: Recipe | None = None,
        seed: int = 0,
        checkpoints: Sequence[Checkpoint] = (),
        prepared: Prepared | None = None,
        metrics: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"a run holds a torch.nn.Module, got {type(model).__name__}")
        check_kind(data)
        if weight_decay is None:
            if recipe is None:
                raise ModelError("say what the model was trained with: weight_decay=5e-4, or 0 for none")
            weight_decay = recipe.weight_decay
        self._state = State(
            model=model,
            graph=data,
            training=Training(as_weight_decay(weight_decay, model), recipe, trainer),
            metrics=dict(metrics),
            prepared=prepared,
            loss=as_loss(loss),
            forward=forward,
            checkpoints=tuple(checkpoints),
            seed=seed if recipe is None else recipe.seed,
        )

    def __repr__(self) -> str:
        name, nodes = type(self.model).__name__, self._state.base.num_nodes
        return f"<Run of {name} on {nodes:,} nodes, {len(self.receipts)} receipts>"

    @classmethod
    def of(cls, state: State) -> Self:
        """The run that has these parts."""
        run = cls.__new__(cls)
        run._state = state
        return run

    def replace(self, **parts: Any) -> Self:
        """The same run with other parts, by the names of its attributes, e.g. ``run.replace(checkpoints=())``."""
        if "data" in parts:
            parts["graph"] = parts.pop("data")
        return self.of(replace(self._state, **parts))

    def _next(self, state: State) -> Self:
        """The run that has these parts: this one where they are its own."""
        return self if state is self._state else self.of(state)

    @property
    def state(self) -> State:
        """Its parts."""
        return self._state

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self._state.model

    @property
    def data(self) -> Data:
        """The graph as it is now, without what was forgotten; after a deferred request it is built when asked for."""
        return self._state.data

    @property
    def training(self) -> Training:
        """How the model was trained, as far as it is known."""
        return self._state.training

    @property
    def recipe(self) -> Recipe:
        """The recipe by which unweave trained the model; refused where it did not."""
        if self.training.recipe is None:
            raise ModelError("this model was not trained by a recipe of unweave; its training says what is known")
        return self.training.recipe

    @property
    def metrics(self) -> Mapping[str, float]:
        """Scores on the three masks; none while requests are unverified."""
        return self._state.metrics

    @property
    def receipts(self) -> Receipts:
        """One for each request as it was received, each verification and each purge, oldest first."""
        return self._state.receipts

    @property
    def prepared(self) -> Prepared | None:
        """What makes requests cheap, where it was computed; it still depends on all that was trained on."""
        return self._state.prepared

    @property
    def loss(self) -> Loss:
        """Per-node loss it was trained with."""
        return self._state.loss

    @property
    def forward(self) -> Forward:
        """How the model is called."""
        return self._state.forward

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """States of training that ``replay`` can resume; they remember what was trained on until then."""
        return self._state.checkpoints

    @property
    def calibration(self) -> Calibration | None:
        """What each way to forget was found to be worth on this model, where that was measured."""
        return self._state.calibration

    @property
    def origin(self) -> Origin | None:
        """The folder it was opened from."""
        return self._state.origin

    @property
    def pending(self) -> int:
        """Deferred requests that are not verified."""
        return self._state.pending

    @property
    def standing(self) -> Standing:
        """What was asked of this model since it was trained, and how much of it is believed left."""
        return standing_of(self.receipts)

    def summary(self, since: int = 0) -> Summary:
        """The receipts in a few lines: how many requests were done, refused or had nothing to do, and every warning.

        Args:
            since: Leave out so many of the first, e.g. those that were there before a stream.
        """
        return summarise(self.receipts[since:])

    def to(self, device: torch.device) -> Self:
        """The same run on another device."""
        if isinstance(self._state.whole, GraphView) and device == self._state.base.x.device:
            return self
        data = copy.copy(self.data).to(device)
        return self.replace(
            model=copy.deepcopy(self.model).to(device),
            graph=data,
            prepared=None if self.prepared is None else self.prepared.to(device).on(data, self.loss, self.forward),
        )

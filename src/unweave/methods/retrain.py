"""Retrain from scratch on the remaining graph: the reference for everything else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from unweave.certificate.release import certifiable, release
from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.models.shards import Shards
from unweave.objective.parameters import duplicate, flatten, trained
from unweave.training.adam import Adam, fit, refuse_spoilt, reinitialise, seeded, spoil
from unweave.training.checkpoints import Checkpoint, in_order, train_through
from unweave.training.minimum import polish_objective
from unweave.training.path import is_traced, traced
from unweave.training.recipe import AnyTrainer, Recipe, Training
from unweave.training.trainer import ERASED, Own, as_trainer

__all__ = ["Retrain", "check_schedule", "one_model"]


@register
@dataclass(frozen=True)
class Retrain(Method):
    """The same architecture, recipe and seed, trained from scratch without the removed data.

    Attributes:
        epochs: Epochs of full-batch Adam; those of the recipe, where the method is given by name.
        lr: Its learning rate; likewise.
        forgettable: Polish to a minimum afterwards, as a forgettable model was.
        disturbed: Relative size of a random disturbance of the initial weights. One part in a thousand gives the
            chaos floor: the part of the gap to a retrained model that is the luck of one training path.
        certify: (ε, δ) of a certified model: minimise the perturbed objective from zero, as its training did.
        trainer: Your own training, instead of ``epochs`` and ``lr``, or its import path: called with a copy of the
            model, whose weights have been erased (NaN), and the remaining graph, it draws new weights and trains in
            place. A :class:`~unweave.Trainer` is one, for ``epochs`` where it has no default of its own.
        checkpoints: The states of the first training: new ones are kept at the same epochs, for ``replay``. A training
            of one's own has to be a :class:`~unweave.Trainer` for that.
    """

    name: ClassVar[str] = "retrain"
    bounded: ClassVar[bool] = True
    changes: ClassVar[bool] = True
    epochs: int | None = None
    lr: float | None = None
    forgettable: bool = False
    disturbed: float = 0.0
    certify: tuple[float, float] | None = None
    trainer: AnyTrainer | str | None = None
    checkpoints: Sequence[Checkpoint] = ()

    def __post_init__(self) -> None:
        check_schedule(self.epochs, self.lr)
        own = self._own
        if own is not None and self.epochs is None:  # a trainer may say by itself for how long it trains
            object.__setattr__(self, "epochs", own.until)
        number = isinstance(self.disturbed, int | float) and 0 <= self.disturbed < 1
        if not number or (self.disturbed and self.trainer is not None):
            raise MethodError(f"disturbed must be at least 0 and below 1, without trainer=, got {self.disturbed!r}")
        in_order(self.checkpoints)

    @property
    def _own(self) -> Own | None:
        """One's own training, where there is one."""
        return None if self.trainer is None else as_trainer(self.trainer)

    def check(self) -> None:
        """Refuse where nobody said how to train."""
        if self.trainer is None and self.certify is None and None in (self.epochs, self.lr):
            Training(0.0).require("method 'retrain'")

    def forget(self, problem: Problem) -> Outcome:
        """Train a re-initialised copy of the model."""
        self.check()
        if self.certify is not None and self.trainer is None:
            done = release(certifiable(problem.remaining), None, self.certify, dtype=problem.theta.dtype)
            details = {"steps": done.report.steps}
            return Outcome(done.theta, details=details, certificate=done.certificate, anew=True)
        model = one_model(problem, self.trainer)
        with seeded(problem.seed, problem.meter.device):
            train = self._by_adam if self.trainer is None else self._by_own
            details, states = train(problem, model)
        made = traced(states, problem.remaining) if is_traced(self._kept) else tuple(states)
        buffers = dict(model.named_buffers())
        return Outcome(flatten(model), details=details, buffers=buffers, checkpoints=made, anew=True)

    def _by_adam(self, problem: Problem, model: nn.Module) -> tuple[dict[str, Any], list[Checkpoint]]:
        """Train by the recipe; what to note of it, and the states kept."""
        assert self.epochs is not None
        assert self.lr is not None
        here, made, stops = problem.remaining, list[Checkpoint](), [state.epoch for state in self._kept]
        if stops:
            *made, _ = train_through(Adam(self.lr, here), model, here.data, None, [*stops, self.epochs])
        else:
            reinitialise(model)
            if self.disturbed:
                _disturb(model, self.disturbed)
            fit(model, here, lr=self.lr, epochs=self.epochs)
        details: dict[str, Any] = {"epochs": self.epochs, "lr": self.lr}
        if self.forgettable:
            spent = polish_objective(here.of(model))
            details |= {"polished": True, "evaluations": spent["evaluations"]}
        return details, made

    def _by_own(self, problem: Problem, model: nn.Module) -> tuple[dict[str, Any], list[Checkpoint]]:
        """The same by a training of one's own."""
        own = self._own
        assert own is not None
        data, made, stops = problem.removal.data, list[Checkpoint](), [state.epoch for state in self._kept]
        if stops:
            assert self.epochs is not None
            spoil(model)
            trainer = own.resumable("method 'retrain' with checkpoints")
            *made, _ = train_through(trainer, model, data, None, [*stops, self.epochs])
            refuse_spoilt(model, ERASED)
        else:
            own.train(model, data, self.epochs)
        return {"trainer": own.name}, made

    @property
    def _kept(self) -> tuple[Checkpoint, ...]:
        """Those of the states there were in whose place new ones are kept."""
        own, epochs = self._own, self.epochs
        if self.disturbed or epochs is None or (own is not None and not own.resumes(epochs)):
            return ()
        return tuple(state for state in in_order(self.checkpoints) if state.epoch < epochs)

    def expect(self, problem: Problem) -> Expected:
        """Two passes an epoch, and a polish where there was one; what a trainer of one's own takes is not known."""
        self.check()
        if self.certify is not None and self.trainer is None:
            certifiable(problem.remaining)
            return Expected("minimise the perturbed objective from zero", checkpoints=(), anew=True)
        model = one_model(problem, self.trainer)
        if self.trainer is not None:
            return Expected("train from scratch by trainer=", checkpoints=self._kept, anew=True)
        assert self.epochs is not None
        with seeded(problem.seed, problem.meter.device):
            reinitialise(model)
        passes, polishes = 2 * (self.epochs + (len(self._kept) if is_traced(self._kept) else 0)), self.forgettable
        return Expected(
            f"train from scratch for {self.epochs} epochs" + (", then to a minimum" if polishes else ""),
            passes,
            None if polishes else passes,
            polishes=polishes,
            checkpoints=self._kept,
            anew=True,
        )

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Retrain":
        """Retrain by the recipe of the first training; states of another training than that are not kept."""
        known = {name: getattr(recipe, name) for name in ("epochs", "lr", "forgettable", "certify")}
        given = {**known, **options}
        if any(given[name] != known[name] for name in ("epochs", "lr")):
            given["checkpoints"] = ()
        return cls(**given)


def check_schedule(epochs: object, lr: object) -> None:
    """Epochs and learning rate, where they are given, are positive."""
    whole = epochs is None or (type(epochs) is int and epochs >= 1)
    if not whole or not (lr is None or (isinstance(lr, int | float) and 0 < lr < math.inf)):
        raise MethodError(f"epochs must be a whole number of at least 1 and lr positive, got {epochs!r} and {lr!r}")


def one_model(problem: Problem, trainer: object) -> nn.Module:
    """A copy of the model, which must be one that is trained as a whole, or by a trainer of one's own."""
    model = duplicate(problem.remaining.model)
    if isinstance(model, Shards) and trainer is None:
        raise MethodError("shards are not trained as one model; retrain them by the method that set them up")
    return model


def _disturb(model: nn.Module, size: float) -> None:
    """Disturb the weights without drawing from torch's generator, so that dropout stays what it was."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trained(model).values():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.mul_(1 + size * noise.to(parameter))

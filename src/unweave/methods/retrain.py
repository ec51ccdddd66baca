"""Retrain from scratch on the remaining graph: the reference for everything else."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar, TypeGuard

import torch
from torch import nn
from torch_geometric.data import Data

from unweave._core.tuning import TUNING
from unweave.certificate.release import certifiable, release
from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.models.shards import Shards
from unweave.objective.objective import duplicate, flatten, trained
from unweave.training.adam import Adam, Recipe, fit, refuse_spoilt, reinitialise, seeded, spoil
from unweave.training.checkpoints import Checkpoint, Trainer, in_order, train_through
from unweave.training.path import is_traced, traced
from unweave.training.polish import polish_objective

__all__ = ["Retrain", "one_model"]

BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@register
@dataclass(frozen=True)
class Retrain(Method):
    """The same architecture, recipe and seed, trained from scratch without the removed data.

    Attributes:
        epochs: Epochs of full-batch Adam.
        lr: Its learning rate.
        forgettable: Polish to a minimum afterwards, as a forgettable model was.
        disturbed: Relative size of a random disturbance of the initial weights. One part in a thousand gives the
            chaos floor: the part of the gap to a retrained model that is the luck of one training path.
        certify: (ε, δ) of a certified model: minimise the perturbed objective from zero, as its training did.
        trainer: Your own training, instead of ``epochs`` and ``lr``: called with a copy of the model, whose weights
            have been erased (NaN), and the remaining graph, it draws new weights and trains in place. A
            :class:`~unweave.Trainer` is one, where ``start`` and ``until`` have defaults.
        checkpoints: The states of the first training: new ones are kept at the same epochs, for ``replay``. A training
            of one's own has to be a :class:`~unweave.Trainer` for that.
    """

    name: ClassVar[str] = "retrain"
    retrains: ClassVar[bool] = True
    epochs: int = 100
    lr: float = 0.01
    forgettable: bool = False
    disturbed: float = 0.0
    certify: tuple[float, float] | None = None
    trainer: Callable[[nn.Module, Data], object] | None = None
    checkpoints: Sequence[Checkpoint] = ()

    def __post_init__(self) -> None:
        if not (self.epochs >= 1 and 0 < self.lr < math.inf):
            raise MethodError(f"epochs and lr must be positive, got {self.epochs} and {self.lr}")
        if self.trainer is not None and not callable(self.trainer):
            raise MethodError(f"trainer must be a function of (model, data), got {type(self.trainer).__name__}")
        number = isinstance(self.disturbed, int | float) and 0 <= self.disturbed < 1
        if not number or (self.disturbed and self.trainer is not None):
            raise MethodError(f"disturbed must be at least 0 and below 1, without trainer=, got {self.disturbed!r}")
        in_order(self.checkpoints)

    def forget(self, problem: Problem) -> Outcome:
        """Train a re-initialised copy of the model."""
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
        here, made, stops = problem.remaining, list[Checkpoint](), [state.epoch for state in self._kept]
        if stops:
            trainer = Adam(self.lr, here.decay, here.loss, here.forward, problem.meter)
            *made, _ = train_through(trainer, model, problem.removal.data, None, [*stops, self.epochs])
        else:
            reinitialise(model)
            if self.disturbed:
                _disturb(model, self.disturbed)
            fit(model, here, lr=self.lr, epochs=self.epochs)
        details: dict[str, Any] = {"epochs": self.epochs, "lr": self.lr}
        if self.forgettable:
            spent = polish_objective(here.of(model), evaluations=TUNING.polish.evaluations)
            details |= {"polished": True, "evaluations": spent["evaluations"]}
        return details, made

    def _by_own(self, problem: Problem, model: nn.Module) -> tuple[dict[str, Any], list[Checkpoint]]:
        """The same by a training of one's own."""
        trainer = self.trainer
        assert trainer is not None
        data, made, stops = problem.removal.data, list[Checkpoint](), [state.epoch for state in self._kept]
        spoil(model)
        if stops and _resumes(trainer, self.epochs):
            *made, _ = train_through(trainer, model, data, None, [*stops, self.epochs])
        else:
            trainer(model, data)
        refuse_spoilt(
            model,
            "trainer= is given a model whose weights were erased; it must draw them anew, e.g. by "
            "reset_parameters(), and train that model in place (what it returns is ignored)",
        )
        return {"trainer": getattr(trainer, "__qualname__", type(trainer).__name__)}, made

    @property
    def _kept(self) -> tuple[Checkpoint, ...]:
        """Those of the states there were in whose place new ones are kept."""
        if self.disturbed or (self.trainer is not None and not _resumes(self.trainer, self.epochs)):
            return ()
        return tuple(state for state in in_order(self.checkpoints) if state.epoch < self.epochs)

    def expect(self, problem: Problem) -> Expected:
        """Two passes an epoch, and a polish where there was one; what a trainer of one's own takes is not known."""
        if self.certify is not None and self.trainer is None:
            certifiable(problem.remaining)
            return Expected("minimise the perturbed objective from zero", checkpoints=(), anew=True)
        model = one_model(problem, self.trainer)
        if self.trainer is not None:
            return Expected("train from scratch by trainer=", checkpoints=self._kept, anew=True)
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


def _resumes(trainer: Callable[..., object], epochs: int) -> TypeGuard[Trainer]:
    """Whether one's own training is a :class:`Trainer`, which can stop and go on, by the arguments it takes."""
    try:
        taken = [p for p in signature(trainer).parameters.values() if p.kind in BY_PLACE]
    except (TypeError, ValueError):  # written in another language
        return False
    if len(taken) < 4:
        return False
    start, until = taken[2:4]
    named = (start.name, until.name) == ("start", "until") and until.default == epochs
    return named or until.default is Parameter.empty


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

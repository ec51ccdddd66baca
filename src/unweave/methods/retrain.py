"""Retrain from scratch on the remaining graph: the reference for everything else."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn
from torch_geometric.data import Data

from unweave.errors import ModelError
from unweave.fitting import Recipe, fit, reinitialise, seeded
from unweave.methods.base import Method, Outcome, Problem
from unweave.methods.registry import register
from unweave.objective import flatten

__all__ = ["Retrain"]


@register
@dataclass(frozen=True)
class Retrain(Method):
    """The same architecture, recipe and seed, trained from scratch without the removed data.

    Attributes:
        epochs: Epochs of full-batch Adam.
        lr: Its learning rate.
        trainer: Your own training: called with a copy of the model and the remaining graph, it trains
            the model from scratch in place. ``epochs`` and ``lr`` are then not used.
    """

    name: ClassVar[str] = "retrain"
    epochs: int = 100
    lr: float = 0.01
    trainer: Callable[[nn.Module, Data], None] | None = None

    def forget(self, problem: Problem) -> Outcome:
        """Train a re-initialised copy of the model."""
        model = copy.deepcopy(problem.remaining.model)
        with seeded(problem.seed, problem.meter.device):
            if self.trainer is not None:
                before = flatten(model)
                self.trainer(model, problem.removal.data)
                if bool((flatten(model) == before).all()):
                    raise ModelError("trainer= left the model as it was; it must train the model it is given, in place")
                details: dict[str, Any] = {"trainer": getattr(self.trainer, "__qualname__", repr(self.trainer))}
            else:
                reinitialise(model)
                details = {
                    "epochs": fit(model, problem.remaining, lr=self.lr, epochs=self.epochs),
                    "lr": self.lr,
                }
        return Outcome(flatten(model), details=details, buffers=dict(model.named_buffers()))

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Retrain":
        """Retrain by the recipe of the first training."""
        return cls(**{"epochs": recipe.epochs, "lr": recipe.lr, **options})

"""Fine-tune on the remaining graph: the control that published comparisons leave out."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.objective.parameters import duplicate, flatten
from unweave.training.adam import fit, seeded
from unweave.training.recipe import Recipe

__all__ = ["Finetune"]


@register
@dataclass(frozen=True)
class Finetune(Method):
    """Go on training from θ0 on the remaining graph, for some epochs or for some seconds.

    Attributes:
        epochs: Epochs of full-batch Adam; 10 when neither is given.
        seconds: Stop after so long instead (at least one epoch), to match another method's time.
        lr: Learning rate; that of the recipe, where the method is given by name.
    """

    name: ClassVar[str] = "finetune"
    bounded: ClassVar[bool] = True
    changes: ClassVar[bool] = True
    epochs: int | None = None
    seconds: float | None = None
    lr: float | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.seconds is not None:
            raise MethodError("give epochs or seconds to fine-tune, not both")
        for option in ("epochs", "seconds", "lr"):
            value = getattr(self, option)
            if value is not None and not 0 < value < math.inf:
                raise MethodError(f"{option} must be positive, got {value}")

    def check(self) -> None:
        """Refuse where nobody said how fast to train."""
        if self.lr is None:
            raise MethodError(
                "method 'finetune' goes on training by full-batch Adam, and at which learning rate nobody said; give "
                "recipe=unweave.Recipe(…), if the model was trained by one, or lr="
            )

    def forget(self, problem: Problem) -> Outcome:
        """Train a copy of the model further."""
        self.check()
        assert self.lr is not None
        model = duplicate(problem.remaining.model)
        epochs = self._epochs
        with seeded(problem.seed, problem.meter.device):
            done = fit(model, problem.remaining, lr=self.lr, epochs=epochs, seconds=self.seconds)
        return Outcome(flatten(model), details={"epochs": done, "lr": self.lr}, buffers=dict(model.named_buffers()))

    def expect(self, problem: Problem) -> Expected:
        """Two passes an epoch."""
        self.check()
        if self._epochs is None:
            return Expected(f"go on training for {self.seconds:g} s", 2)
        return Expected(f"go on training for {self._epochs} epochs", 2 * self._epochs, 2 * self._epochs)

    @property
    def _epochs(self) -> int | None:
        return 10 if self.epochs is None and self.seconds is None else self.epochs

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Finetune":
        """Fine-tune at the learning rate of the first training."""
        return cls(**{"lr": recipe.lr, **options})

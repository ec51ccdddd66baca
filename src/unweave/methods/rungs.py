"""The rungs of the ladder: the ways to forget that a model, what is kept of its training and its recipe allow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from unweave.checkpoints import Checkpoint, Trainer, in_order
from unweave.fitting import Recipe
from unweave.methods.base import Method, Outcome, Problem
from unweave.methods.registry import make, parse
from unweave.methods.replay import Replay
from unweave.prepared import Prepared

__all__ = ["RETRAIN", "Kept", "Rung", "rungs_of"]

RETRAIN = "retrain"
FINETUNES = (0.02, 0.05, 0.1, 0.2)
"""Lengths of fine-tuning, as shares of the epochs of training."""

MORE_STEPS = 40
"""Gradients at a minimum beyond the 15 at which ``gif`` stops by itself."""


@dataclass(frozen=True)
class Kept:
    """What there is to forget with.

    Attributes:
        prepared: The prepared state.
        checkpoints: States of training.
        recipe: How the model was trained.
        trainer: One's own training.
    """

    prepared: Prepared | None = None
    checkpoints: Sequence[Checkpoint] = ()
    recipe: Recipe | None = None
    trainer: Trainer | None = None


@dataclass(frozen=True)
class Rung(Method):
    """One way to forget, by its name; whatever it is, the prepared state spares it what was computed before.

    Attributes:
        way: The method.
        prepared: The prepared state.
    """

    name: ClassVar[str] = "rung"
    way: Method
    prepared: Prepared | None = None

    def forget(self, problem: Problem) -> Outcome:
        """Forget that way."""
        return self.way.forget(problem)

    @classmethod
    def of(cls, name: str, kept: Kept) -> "Rung":
        """The rung of a name, e.g. ``replay(share=0.2)``."""
        method, options = parse(name)
        if method == "gif":
            options["prepared"] = kept.prepared
        if method == "replay":
            options["checkpoints"] = kept.checkpoints
        if kept.trainer is None or method not in ("replay", RETRAIN):
            return cls(make(method, options, kept.recipe), kept.prepared)
        given: dict[str, Any] = {"share": 1, "trainer": kept.trainer} | options
        assert kept.recipe is not None
        return cls(Replay.from_recipe(kept.recipe, **given), kept.prepared)


def rungs_of(kept: Kept) -> tuple[str, ...]:
    """Names of all rungs there are, ``retrain`` last; what needs the recipe is there where it is known."""
    found = ["gif"]
    if kept.prepared is not None:  # otherwise its curvature costs the same whatever the steps
        found = ["gif(steps=1)", "gif"]
    if kept.prepared is not None and kept.prepared.at_minimum:
        found.append(f"gif(steps={MORE_STEPS})")
    if kept.recipe is None:
        return tuple(found)
    epochs = kept.recipe.epochs
    found += [f"finetune(epochs={n})" for n in sorted({max(1, round(share * epochs)) for share in FINETUNES})]
    found += [f"replay(share={1 - state.epoch / epochs:.6g})" for state in in_order(kept.checkpoints)[::-1]]
    return (*found, RETRAIN)

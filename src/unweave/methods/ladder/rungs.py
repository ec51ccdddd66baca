"""The rungs of the ladder: the ways to forget that a model, what is kept of its training and its recipe allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.ladder.calibration import LONGEST, Calibration, is_damped
from unweave.methods.problem import Problem
from unweave.methods.registry import make, parse
from unweave.training.adam import Recipe
from unweave.training.checkpoints import Checkpoint, Trainer, in_order
from unweave.training.path import is_traced

__all__ = ["RETRAIN", "Kept", "Rung", "rungs_of"]

RETRAIN = "retrain"


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

    def serving(self, rung: str, known: Calibration | None) -> "Kept":
        """What a rung is given. What calibration raised the damping by is for influence steps alone."""
        if known is None or self.prepared is None or is_damped(rung):
            return self
        return replace(self, prepared=replace(self.prepared, damping=self.prepared.damping / known.factor))


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

    def expect(self, problem: Problem) -> Expected:
        """What that way expects."""
        return self.way.expect(problem)

    @classmethod
    def of(cls, name: str, kept: Kept) -> "Rung":
        """The rung of a name, e.g. ``replay(share=0.2)``."""
        method, options = parse(name)
        if method in ("gif", "retrace"):
            options["prepared"] = kept.prepared
        if method in ("replay", "retrace", RETRAIN):
            options["checkpoints"] = kept.checkpoints
            if kept.trainer is not None:
                options["trainer"] = kept.trainer
        if kept.trainer is not None and method == RETRAIN:
            method, options = "replay", {"share": 1, **options}
        return cls(make(method, options, kept.recipe), kept.prepared)


def rungs_of(kept: Kept) -> tuple[str, ...]:
    """Names of all rungs there are, ``retrain`` last; what needs the recipe is there where it is known."""
    found = ["gif"]
    if kept.prepared is not None:  # otherwise its curvature costs the same whatever the steps
        found = ["gif(steps=1)", "gif"]
    if kept.prepared is not None and kept.prepared.at_minimum:
        found.append(LONGEST)  # beyond the 15 steps at which gif stops by itself
    if kept.recipe is None:
        return tuple(found)
    epochs = kept.recipe.epochs
    found += [
        f"finetune(epochs={n})" for n in sorted({max(1, round(share * epochs)) for share in TUNING.ladder.finetunes})
    ]
    states = [state for state in in_order(kept.checkpoints)[::-1] if state.epoch > 0]
    shares = [1 - state.epoch / epochs for state in states]
    walks = kept.prepared is not None and not kept.prepared.at_minimum and is_traced(states) and len(states) > 1
    found += [f"replay(share={share:.6g})" for share in shares if not walks or share <= TUNING.ladder.replayed]
    if walks:
        ends = [share for share in shares[:-1] if share <= TUNING.ladder.ends] or shares[:1]
        walk = f"retrace(share={shares[-1]:.6g}, end="
        found += [f"{walk}{shares[0]:.6g}, steps={TUNING.ladder.few})"] * (len(states) > TUNING.ladder.few + 1)
        found += [f"{walk}{end:.6g})" for end in ends]
    return (*found, RETRAIN)

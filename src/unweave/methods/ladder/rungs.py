"""The rungs there are: what a model, what is kept of its training and its recipe allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.ladder.calibration import Calibration, longest
from unweave.methods.ladder.rung import GIF, ONE_STEP, RETRAIN, Rung
from unweave.methods.problem import Problem
from unweave.methods.registry import make
from unweave.training.checkpoints import Checkpoint, in_order
from unweave.training.path import is_traced
from unweave.training.recipe import AnyTrainer, Recipe
from unweave.training.trainer import Own, as_trainer

__all__ = ["Kept", "Way", "rungs_of"]

POSING, POSING_PREPARED = 7, 2
"""Passes that it takes to pose a problem and to look at its answer, without a prepared state and with one."""


@dataclass(frozen=True)
class Way(Method):
    """A rung as a method; whatever it is, the prepared state spares it what was computed before.

    Attributes:
        method: What it does.
        prepared: The prepared state.
    """

    name: ClassVar[str] = "rung"
    bounded: ClassVar[bool] = True  # whoever chooses it looks at the method
    method: Method
    prepared: Prepared | None = None

    def forget(self, problem: Problem) -> Outcome:
        """Forget that way."""
        return self.method.forget(problem)

    def expect(self, problem: Problem) -> Expected:
        """What that way expects."""
        return self.method.expect(problem)


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
    trainer: AnyTrainer | str | None = None

    @property
    def own(self) -> Own | None:
        """One's own training, by the arguments it takes."""
        return None if self.trainer is None else as_trainer(self.trainer)

    @property
    def at_minimum(self) -> bool:
        """Whether training ended at a minimum."""
        if self.prepared is not None:
            return self.prepared.at_minimum
        return self.recipe is not None and self.recipe.forgettable

    @property
    def promised(self) -> float:
        """The gap closed that a restart may promise where nothing was measured: no more than another seed closes."""
        if not self.at_minimum:
            return 0.0
        known = None if self.prepared is None else self.prepared.agreement
        return 1.0 if known is None else known

    def way(self, rung: Rung, known: Calibration | None = None) -> Way:
        """A rung as a method. What calibration raised the damping by is for influence steps alone."""
        ready = self.prepared
        if ready is not None and known is not None and not rung.damped:
            ready = replace(ready, damping=ready.damping / known.factor)
        method, options = rung.method, rung.given
        if method in ("gif", "retrace"):
            options["prepared"] = ready
        if method in ("replay", "retrace", "retrain"):
            options["checkpoints"] = self.checkpoints
            if self.trainer is not None:
                options["trainer"] = self.trainer
        if self.own is not None and self.own.states and method == "retrain":
            method, options = "replay", {"share": 1, **options}
        return Way(make(method, options, self.recipe), ready)

    def cost(self, rung: Rung) -> float | None:
        """What a rung costs by the passes it takes as a rule, as a share of a retraining; ``None`` without a recipe."""
        if self.recipe is None:
            return None
        if rung == RETRAIN:
            return 1.0
        passes = self.way(rung).method.passes
        if passes is None:
            return None
        whole = 2 * (self.recipe.epochs + (TUNING.polish.usual if self.recipe.forgettable else 0))
        return float((POSING if self.prepared is None else POSING_PREPARED) + passes) / whole


def rungs_of(kept: Kept) -> tuple[Rung, ...]:
    """All rungs there are, ``retrain`` last; what needs the recipe is there where it is known."""
    found = [GIF]
    if kept.prepared is not None:  # otherwise its curvature costs the same whatever the steps
        found = [ONE_STEP, GIF]
    if kept.prepared is not None and kept.prepared.at_minimum:
        found.append(longest())  # gif stops where more do not pay
    own, ladder = kept.own, TUNING.ladder
    if kept.recipe is None:
        return (*found, RETRAIN) if own is not None and own.whole else tuple(found)
    epochs = kept.recipe.epochs
    lengths = {max(1, round(share * epochs)) for share in ladder.finetunes}
    found += [Rung.of("finetune", epochs=length) for length in sorted(lengths)]
    states = [state for state in in_order(kept.checkpoints)[::-1] if state.epoch > 0 and (own is None or own.states)]
    shares = [1 - state.epoch / epochs for state in states]
    walks = kept.prepared is not None and not kept.prepared.at_minimum and is_traced(states) and len(states) > 1
    found += [Rung.of("replay", share=share) for share in shares if not walks or share <= ladder.replayed]
    if walks:
        if len(states) > ladder.few + 1:
            found.append(Rung.of("retrace", share=shares[-1], end=shares[0], steps=ladder.few))
        ends = [share for share in shares[:-1] if share <= ladder.ends] or shares[:1]
        found += [Rung.of("retrace", share=shares[-1], end=end) for end in ends]
    return (*found, RETRAIN)

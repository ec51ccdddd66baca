"""Forget as well as a budget allows, or as cheaply as a wish allows: from an influence step up to retraining."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared, stationarity
from unweave.errors import MethodError, NoProgressError, SolverError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.ladder.calibration import Calibration
from unweave.methods.ladder.choice import Choice, choices_of, plan_of
from unweave.methods.ladder.debt import Standing, age_of, standing_of
from unweave.methods.ladder.rung import RETRAIN
from unweave.methods.ladder.rungs import Kept
from unweave.methods.ladder.size import Shape, shape_of
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.objective.objective import Point
from unweave.objective.running_stats import running
from unweave.receipt.receipt import Receipt
from unweave.training.checkpoints import Checkpoint, in_order
from unweave.training.recipe import AnyTrainer, Recipe

__all__ = ["Auto", "read_share"]


@register
@dataclass(frozen=True)
class Auto(Method):
    """Pick a rung of the ladder, and climb where it does not do.

    The rungs are ``gif`` with one step, ``gif``, fine-tuning, ``replay`` from later to earlier checkpoints, ``retrace``
    along the path of training, and ``retrain``: those that there is something for. With a budget the
    best one within it is used, by measured cost; with a wish the cheapest that is believed to reach it, then the next
    where it failed or where its own evidence speaks against it. What was tried and given up counts in the cost. What a
    rung closes and costs is taken from the calibration; without one, costs are counted in passes, how near the answer
    comes is not known, and a wish leads to ``gif`` at a minimum that other seeds agree on as well as is wished, and to
    retraining elsewhere. At a minimum a wish is fulfilled as well where less is left than two minimisations of one
    objective differ by.

    Attributes:
        budget: At most this share of a retraining, as ``0.05`` or ``"5%"``. A fifth where neither is given.
        at_least: The gap closed that is wanted, for this request and for all since training together.
        calibration: What was measured on this model (:meth:`unweave.Run.calibrate`).
        prepared: What :func:`unweave.prepare` computed.
        checkpoints: States of training that can be replayed.
        receipts: Those of the requests that this model has forgotten already, oldest first.
        recipe: How the model was trained.
        trainer: Your own training, instead of the recipe's; only a :class:`~unweave.Trainer` serves to replay.
    """

    name: ClassVar[str] = "auto"
    rules: ClassVar[tuple[str, ...]] = ("ladder", "minimum", "damping", "step")
    budget: float | str | None = None
    at_least: float | str | None = None
    calibration: Calibration | None = None
    prepared: Prepared | None = None
    checkpoints: Sequence[Checkpoint] = ()
    receipts: Sequence[Receipt] = ()
    recipe: Recipe | None = None
    trainer: AnyTrainer | str | None = None

    def __post_init__(self) -> None:
        for option in ("budget", "at_least"):
            value = getattr(self, option)
            if value is not None:
                object.__setattr__(self, option, read_share(value, option))
        for option, kind in (("calibration", Calibration), ("prepared", Prepared), ("recipe", Recipe)):
            value = getattr(self, option)
            if value is not None and not isinstance(value, kind):
                raise MethodError(f"{option} must be an unweave {kind.__name__}, got {type(value).__name__}")
        if self.recipe is not None and self.recipe.certify is not None:
            raise MethodError("a certified model forgets by method='certified', which climbs to retraining by itself")
        own = self._kept.own
        if own is not None and not own.whole and self.recipe is None:
            raise MethodError("trainer= has to be told when to stop; give recipe= with the epochs of the training")
        in_order(self.checkpoints)
        if self.calibration is not None and not self.calibration.told:
            object.__setattr__(self, "calibration", None)  # no deletion had a gap: nothing was learnt

    def forget(self, problem: Problem) -> Outcome:
        """Go through the plan until a rung does."""
        before, shape = standing_of(self.receipts), _shape(problem)
        plan, short = self._plan(before, shape)
        plan += self._last_resort(before, shape, plan)
        tried: list[dict[str, Any]] = []
        limit, spent = None if self.budget is None else float(self.budget), 0.0
        while plan:
            choice, *plan = plan
            passes, start = problem.meter.passes, problem.meter.now()
            outcome, why = self._attempt(choice, problem)
            doubt, evidence = ("", {}) if outcome is None else self._doubt(choice, problem, outcome)
            spent += choice.cost or 0.0
            plan = [c for c in plan if limit is None or c.cost is None or spent + c.cost <= limit]
            if outcome is not None and (no_step := self._no_step(outcome)):
                plan = [c for c in plan if c.rung.method != "gif"]  # others of the same kind are no better
            if outcome is not None and plan:
                why = why or (no_step if self.at_least is None else doubt)
            tried.append(
                {
                    "rung": str(choice.rung),
                    "passes": round(problem.meter.passes - passes),
                    "seconds": problem.meter.now() - start,
                    **({"given_up": why} if why else {}),
                }
            )
            if outcome is not None and not why:
                facts = self._facts(choice, tried, short, evidence, doubt, before)
                return _told(outcome, choice, facts)
        raise NoProgressError(
            "no rung gave an answer: "
            + "; ".join(f"{t['rung']}: {t['given_up']}" for t in tried)
            + ("" if limit is None else f". A budget above {limit:.1%} leaves room for more; retraining is 100%")
        )

    def expect(self, problem: Problem) -> Expected:
        """What the first rung that would be tried expects; where that fails, the next one costs more."""
        plan, _ = self._plan(standing_of(self.receipts), _shape(problem))
        first, others = plan[0], len(plan) > 1 or self._last_resort(standing_of(self.receipts), _shape(problem), plan)
        known = self._kept.way(first.rung, self.calibration).expect(problem)
        return replace(known, how=f"{first.rung}: {known.how}", most=None if others else known.most)

    def first(self, shape: Shape) -> Choice:
        """The rung that is tried first for a request of some kind and size."""
        return self._plan(standing_of(self.receipts), shape)[0][0]

    def _plan(self, before: Standing, shape: Shape) -> tuple[list[Choice], bool]:
        """The rungs in the order in which to try them, and whether they are known to fall short of the wish."""
        budget, wish = (None if value is None else float(value) for value in (self.budget, self.at_least))
        choices = choices_of(self._kept, self.calibration, before, shape)
        return plan_of(choices, self._kept, measured=self.calibration is not None, budget=budget, wish=wish)

    def _last_resort(self, before: Standing, shape: Shape, plan: list[Choice]) -> list[Choice]:
        """Retraining, where nothing was measured, nothing limits it, and a step may turn out to be none at all."""
        if self.calibration is not None or self.budget is not None or self._kept.at_minimum:
            return []
        there = {choice.rung for choice in plan}
        return [c for c in choices_of(self._kept, None, before, shape) if c.rung == RETRAIN and c.rung not in there]

    @property
    def _kept(self) -> Kept:
        return Kept(self.prepared, self.checkpoints, self.recipe, self.trainer)

    def _attempt(self, choice: Choice, problem: Problem) -> tuple[Outcome | None, str]:
        """What a rung gives, or why it gives nothing."""
        try:
            outcome = self._kept.way(choice.rung, self.calibration).forget(problem)
        except SolverError as error:
            return None, str(error)
        if not bool(torch.isfinite(outcome.theta).all()):
            return None, "its parameters are not finite"
        if outcome.point is None and (outcome.buffers is None or not running(problem.original.model)):
            outcome = replace(outcome, point=problem.remaining.at(outcome.theta))  # the receipt needs it as well
        return outcome, ""

    def _doubt(self, choice: Choice, problem: Problem, outcome: Outcome) -> tuple[str, dict[str, float]]:
        """What the answer's own gradient says against it, if anything, and the evidence."""
        point, evidence = outcome.point, dict[str, float]()
        if point is None or choice.rung == RETRAIN:
            return "", evidence
        size = float(problem.forgotten_gradient.norm())
        if size > 0:
            evidence["residual"] = float(problem.local().gradient(point).norm()) / size
        if self._kept.at_minimum and self.prepared is not None:
            evidence["stationarity"] = self._stationarity(point)
        # At a minimum a small request pulls less than what training left, so that its own residual tells nothing.
        known = None if self._kept.at_minimum else self.calibration
        highest = None if known is None else known.highest_residual(choice.rung)
        if no_step := self._no_step(outcome):
            return no_step, evidence
        if self.calibration is None and "ended" in outcome.details:
            return f"it ended {outcome.details['ended']}", evidence
        if evidence.get("stationarity", 0.0) > TUNING.minimum.gain:
            still = f"its objective would still fall by {evidence['stationarity']:.2%}"
            return f"{still} (at a minimum: {TUNING.minimum.gain:.1%})", evidence
        if highest is not None and evidence.get("residual", 0.0) > highest:
            return (
                f"it left {evidence['residual']:.2f} of the local gradient, more than in any simulated deletion "
                f"({highest:.2f})",
                evidence,
            )
        return "", evidence

    def _no_step(self, outcome: Outcome) -> str:
        """Why a step, whatever was wished for, may well be worse than none."""
        if outcome.details.get("too_long"):
            return "its step cannot be believed however short"
        if self.calibration is None and outcome.details.get("restless"):
            return "training had not come to rest, and a step from there may lead away from a retrained model"
        return ""

    def _stationarity(self, point: Point) -> float:
        assert self.prepared is not None
        curvature = self.prepared.to(point.theta.device).curvature
        return stationarity(curvature, point.gradient(), point.value)

    def _facts(
        self,
        choice: Choice,
        tried: list[dict[str, Any]],
        short: bool,
        evidence: dict[str, float],
        doubt: str,
        before: Standing,
    ) -> dict[str, Any]:
        """All that a verdict rests on."""
        known = self.calibration
        return {
            "rung": str(choice.rung),
            "asked": {"budget": self.budget, "at_least": self.at_least},
            "short": short,
            "tried": tried,
            "expected_cost": choice.cost,
            "estimate": None if choice.estimate is None else asdict(choice.estimate),
            "requests_before": before.requests,
            "standing": choice.standing.to_dict(),
            "floor": known.floor if known is not None and choice.below else None,
            "evidence": evidence,
            "doubt": doubt or None,
            "prepared": self.prepared is not None,
            "calibration": known
            and {
                "deletions": len(known.told),
                **age_of(known, self.receipts),
                "retrain_passes": known.retrain_passes,
                "held_back": known.held_back,
                "largest": max(d.shape.size for d in known.told),
            },
        }

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Auto":
        """Know how the model was trained."""
        return cls(**{"recipe": recipe, **options})


def read_share(value: object, what: str = "budget") -> float:
    """A share above 0 and at most 1, as a number or as text, ``0.05`` or ``5%``."""
    try:
        share = float(value[:-1]) / 100 if isinstance(value, str) and value.endswith("%") else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(value, bool) or not 0 < share <= 1:
        raise MethodError(f"{what} must be a share above 0 and at most 1, as 0.05 or 5%, got {value!r}")
    return share


def _shape(problem: Problem) -> Shape:
    return shape_of(
        problem.removal.request,
        stored_edges=problem.original.stored_edges,
        undirected=problem.removal.undirected,
        training_nodes=problem.original.nodes.numel(),
    )


def _told(outcome: Outcome, choice: Choice, facts: dict[str, Any]) -> Outcome:
    """The outcome of a rung as that of the ladder."""
    nearness = outcome.nearness
    if choice.rung == RETRAIN:
        nearness = "this is the retrained model itself"
    elif choice.estimate is not None:
        nearness = f"believed to close {choice.standing.estimate} of the gap to a retrained model; see the verdict"
    return replace(outcome, details={"rung": str(choice.rung), **outcome.details}, nearness=nearness, ladder=facts)

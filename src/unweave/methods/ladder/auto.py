"""Forget as well as a budget allows, or as cheaply as a wish allows: from an influence step up to retraining."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared, stationarity
from unweave.errors import MethodError, NoProgressError, SolverError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.ladder.calibration import LONGEST, Calibration
from unweave.methods.ladder.debt import Standing, age_of, standing_of
from unweave.methods.ladder.rungs import RETRAIN, Kept, Rung, rungs_of
from unweave.methods.ladder.size import Shape, shape_of
from unweave.methods.problem import Problem
from unweave.methods.registry import parse, register
from unweave.objective.objective import Point
from unweave.objective.running_stats import running
from unweave.receipt.estimate import Estimate
from unweave.receipt.receipt import Receipt
from unweave.training.checkpoints import Checkpoint, in_order, resume_at
from unweave.training.path import is_traced
from unweave.training.recipe import AnyTrainer, Recipe

__all__ = ["Auto", "Choice", "read_share"]

TWENTIETH = 1.645
"""Standard deviations beyond which a twentieth of a normal distribution lies."""

FRESH_CURVATURE = 75
"""Passes of ``gif`` without a prepared state."""


@dataclass(frozen=True)
class Choice:
    """A rung that could be used.

    Attributes:
        rung: Its name.
        cost: What it costs, as a share of a retraining; ``None`` where that is not known.
        estimate: What it is believed to close for this request, where that was measured.
        standing: Where the model then stands.
        anew: Whether its answer is that of one request for all since training, whatever was done about those before.
        below: Whether what is then left is expected to be less than minimisations of one objective differ by.
    """

    rung: str
    cost: float | None
    estimate: Estimate | None
    standing: Standing
    anew: bool = False
    below: bool = False

    @property
    def closed(self) -> float:
        """What it is believed to close of all that was asked since training."""
        return self.standing.estimate.closed

    @property
    def prudent(self) -> float:
        """The mean that an interval of that width stands for: of two rungs that promise alike, the surer one.

        Errors are alike on the logarithm of what is left. Were they normal, with a twentieth of them beyond the worse
        end, the mean of what is left would be exp(σ²/2) times what is expected.
        """
        low, left = self.standing.estimate.low, max(1 - self.closed, TUNING.ladder.smallest)
        sigma = 0.0 if low is None else math.log(max(1 - low, left) / left) / TWENTIETH
        return 1 - left * math.exp(min(sigma**2 / 2, math.log(TUNING.ladder.largest)))

    def fulfils(self, wish: float) -> bool:
        """Whether a wish is believed to be fulfilled, for all together, and for this request where it stands alone."""
        shares = [self.closed, *([] if self.anew or self.estimate is None else [self.estimate.closed])]
        return self.below or min(shares) >= wish


@register
@dataclass(frozen=True)
class Auto(Method):
    """Pick a rung of the ladder, and climb where it does not do.

    The rungs are ``gif`` with one step, ``gif``, fine-tuning, ``replay`` from later to earlier checkpoints, ``retrace``
    along the path of training, and ``retrain``: those that there is something for. With a budget the
    best one within it is used, by measured cost; with a wish the cheapest that is believed to reach it, then the next
    where it failed or where its own evidence speaks against it. What was tried and given up counts in the cost. What a
    rung closes and costs is taken from the calibration; without one, costs are counted in passes, how near the answer
    comes is not known, and a wish leads to ``gif`` at a minimum and to retraining elsewhere. At a minimum a wish is
    fulfilled as well where less is left than two minimisations of one objective differ by.

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
        choices = self._choices(before, shape)
        plan, short = self._plan(choices)
        tried: list[dict[str, Any]] = []
        limit, spent = self._limit, 0.0
        for number, choice in enumerate(plan):
            if tried and limit is not None and choice.cost is not None and spent + choice.cost > limit:
                continue
            passes, start = problem.meter.passes, problem.meter.now()
            outcome, why = self._attempt(choice, problem)
            doubt, evidence = ("", {}) if outcome is None else self._doubt(choice, problem, outcome)
            if outcome is not None and self.at_least is not None and number + 1 < len(plan):
                why = why or doubt
            tried.append(
                {
                    "rung": choice.rung,
                    "passes": round(problem.meter.passes - passes),
                    "seconds": problem.meter.now() - start,
                    **({"given_up": why} if why else {}),
                }
            )
            spent += choice.cost or 0.0
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
        plan, _ = self._plan(self._choices(standing_of(self.receipts), _shape(problem)))
        first = plan[0]
        known = Rung.of(first.rung, self._kept.serving(first.rung, self.calibration)).expect(problem)
        return replace(known, how=f"{first.rung}: {known.how}", most=None if len(plan) > 1 else known.most)

    def first(self, shape: Shape) -> Choice:
        """The rung that is tried first for a request of some kind and size."""
        return self._plan(self._choices(standing_of(self.receipts), shape))[0][0]

    @property
    def _limit(self) -> float | None:
        return None if self.budget is None else float(self.budget)

    @property
    def _kept(self) -> Kept:
        return Kept(self.prepared, self.checkpoints, self.recipe, self.trainer)

    @property
    def _at_minimum(self) -> bool:
        if self.prepared is not None:
            return self.prepared.at_minimum
        return self.recipe is not None and self.recipe.forgettable

    def _attempt(self, choice: Choice, problem: Problem) -> tuple[Outcome | None, str]:
        """What a rung gives, or why it gives nothing."""
        try:
            outcome = Rung.of(choice.rung, self._kept.serving(choice.rung, self.calibration)).forget(problem)
        except SolverError as error:
            return None, str(error)
        if not bool(torch.isfinite(outcome.theta).all()):
            return None, "its parameters are not finite"
        if outcome.point is None and not running(problem.original.model):
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
        if self._at_minimum and self.prepared is not None:
            evidence["stationarity"] = self._stationarity(point)
        # At a minimum a small request pulls less than what training left, so that its own residual tells nothing.
        known = None if self._at_minimum else self.calibration
        highest = None if known is None else known.highest_residual(choice.rung)
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

    def _stationarity(self, point: Point) -> float:
        assert self.prepared is not None
        curvature = self.prepared.to(point.theta.device).curvature
        return stationarity(curvature, point.gradient(), point.value)

    def _choices(self, before: Standing, shape: Shape) -> list[Choice]:
        """All rungs there are, cheapest first."""
        known, found = self.calibration, []
        for rung in rungs_of(self._kept):
            if known is not None and rung != RETRAIN and rung not in known.rungs:
                continue
            if known is None and rung.startswith("finetune"):
                continue  # it may well do harm, and only a measurement tells
            cost = self._passes(rung) if known is None else known.cost(rung, shape)
            restarts = rung.startswith(("replay", "retrace")) or (rung.startswith("gif") and self._at_minimum)
            estimate = None if known is None else known.estimate(rung, shape)
            if rung == RETRAIN:
                estimate, standing = Estimate(1.0, 1.0, 1.0), Standing()
            elif restarts:
                together = Shape.total([before.shape, shape])
                standing = before.anew(shape, None if known is None else known.estimate(rung, together))
            else:
                standing = before.after(shape, estimate)
            below = known is not None and _below(known, standing)
            found.append(Choice(rung, cost, estimate, standing, restarts, below))
        if not found:
            raise MethodError("the calibration has measured none of the rungs that there are; calibrate anew")
        return sorted(found, key=lambda choice: math.inf if choice.cost is None else choice.cost)

    def _passes(self, rung: str) -> float | None:
        """What a rung costs by the passes that are known beforehand; ``None`` without a recipe to compare with."""
        if rung == RETRAIN:
            return 1.0
        if self.recipe is None:
            return None
        epochs = self.recipe.epochs
        whole = 2 * (epochs + (TUNING.polish.evaluations if self.recipe.forgettable else 0))
        method, options = parse(rung)
        rest = 2 if self.prepared is not None else 7
        if method in ("replay", "retrace"):
            again = options["end" if method == "retrace" else "share"] * epochs
            again += TUNING.polish.evaluations if self.recipe.forgettable else 0
            steps = self._gradients(method, options, epochs)
            return float((rest + 2 * (again + steps)) / whole)
        if self.prepared is None:
            return FRESH_CURVATURE / whole
        return float(
            (rest + 2 * options.get("steps", TUNING.step.steps if self._at_minimum else TUNING.step.damped_steps))
            / whole
        )

    def _gradients(self, method: str, options: dict[str, Any], epochs: int) -> int:
        """Gradients that a replay or a walk takes at checkpoints."""
        behind = [c.epoch for c in self.checkpoints if c.epoch >= resume_at(options["share"], epochs)]
        if method == "replay":
            return len(behind) if is_traced(self.checkpoints) else 0
        found: int = sum(epoch < resume_at(options["end"], epochs) for epoch in behind)
        return min(found, int(options.get("steps", found)))

    def _plan(self, choices: list[Choice]) -> tuple[list[Choice], bool]:
        """The rungs in the order in which to try them, and whether they are known to fall short of the wish."""
        limit = self._limit
        if limit is not None and any(choice.cost is None for choice in choices):
            raise MethodError("what a budget allows is not known without the recipe= of the training; give it")
        within = [c for c in choices if limit is None or (c.cost is not None and c.cost <= limit)]
        if not within:
            first = choices[0]
            raise MethodError(
                f"a budget of {limit:.1%} of a retraining is too small: the cheapest rung, {first.rung}, costs "
                f"{first.cost:.1%}" + (_advice(self.prepared, self.checkpoints))
            )
        if self.at_least is not None:
            enough = self._enough(within, float(self.at_least))
            if enough:
                return enough, False
            if limit is None:
                raise MethodError(
                    f"no rung is believed to close {float(self.at_least):.2f} of the gap, and how to retrain is not "
                    "known; give the recipe= of the training (with your own trainer=, where it was not ours)"
                )
        best = self._best(within)
        return best, self.at_least is not None

    def _enough(self, within: list[Choice], wish: float) -> list[Choice]:
        """The rungs that are believed to fulfil a wish, cheapest first."""
        if self.calibration is not None:
            return [choice for choice in within if choice.fulfils(wish)]
        sure = ("gif", LONGEST) if self._at_minimum else ()
        return [choice for choice in within if choice.rung in (*sure, RETRAIN)]

    def _best(self, within: list[Choice]) -> list[Choice]:
        """The rungs by what they are believed to close; without a calibration by what is known of other models."""
        affordable = within
        if self.budget is None:
            affordable = [c for c in within if c.cost is None or c.cost <= TUNING.ladder.usual_budget] or within[:1]
        if self.calibration is None:
            return sorted(affordable, key=self._preference)
        highest = max(choice.prudent for choice in affordable)
        alike = [choice for choice in affordable if choice.prudent >= highest - TUNING.ladder.alike]  # cheapest first
        best = [*alike, *sorted((c for c in affordable if c not in alike), key=lambda c: -c.prudent)]
        if best[0].estimate is not None and best[0].estimate.closed <= 0:
            better = [c for c in self._worth(within) if c not in affordable] or self._worth(within)
            raise MethodError(
                "within the budget no rung is believed to do better than leaving the parameters as they are (the best "
                f"one, {best[0].rung}, closes {best[0].estimate})"
                + (f"; {better[0].rung} costs {better[0].cost:.1%}" if better else "; raise it, or retrain")
            )
        return [c for c in best if c.estimate is None or c.estimate.closed > 0]

    @staticmethod
    def _worth(choices: list[Choice]) -> list[Choice]:
        return [c for c in choices if c.estimate is not None and c.estimate.closed > 0]

    def _preference(self, choice: Choice) -> tuple[int, float, bool]:
        method, options = parse(choice.rung)
        if method == "retrace":
            return 0, -options["end"], "steps" in options
        if method == "replay" and not self._at_minimum:
            return (1 if options["share"] >= TUNING.ladder.worth_replaying else 3), -options["share"], False
        order = {"gif": 2, LONGEST: 4, "gif(steps=1)": 5}
        return order.get(choice.rung, 6), 0.0, False

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
            "rung": choice.rung,
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


def _below(known: Calibration, standing: Standing) -> bool:
    """Whether what is left is expected to be below the floor."""
    size = standing.shape.size
    return size > 0 and standing.left / size * known.gap(standing.shape) <= known.floor


def _advice(prepared: Prepared | None, checkpoints: Sequence[Checkpoint]) -> str:
    if prepared is None:
        return "; prepare the model once (unweave prepare), which makes influence steps cheap"
    return "" if checkpoints else "; training with checkpoints adds cheaper rungs of replay"


def _told(outcome: Outcome, choice: Choice, facts: dict[str, Any]) -> Outcome:
    """The outcome of a rung as that of the ladder."""
    nearness = outcome.nearness
    if choice.rung == RETRAIN:
        nearness = "this is the retrained model itself"
    elif choice.estimate is not None:
        nearness = f"believed to close {choice.standing.estimate} of the gap to a retrained model; see the verdict"
    return replace(outcome, details={"rung": choice.rung, **outcome.details}, nearness=nearness, ladder=facts)

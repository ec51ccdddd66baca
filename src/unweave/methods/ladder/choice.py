"""What could be done about a request, at what cost and how near: the choices, and the order in which to try them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unweave._core.tuning import TUNING
from unweave.errors import MethodError
from unweave.methods.ladder.calibration import Calibration, longest
from unweave.methods.ladder.debt import Standing
from unweave.methods.ladder.rung import GIF, ONE_STEP, RETRAIN, Rung
from unweave.methods.ladder.rungs import Kept, rungs_of
from unweave.methods.ladder.size import Shape
from unweave.receipt.estimate import Estimate

__all__ = ["Choice", "choices_of", "plan_of"]

TWENTIETH = 1.645
"""Standard deviations beyond which a twentieth of a normal distribution lies."""


@dataclass(frozen=True)
class Choice:
    """A rung that could be used.

    Attributes:
        rung: Which.
        cost: What it costs, as a share of a retraining; ``None`` where that is not known.
        estimate: What it is believed to close for this request, where that was measured.
        standing: Where the model then stands.
        anew: Whether its answer is that of one request for all since training, whatever was done about those before.
        below: Whether what is then left is expected to be less than minimisations of one objective differ by.
    """

    rung: Rung
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


def choices_of(kept: Kept, known: Calibration | None, before: Standing, shape: Shape) -> list[Choice]:
    """All rungs there are for a request, cheapest first.

    Args:
        kept: What there is to forget with.
        known: What was measured on this model.
        before: Where the model stands.
        shape: What the request takes.
    """
    found = []
    for rung in rungs_of(kept):
        if known is not None and rung != RETRAIN and rung not in known.rungs:
            continue
        if known is None and rung.method == "finetune":
            continue  # it may well do harm, and only a measurement tells
        cost = kept.cost(rung) if known is None else known.cost(rung, shape)
        restarts = rung.method in ("replay", "retrace") or (rung.method == "gif" and kept.at_minimum)
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


def _below(known: Calibration, standing: Standing) -> bool:
    """Whether what is left is expected to be below the floor."""
    size = standing.shape.size
    return size > 0 and standing.left / size * known.gap(standing.shape) <= known.floor


def plan_of(
    choices: Sequence[Choice], kept: Kept, *, measured: bool, budget: float | None, wish: float | None
) -> tuple[list[Choice], bool]:
    """The rungs in the order in which to try them, and whether they are known to fall short of the wish.

    Args:
        choices: All there are, cheapest first.
        kept: What there is to forget with.
        measured: Whether there is a calibration.
        budget: At most this share of a retraining.
        wish: At least this share of the gap.
    """
    if budget is not None and any(choice.cost is None for choice in choices):
        raise MethodError(
            "what a budget allows is not known without the recipe= of the training; give it, or calibrate the run "
            "(run.calibrate(), unweave calibrate), which retrains with your own trainer= too and tells what that costs"
        )
    within = [c for c in choices if budget is None or (c.cost is not None and c.cost <= budget)]
    if not within:
        first = choices[0]
        raise MethodError(
            f"a budget of {budget:.1%} of a retraining is too small: the cheapest rung, {first.rung}, costs "
            f"{first.cost:.1%}{_advice(kept)}"
        )
    if wish is not None:
        enough = _enough(within, wish, measured=measured, promised=kept.promised)
        if enough:
            return enough, False
        if budget is None:
            raise MethodError(
                f"no rung is believed to close {wish:.2f} of the gap, and how to retrain is not known; give the "
                "recipe= of the training (with your own trainer=, where it was not ours)"
            )
    affordable = within
    if budget is None:
        affordable = [c for c in within if c.cost is None or c.cost <= TUNING.ladder.usual_budget] or within[:1]
    if measured:
        return _best(within, affordable), wish is not None
    return sorted(affordable, key=lambda choice: _preference(choice.rung, kept.at_minimum)), wish is not None


def _enough(within: list[Choice], wish: float, *, measured: bool, promised: float) -> list[Choice]:
    """The rungs that are believed to fulfil a wish, cheapest first."""
    if measured:
        return [choice for choice in within if choice.fulfils(wish)]
    sure = (GIF, longest(), RETRAIN) if wish <= promised else (RETRAIN,)
    return [choice for choice in within if choice.rung in sure]


def _best(within: list[Choice], affordable: list[Choice]) -> list[Choice]:
    """The rungs by what they are believed to close."""
    highest = max(choice.prudent for choice in affordable)
    alike = [choice for choice in affordable if choice.prudent >= highest - TUNING.ladder.alike]  # cheapest first
    best = [*alike, *sorted((c for c in affordable if c not in alike), key=lambda c: -c.prudent)]
    if best[0].estimate is not None and best[0].estimate.closed <= 0:
        worth = [c for c in within if c.estimate is not None and c.estimate.closed > 0]
        better = [c for c in worth if c not in affordable] or worth
        raise MethodError(
            "within the budget no rung is believed to do better than leaving the parameters as they are (the best "
            f"one, {best[0].rung}, closes {best[0].estimate})"
            + (f"; {better[0].rung} costs {better[0].cost:.1%}" if better else "; raise it, or retrain")
        )
    return [c for c in best if c.estimate is None or c.estimate.closed > 0]


def _preference(rung: Rung, at_minimum: bool) -> tuple[int, float, bool]:
    """Where nothing was measured: an order by what is known of other models."""
    if rung.method == "retrace":
        return 0, -rung["end"], "steps" in rung
    if rung.method == "replay" and not at_minimum:
        return (1 if rung["share"] >= TUNING.ladder.worth_replaying else 3), -rung["share"], False
    return {GIF: 2, longest(): 4, ONE_STEP: 5}.get(rung, 6), 0.0, False


def _advice(kept: Kept) -> str:
    if kept.prepared is None:
        return "; prepare the model once (unweave prepare), which makes influence steps cheap"
    return "" if kept.checkpoints else "; training with checkpoints adds cheaper rungs of replay"

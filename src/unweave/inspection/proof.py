"""Proof by removal: items are really forgotten, each and together, and what was predicted stands beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unweave.errors import RequestError
from unweave.graph.removal import remove
from unweave.inspection.scores import Kind, Scored, Scores
from unweave.methods import Method
from unweave.request import Request
from unweave.training.recipe import Recipe
from unweave.unlearning import unlearn

__all__ = ["Confirmation", "Confirmed", "Rehearsed", "carried_out", "confirm", "rehearse"]

LEVEL = 0.8
"""Probability that the interval of a rehearsal holds what forgetting another item like those does."""

FEWEST = 8
"""Removals, at least, that an interval is made of: with five at this level there is none."""

AGREES = 0.8
"""Spearman correlation of a rehearsal below which its scores come with a warning. Of eight removals that have nothing
to do with their scores, one such rehearsal in a hundred is above it."""


@dataclass(frozen=True)
class Confirmed:
    """What forgetting something was predicted to do, and what it did.

    Attributes:
        name: What was forgotten.
        predicted: The predicted change of the quantity.
        actual: The change, once it was forgotten.
    """

    name: str
    predicted: float
    actual: float


@dataclass(frozen=True)
class Confirmation:
    """Predicted and actual effects. ``str(confirmation)`` is for people, :meth:`to_dict` for machines.

    Attributes:
        each: Of every item, forgotten by itself.
        together: Of all of them at once.
        method: How they were forgotten.
        title: The quantity.
    """

    each: tuple[Confirmed, ...]
    together: Confirmed
    method: str
    title: str

    @property
    def doubt(self) -> str | None:
        """Where predictions are off: by more than half of what happened, or of the other sign."""
        off = sum(abs(one.predicted - one.actual) > abs(one.actual) / 2 for one in self.each)
        if not off:
            return None
        return (
            f"{off} of {len(self.each)} predictions are off by more than half of what happened. The largest scores are "
            "the least sure: believe what was confirmed"
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON document."""
        rows, told = [vars(one) for one in self.each], {"method": self.method, "title": self.title}
        return {**told, "each": rows, "together": vars(self.together), "doubt": self.doubt}

    def __str__(self) -> str:
        head = [f"{'Confirmed':<12}forgotten by {self.method}; {self.title} changes by", _ROW.format("", *_HEAD)]
        told = [] if self.doubt is None else [f"{'Doubt':<12}{self.doubt}"]
        return "\n".join(head + [_row(one) for one in (*self.each, self.together)] + told)


_ROW, _HEAD = "{:<12}{:>12}{:>12}  {}", ("predicted", "actual", "")


def _row(one: Confirmed) -> str:
    return _ROW.format("", f"{one.predicted:+.4g}", f"{one.actual:+.4g}", one.name)


@dataclass(frozen=True)
class Rehearsed:
    """How good scores of a kind are, from some removals that were carried out.

    Attributes:
        kind: Of which items.
        removals: Predicted and actual.
        spearman: Their correlation.
        spread: By how much an effect may differ from its score, in units of the score's size and ``floor``.
        floor: The size below which errors no longer shrink with scores: the median size of the scores rehearsed.
    """

    kind: Kind
    removals: tuple[Confirmed, ...]
    spearman: float
    spread: float
    floor: float

    def interval(self, score: float) -> tuple[float, float]:
        """What an effect with this score lies between, in four of five cases."""
        wide = self.spread * max(abs(score), self.floor)
        return score - wide, score + wide

    @property
    def warning(self) -> str | None:
        """Why scores of this kind are not to be trusted, where they are not."""
        if self.spearman >= AGREES:
            return None
        return (
            f"of {len(self.removals)} removals that were carried out the scores told the order only to a Spearman "
            f"correlation of {self.spearman:.2f}: do not trust those of {self.kind} without confirming them"
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON document."""
        facts = {name: getattr(self, name) for name in ("kind", "spearman", "spread", "floor", "warning")}
        return {**facts, "removals": [vars(one) for one in self.removals]}

    def __str__(self) -> str:
        said = f"{len(self.removals)} {self.kind} were forgotten: Spearman {self.spearman:.2f}"
        sure = f"an effect lies within {self.spread:.0%} of its score, or of {self.floor:.2g}, four times of five"
        return f"{said}; {self.warning or sure}"


def carried_out(
    found: Scores, request: Request, method: str | Method = "gif", *, recipe: Recipe | None = None
) -> float:
    """Forget a request and say by how much the quantity changed; a deleted node has no part in it, before and after.

    Args:
        found: The inspection.
        request: What is forgotten.
        method: By what, ``"gif"`` or ``"retrain"``.
        recipe: How the model was trained, for methods that train.
    """
    subject = found.subject
    objective = subject.objective
    ready: dict[str, Any] = {"prepared": subject.prepared} if method == "gif" else {}
    data = objective.data
    gone = remove(data, request).nodes
    done = unlearn(
        objective.model,
        data,
        request,
        method,
        weight_decay=found.weight_decay,
        loss=objective.loss,
        forward=objective.forward,
        recipe=recipe,
        allow_class_loss=True,
        **ready,
    )
    with torch.no_grad():
        before = subject.quantity.value(objective.forward(objective.model, data).double(), subject.data, gone)
        after = subject.quantity.value(objective.forward(done.model.eval(), done.data).double(), subject.data, gone)
    return float(after - before)


def confirm(
    found: Scores, items: Sequence[Scored], method: str | Method = "gif", *, recipe: Recipe | None = None
) -> Confirmation:
    """Forget some items, each by itself and all together, and compare with what was predicted.

    Args:
        found: The inspection.
        items: As :meth:`Scores.top` gives them.
        method: ``"gif"``, or ``"retrain"`` with a recipe.
        recipe: How the model was trained.
    """
    if not items:
        raise RequestError("there is no item to confirm; ask for at least one")
    each = [
        Confirmed(one.name, one.effect, carried_out(found, found.request(one), method, recipe=recipe)) for one in items
    ]
    actual = carried_out(found, found.request(items), method, recipe=recipe)
    together = Confirmed(f"all {len(each)} together", found.group(items), actual)
    return Confirmation(tuple(each), together, str(getattr(method, "name", method)), found.title)


def rehearse(found: Scores, kind: Kind = "edges", removals: int = 12, *, seed: int = 0) -> Rehearsed:
    """Carry out a few removals, half of them of the largest scores, and see how good scores of that kind are.

    Args:
        found: The inspection.
        kind: Of which items.
        removals: How many, at least 8.
        seed: Of those that are drawn.
    """
    if not (isinstance(removals, int) and removals >= FEWEST):
        raise RequestError(f"a rehearsal takes at least {FEWEST} removals, got {removals!r}")
    order = found.scores(kind).abs().argsort(descending=True, stable=True).tolist()
    order = [number for number in order if found.scores(kind)[number] != 0]
    if len(order) < removals:
        raise RequestError(f"only {len(order)} {kind} have a score that is not zero, and {removals} are asked for")
    largest, rest = order[: removals // 2], order[removals // 2 :]
    drawn = np.random.default_rng(seed).choice(len(rest), removals - len(largest), replace=False)
    items = [found.item(kind, number) for number in (*largest, *(rest[i] for i in drawn))]
    done = tuple(Confirmed(one.name, one.effect, carried_out(found, found.request(one))) for one in items)
    floor = float(np.median([abs(one.predicted) for one in done]))
    errors = sorted(abs(one.actual - one.predicted) / max(abs(one.predicted), floor) for one in done)
    place = math.ceil(LEVEL * (len(errors) + 1)) - 1  # split conformal: the next error is at most this with LEVEL
    from scipy.stats import spearmanr  # noqa: PLC0415 (half a second, for this line alone)

    agreement = float(spearmanr([one.predicted for one in done], [one.actual for one in done])[0])
    return Rehearsed(kind, done, agreement if math.isfinite(agreement) else 0.0, errors[place], floor)

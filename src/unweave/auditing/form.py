"""The form that every test of forgetting has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from unweave.auditing.case import Subject
from unweave.auditing.limits import Side
from unweave.auditing.separation import Apart

__all__ = ["BOTH_MODELS", "NEW_MODEL", "OPERATOR", "Probe"]

NEW_MODEL = "anyone who can query the model after, and knows the graph and how such models are trained"
BOTH_MODELS = "anyone who can query the model both before and after"
OPERATOR = "whoever holds the parameters after"


@dataclass(frozen=True)
class Probe:
    """A test of forgetting.

    Attributes:
        name: Short, unique.
        group: What it belongs to.
        question: What it asks, in plain words.
        threat: Who could do this, and with what.
        unit: Of its number.
        measure: The number of a model, given the one before it, or the scores of items that it is the AUC of.
        asks: ``gone`` or ``else``; see :class:`~unweave.auditing.Evidence`.
        side: Which deviations count.
        skewed: Whether its logarithm is near normal over seeds.
        chance: Of a mean over items, the standard error of its distance to retrained models, item by item.
    """

    name: str
    group: str
    question: str
    threat: str
    unit: str
    measure: Callable[[Subject, Subject], float | Apart]
    asks: Literal["gone", "else"] = "gone"
    side: Side = "both"
    skewed: bool = False
    chance: Callable[[Subject], float] | None = None

"""What one test found, and what that lets one say.

A test gives a number for any model. It is taken for the model under audit, for the one before, for several that were
retrained without the deleted data (what forgetting looks like) and for several that were trained with it (what doing
nothing looks like). The retrained ones decide what is usual: a number is unusual when it lies outside the prediction
interval of one more of them (:mod:`unweave.auditing.limits`), at a false-alarm rate that all tests of an audit share
(Bonferroni). Where seeds hardly matter, as for a convex model,
that interval is so narrow that any answer short of the last digit would lie outside; so it is widened by a twentieth of
the distance between models with and without the data, below which a difference is not material. A score on test nodes
is also allowed what chance makes of so many nodes: the few on which two models differ may be right by one or the other.
The same interval tells whether a test could have noticed anything: it has power when models that were trained with the
data fall outside of it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Literal

from scipy.special import ndtri

from unweave.auditing.limits import Limits, Side, limits_of

__all__ = ["ALARM", "MATERIAL", "POWER", "Evidence", "Reading"]

ALARM = 0.05
"""Chance that an audit of a model that was retrained raises any alarm."""

POWER = 0.8
"""Share of the models that were trained with the data that a test must notice to have power."""

MATERIAL = 0.05
"""Share of the distance between models with and without the data below which a difference is not material."""


@dataclass(frozen=True)
class Reading:
    """A number that a test found for one model.

    Attributes:
        value: The number.
        low: Lower end of its 95 % interval over the items, where it has one.
        high: Upper end.
        more: Further figures, by name.
    """

    value: float
    low: float | None = None
    high: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What one test found.

    Attributes:
        name: Of the test.
        group: ``membership``, ``links``, ``exposure``, ``relearning``, ``collateral`` or ``hard cases``.
        question: What it asks, in plain words.
        threat: Who could do this, and with what.
        unit: Of its number.
        before: The number of the model before.
        after: That of the model under audit.
        retrained: Those of the retrained models.
        trained: Those of the models trained with the deleted data.
        alarm: This test's share of the false-alarm rate.
        asks: ``gone``: whether the data is gone; ``else``: what else the model does.
        side: Which deviations count: ``both``, or ``above`` where less is only better.
        skewed: Whether its logarithm, not the number itself, is near normal over seeds.
        chance: Of a mean over items, the standard error of its distance to retrained models, item by item.
    """

    name: str
    group: str
    question: str
    threat: str
    unit: str
    before: Reading
    after: Reading
    retrained: tuple[Reading, ...]
    trained: tuple[Reading, ...]
    alarm: float
    asks: Literal["gone", "else"] = "gone"
    side: Side = "both"
    skewed: bool = False
    chance: float = 0.0

    @cached_property
    def _limits(self) -> Limits:
        return limits_of([reading.value for reading in self.retrained], "log" if self.skewed else "plain")

    @cached_property
    def usual(self) -> tuple[float, float]:
        """Where a retrained model is expected, and what is not materially different from that."""
        low, high = self._limits.range(self.alarm, self.side)
        rate = self.alarm / (1 if self.side == "above" else 2)
        middle, far = self._middle("retrained"), self.chance * float(ndtri(1 - rate))
        low, high = min(low, middle - far), max(high, middle + far)
        margin = MATERIAL * abs(self._middle("trained") - self._middle("retrained"))
        least, most = (0.0, 1.0) if self.unit == "AUC" else (0.0, math.inf)  # no number of a test is below 0
        return (low if math.isinf(low) else max(least, low - margin)), min(most, high + margin)

    @property
    def floor(self) -> float:
        """The seed floor: standard deviation among retrained models."""
        return stdev(reading.value for reading in self.retrained)

    @property
    def effect(self) -> float | None:
        """How far the model lies from the mean of the retrained ones, in units of the seed floor."""
        return self._units(self.after.value)

    @property
    def effect_before(self) -> float | None:
        """The same of the model before."""
        return self._units(self.before.value)

    @property
    def noticed(self) -> float:
        """Share of the models that were trained with the data that this test tells from retrained ones."""
        return fmean(self._outside(reading.value) for reading in self.trained)

    @property
    def powerful(self) -> bool:
        """Whether it could have noticed that nothing was done."""
        return self.asks == "gone" and self.noticed >= POWER

    @cached_property
    def noticeable(self) -> float | None:
        """The least share of what the data taught that this test would have noticed; ``None`` without power.

        A model that kept a share s of it is taken to lie at (1 − s) · a + s · b, between what a model without the data
        and one with it gave. So does an AUC over deleted items of which a share s is remembered and the rest is not.
        The share is the least from which on the test notices as many of these as it must to have power.

        Put to the test with a GCN on the embedded graph: for flipped labels the sharpest test says 10 %, for a tenth of
        the nodes 23 %. Models that were retrained with a part of those nodes, two seeds each, passed up to 0 and 10 %
        of them, and up to 10 and 20 %, and were noticed with a tenth more.
        """
        if not self.powerful:
            return None
        low, high = self.usual
        found = sorted(_leaves(a.value, b.value, low, high) for a in self.retrained for b in self.trained)
        return found[math.ceil(POWER * len(found)) - 1]

    @property
    def separates(self) -> bool:
        """Whether its number tells models with the data from models without, on whichever side."""
        low, high = self._limits.range(self.alarm)
        return fmean(not low <= reading.value <= high for reading in self.trained) >= POWER

    @property
    def unusual(self) -> bool:
        """Whether no retrained model is expected to give this number."""
        return self._outside(self.after.value)

    @property
    def finding(self) -> Literal["remembers", "differs", "as retrained", "no power"]:
        """The conclusion of this test alone.

        A number that is unusual on the side of the models that saw the data means that it is remembered; on the other
        side, and in a test of something else, that the model is not what retraining gives.
        """
        if self.unusual:
            return "remembers" if self.powerful and self._towards_trained() else "differs"
        return "as retrained" if self.powerful or self.separates or self.asks == "else" else "no power"

    def to_dict(self) -> dict[str, Any]:
        """The JSON document, with what follows from the numbers."""
        low, high = self.usual
        return {
            **asdict(self),
            "usual": [None if math.isinf(low) else low, high],
            "floor": self.floor,
            "effect": self.effect,
            "effect_before": self.effect_before,
            "noticed": self.noticed,
            "power": self.powerful,
            "noticeable": self.noticeable,
            "separates": self.separates,
            "finding": self.finding,
        }

    def _units(self, value: float) -> float | None:
        return None if self.floor == 0 else (value - self._middle("retrained")) / self.floor

    def _middle(self, of: Literal["retrained", "trained"]) -> float:
        return fmean(reading.value for reading in getattr(self, of))

    def _outside(self, value: float) -> bool:
        low, high = self.usual
        return not low <= value <= high

    def _towards_trained(self) -> bool:
        middle = self._middle("retrained")
        return (self.after.value - middle) * (self._middle("trained") - middle) > 0


def _leaves(start: float, end: float, low: float, high: float) -> float:
    """The share of the way from one number to another from which on it is outside of a range."""
    if low <= end <= high:
        return math.inf
    edge = high if end > high else low
    beyond = start > high if end > high else start < low
    return 0.0 if beyond else (edge - start) / (end - start)

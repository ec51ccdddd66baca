"""What each way to forget closes on one model, by kind and size of request: measured on simulated deletions.

:func:`unweave.run.calibrate.calibrate` measures; this holds what it found, and estimates from it.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from statistics import fmean, median
from typing import Any

import numpy as np

from unweave._core.tuning import TUNING
from unweave.errors import RunError
from unweave.methods.ladder.jackknife import Array, Jackknife
from unweave.methods.ladder.rung import GIF, RETRAIN, Rung
from unweave.methods.ladder.size import Shape
from unweave.receipt.estimate import FEWEST, Estimate
from unweave.request import KINDS

__all__ = ["Calibration", "Deletion", "Figures", "longest"]

FORMAT = "unweave-calibration-1"


@dataclass(frozen=True)
class Figures:
    """What one rung did for one deletion.

    Attributes:
        closed: Of the gap to the model retrained without it.
        cost: Its seconds / those of the retraining beside it.
        passes: Its passes / those of the retraining.
        residual: What it left of the gradient of the local problem, as a share, where that is defined.
    """

    closed: float
    cost: float
    passes: float
    residual: float | None = None


@dataclass(frozen=True)
class Deletion:
    """One simulated deletion.

    Attributes:
        shape: Its kind and size.
        rungs: What each rung did; one that failed is not among them.
        gap: What doing nothing leaves: mean KL to the retrained model. 0 where the deletion changes nothing; no rung
            was tried then.
        seconds: What retraining took.
        passes: Its passes over the graph.
        spent: Seconds for all of it.
    """

    shape: Shape
    rungs: dict[Rung, Figures]
    gap: float
    seconds: float
    passes: float
    spent: float


@dataclass(frozen=True)
class Calibration:
    """What was measured on a model.

    Attributes:
        parameters: Digest of the model's parameters.
        seed: Of the simulated deletions.
        deletions: What was found for each.
        damping: What an influence step was damped by before calibration; 0 at a minimum.
        raised: How many times the least damping that was.
        requests: How many requests the run had carried out by then.
    """

    parameters: str
    seed: int
    deletions: tuple[Deletion, ...] = ()
    damping: float = 0.0
    raised: float = 1.0
    requests: int = 0

    def with_deletion(self, deletion: Deletion) -> "Calibration":
        """The same with one more."""
        return replace(self, deletions=(*self.deletions, deletion))

    @cached_property
    def told(self) -> tuple[Deletion, ...]:
        """The deletions that changed something, so that there was a gap to close."""
        return tuple(d for d in self.deletions if d.rungs)

    @cached_property
    def factor(self) -> float:
        """Times the prepared damping: the one that served best, or 1 where none was clearly better."""
        left = {}
        for factor in TUNING.ladder.factors:
            pairs = [(d.rungs.get(GIF), d.rungs.get(GIF.at(factor))) for d in self.told]
            both = [_left(other) - _left(usual) for usual, other in pairs if usual and other]
            left[factor] = fmean(both) if len(both) >= FEWEST else 0.0
        best = min(left, key=lambda factor: left[factor])
        return best if left[best] < -TUNING.ladder.clearly else 1.0

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs that were measured, with the damping that serves best, cheapest first; without ``retrain``."""
        found = dict.fromkeys(rung for d in self.told for rung in d.rungs if rung.factor == 1)
        return tuple(sorted((rung for rung in found if self._known(rung)), key=self.typical_cost))

    def _known(self, rung: Rung) -> list[tuple[Deletion, Figures]]:
        """What a rung did, with the damping that serves best."""
        tried = rung.at(self.factor)
        return [(d, d.rungs[tried]) for d in self.told if tried in d.rungs]

    def typical_cost(self, rung: Rung) -> float:
        """Seconds of a rung as a share of retraining: the median of all deletions."""
        return 1.0 if rung == RETRAIN else median(figures.cost for _, figures in self._known(rung))

    def cost(self, rung: Rung, shape: Shape) -> float:
        """The same for a request: the median of the deletions that are most like it.

        Another kind is as far as ten times the size: taking nodes out of a graph costs more than taking edges.
        """
        if rung == RETRAIN:
            return 1.0
        known = sorted(self._known(rung), key=lambda pair: _unlike(pair[0].shape, shape))
        return median(figures.cost for _, figures in known[: max(TUNING.ladder.like, -(-len(known) // 4))])

    def highest_residual(self, rung: Rung) -> float | None:
        """The most that a rung left of the gradient of a local problem, over all deletions."""
        known = [figures.residual for _, figures in self._known(rung) if figures.residual is not None]
        return max(known, default=None)

    @property
    def retrain_passes(self) -> float:
        """Passes of a retraining: the median of all deletions."""
        return median(d.passes for d in self.told)

    def failed(self, rung: Rung) -> int:
        """For how many deletions a rung gave no answer."""
        return len(self.told) - len(self._known(rung))

    @cached_property
    def _fits(self) -> dict[Rung, Jackknife]:
        return {rung: _fitted(self._known(rung)) for rung in self.rungs}

    def estimate(self, rung: Rung, shape: Shape) -> Estimate:
        """What a rung is believed to close for a request like this."""
        if rung == RETRAIN:
            return Estimate(1.0, 1.0, 1.0, len(self.deletions))
        return _estimate(self._fits[rung], shape)

    @cached_property
    def _gaps(self) -> Jackknife:
        rows = np.stack([_row(deletion.shape) for deletion in self.told])
        return Jackknife(rows, np.array([math.log(deletion.gap) for deletion in self.told]), _penalty())

    def gap(self, shape: Shape) -> float:
        """What doing nothing about a request like this is expected to leave: mean KL to a retrained model."""
        return math.exp(self._gaps.predict(_row(shape)))

    @cached_property
    def floor(self) -> float:
        """Mean KL below which a gap to retraining is not forgetting, but where minimising stopped.

        At a minimum the longest restart and retraining minimise the same objective, to within their tolerances: this
        is the median of what they differ by, so that a few that ended at another minimum do not count. 0 elsewhere,
        where nothing like it is known.
        """
        left = [abs(d.gap * (1 - figures.closed)) for d, figures in self._known(longest())]  # rounding may be below 0
        return median(left) if left else 0.0

    @cached_property
    def held_back(self) -> dict[str, float]:
        """How good the estimates are: each quarter of the deletions is predicted from the other three.

        Of rungs that do harm more often than not nothing is counted.

        Returns:
            ``error``, the median distance from estimated to measured gap closed; ``coverage``, how often the interval
            held; ``tested``, of how many estimates. Empty where there are too few deletions for that.
        """
        errors, inside = [], []
        for rung in self.rungs:
            known = self._known(rung)
            if median(figures.closed for _, figures in known) <= 0:
                continue  # nobody would use it
            for fold in range(TUNING.ladder.folds):
                # Kinds come in turn, so that whole rounds of them are held back.
                held = [i for i in range(len(known)) if (i // len(KINDS)) % TUNING.ladder.folds == fold]
                learnt = [pair for i, pair in enumerate(known) if i not in held]
                if len(learnt) < FEWEST:
                    continue
                fit = _fitted(learnt)
                for deletion, figures in (known[i] for i in held):
                    found = _estimate(fit, deletion.shape)
                    assert found.low is not None
                    assert found.high is not None
                    errors.append(abs(found.closed - figures.closed))
                    inside.append(found.low <= figures.closed <= found.high)
        if not errors:
            return {}
        return {"error": median(errors), "coverage": fmean(inside), "tested": len(errors)}

    @property
    def seconds(self) -> float:
        """What calibrating took."""
        return sum(d.spent for d in self.deletions)

    @property
    def retrainings(self) -> float:
        """The same in retrainings."""
        retrained = [d.seconds for d in self.deletions if d.seconds > 0]
        return self.seconds / fmean(retrained) if retrained else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        deletions = [
            vars(found)
            | {
                "shape": asdict(found.shape),
                "rungs": {str(rung): asdict(figures) for rung, figures in found.rungs.items()},
            }
            for found in self.deletions
        ]
        return {"format": FORMAT, **{f.name: getattr(self, f.name) for f in fields(self)}, "deletions": deletions}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Calibration":
        """Read what :meth:`to_dict` wrote."""
        parts = dict(document)
        if parts.pop("format", None) != FORMAT:
            raise RunError(f"not a calibration of this version of unweave: format {document.get('format')!r}")
        deletions = tuple(
            Deletion(
                **{
                    **found,
                    "shape": Shape(**found["shape"]),
                    "rungs": {Rung.read(name): Figures(**figures) for name, figures in found["rungs"].items()},
                }
            )
            for found in parts.pop("deletions")
        )
        return cls(**parts, deletions=deletions)

    @classmethod
    def from_json(cls, text: bytes) -> "Calibration":
        """Read a file."""
        return cls.from_dict(json.loads(text))


def longest() -> Rung:
    """The rung that goes on where more gradients do not pay, at a minimum; it is measured nowhere else."""
    return Rung.of("gif", steps=TUNING.ladder.longest)


def _left(figures: Figures) -> float:
    """log of what is left of the gap, as a share: errors of estimates are alike on that scale."""
    return math.log(min(max(1 - figures.closed, TUNING.ladder.smallest), TUNING.ladder.largest))


def _row(shape: Shape) -> Array:
    """What an estimate is made from: the size, the kinds, and how size matters to each kind."""
    kinds = np.array(shape.shares) / shape.size
    size = math.log10(shape.size) + 2
    return np.array([1.0, size, *kinds, *(kinds * size)])


def _unlike(one: Shape, other: Shape) -> float:
    """Decades of size between two requests, and one for another kind."""
    kinds = sum(abs(a / one.size - b / other.size) for a, b in zip(one.shares, other.shares, strict=True)) / 2
    return abs(math.log10(one.size / other.size)) + kinds


SIZE = 1
"""The column of a row that has the size: a single item is told with more doubt than a tenth of the graph."""


def _penalty() -> Array:
    """The ridge of each column of a row."""
    constant, size, kind = TUNING.ladder.belief
    return np.array([constant, size, *[kind] * (2 * len(KINDS))])


def _fitted(known: Iterable[tuple[Deletion, Figures]]) -> Jackknife:
    pairs = list(known)
    rows = np.stack([_row(deletion.shape) for deletion, _ in pairs])
    return Jackknife(rows, np.array([_left(figures) for _, figures in pairs]), _penalty(), SIZE)


def _estimate(fit: Jackknife, shape: Shape) -> Estimate:
    row, count = _row(shape), int(fit.targets.size)
    within = fit.interval(row)
    closed = _closed(fit.predict(row))
    if within is None:
        return Estimate(closed, deletions=count)
    return Estimate(closed, _closed(within[1]), _closed(within[0]), count)


def _closed(left: float) -> float:
    return 1 - math.exp(min(left, math.log(TUNING.ladder.largest)))

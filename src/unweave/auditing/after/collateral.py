"""What else changed: predictions by distance from the deletion, how sure they are, and how right.

All on the graph that remains, against retrained models. A method that hides the deleted data by adding noise, or by
bending the model around the attack, shows here. Test labels are read: this is the final score.
"""

import math
from collections.abc import Callable
from statistics import fmean

from torch import Tensor

from unweave.auditing.case import Case, Subject
from unweave.auditing.form import OPERATOR, Probe
from unweave.objective.scores import gap

__all__ = ["class_scores", "collateral_tests", "expected_calibration_error", "scored_nodes"]

BINS = 15
RINGS = ("the nodes that were touched", "1 edge away", "2 edges away", "3 edges away", "farther away")
FEWEST = 10


def collateral_tests(case: Case) -> list[Probe]:
    """Distance to retrained models by ring, calibration and F1."""
    found = []
    for ring, where in zip((0, 1, 2, 3, -1), RINGS, strict=True):
        mask = (case.rings == ring) & ~case.gone
        if int(mask.sum()) >= FEWEST:
            found.append(
                Probe(
                    f"predictions: {where}",
                    "collateral",
                    f"Are predictions of {'' if ring == 0 else 'nodes '}{where} as near to those of retrained models "
                    "as these are to each other?",
                    OPERATOR,
                    "nats",
                    lambda s, _, mask=mask: _distance(case, s, mask),  # type: ignore[misc]
                    asks="else",
                    side="above",
                    skewed=True,
                )
            )
    scored = scored_nodes(case)
    if scored is not None:
        how = "Is the model as {} on the test nodes as retrained ones?"
        found += [
            _score(case, scored, "calibration", how.format("well calibrated"), "ECE", _off),
            _score(case, scored, "errors on test nodes", how.format("often right"), "1 − F1", _wrong),
        ]
    return found


def _score(
    case: Case, scored: Tensor, name: str, question: str, unit: str, each: Callable[[Tensor, Tensor], Tensor]
) -> Probe:
    """A test of a mean over the test nodes: which of them a model has right is much by chance."""
    labels = case.data.y[scored]
    retrained = [each(known.remaining[scored], labels) for known in case.retrained]

    def chance(subject: Subject) -> float:
        mine = each(subject.remaining[scored], labels)
        return math.sqrt(fmean(float((mine - other).var(unbiased=False)) for other in retrained) / labels.numel())

    def measure(subject: Subject, _: Subject) -> float:
        return float(each(subject.remaining[scored], labels).mean())

    return Probe(name, "collateral", question, OPERATOR, unit, measure, asks="else", side="above", chance=chance)


def class_scores(case: Case, subject: Subject) -> dict[int, float]:
    """F1 of each class on the test nodes."""
    mask = scored_nodes(case)
    if mask is None:
        return {}
    guess, truth, found = subject.remaining[mask].argmax(dim=1), case.data.y[mask], {}
    for label in truth.unique().tolist():
        right = int(((guess == label) & (truth == label)).sum())
        found[int(label)] = 2 * right / max(1, int((guess == label).sum()) + int((truth == label).sum()))
    return found


def expected_calibration_error(outputs: Tensor, labels: Tensor) -> float:
    """Mean distance between how sure the predictions are and how often they are right, over 15 bins of equal width."""
    return float(_off(outputs, labels).mean())


def _off(outputs: Tensor, labels: Tensor) -> Tensor:
    """What the calibration error is the mean of: how much surer than right a node is, or less sure."""
    sure, guess = outputs.double().exp().max(dim=1)
    over, place = sure - (guess == labels).double(), (sure * BINS).long().clamp(max=BINS - 1)
    return over * over.new_zeros(BINS).index_add_(0, place, over).sign()[place]


def _wrong(outputs: Tensor, labels: Tensor) -> Tensor:
    """1 where the guess is wrong."""
    return (outputs.argmax(dim=1) != labels).double()


def _distance(case: Case, subject: Subject, mask: Tensor) -> float:
    others = [known for known in case.retrained if known is not subject]
    return fmean(gap(known.remaining, subject.remaining, mask) for known in others)


def scored_nodes(case: Case) -> Tensor | None:
    """The test nodes that remain and have a label; ``None`` where there are none."""
    mask = case.removal.data.get("test_mask")
    if mask is None:
        return None
    known: Tensor = mask & (case.data.y >= 0)
    return known if bool(known.any()) else None

"""What else changed: predictions by distance from the deletion, how sure they are, and how right.

All on the graph that remains, against retrained models. A method that hides the deleted data by adding noise, or by
bending the model around the attack, shows here. Test labels are read: this is the final score.
"""

from statistics import fmean

import numpy as np
from torch import Tensor

from unweave.auditing.case import Case, Subject
from unweave.auditing.form import OPERATOR, Probe
from unweave.objective.scores import gap, micro_f1

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
        found += [
            Probe(
                "calibration",
                "collateral",
                "Is the model as well calibrated on the test nodes as retrained ones?",
                OPERATOR,
                "ECE",
                lambda s, _: expected_calibration_error(s.remaining[scored], case.data.y[scored]),
                asks="else",
                side="above",
            ),
            Probe(
                "errors on test nodes",
                "collateral",
                "Is the model as often right on the test nodes as retrained ones?",
                OPERATOR,
                "1 − F1",
                lambda s, _: 1 - micro_f1(s.remaining, case.data.y, scored),
                asks="else",
                side="above",
            ),
        ]
    return found


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
    sure, guess = (value.cpu().numpy() for value in outputs.exp().max(dim=1))
    right = guess == labels.cpu().numpy()
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    return float(
        sum(abs(sure[place == b].mean() - right[place == b].mean()) * (place == b).mean() for b in np.unique(place))
    )


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

"""Put models through every test that applies to a case, beside retrained models and such as saw the data."""

import torch

from unweave.auditing.after.collateral import collateral_tests
from unweave.auditing.after.exposure import exposure_tests
from unweave.auditing.after.hard import hard_cases
from unweave.auditing.after.links import fit_links, link_tests
from unweave.auditing.after.membership import fit_membership, membership_tests
from unweave.auditing.after.relearning import relearning_tests
from unweave.auditing.case import Case, Subject
from unweave.auditing.evidence import ALARM, Evidence, Reading
from unweave.auditing.form import Probe
from unweave.auditing.separation import Apart, auc, auc_interval, hits_at
from unweave.errors import ModelError

__all__ = ["Examination"]


class Examination:
    """The tests of a case, with what they found for the models to compare with: any model can be put through them.

    Args:
        case: Request, items and models.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.probes = case, _probes(case)
        pairs = list(zip(case.retrained, case.trained, strict=True))
        self._retrained = [tuple(_read(p.measure(new, old)) for new, old in pairs) for p in self.probes]
        self._trained = [tuple(_read(p.measure(old, old)) for _, old in pairs) for p in self.probes]

    def of(self, before: Subject, after: Subject) -> tuple[Evidence, ...]:
        """What the tests find for a model that was made from another."""
        for subject, which in ((before, "before"), (after, "after")):
            if not bool(torch.isfinite(subject.remaining).all() and torch.isfinite(subject.whole).all()):
                raise ModelError(f"the model {which} gives outputs that are not finite; there is nothing to audit")
        return tuple(
            Evidence(
                probe.name,
                probe.group,
                probe.question,
                probe.threat,
                probe.unit,
                before=_read(probe.measure(before, before), interval=True),
                after=_read(probe.measure(after, before), interval=True),
                retrained=retrained,
                trained=trained,
                alarm=ALARM / len(self.probes),
                asks=probe.asks,
                side=probe.side,
                skewed=probe.skewed,
                chance=0.0 if probe.chance is None else probe.chance(after),
            )
            for probe, retrained, trained in zip(self.probes, self._retrained, self._trained, strict=True)
        )


def _probes(case: Case) -> list[Probe]:
    """Every test that applies."""
    nodes = fit_membership(case) if case.shadows and case.targets else None
    seen = [shadow.links[case.deleted :].any() for shadow in case.shadows]
    links = fit_links(case) if case.deleted and any(seen) else None
    return [
        *membership_tests(case, nodes),
        *link_tests(case, links),
        *exposure_tests(case),
        *relearning_tests(case),
        *hard_cases(case, nodes),
        *collateral_tests(case),
    ]


def _read(found: float | Apart, interval: bool = False) -> Reading:
    """What a test found as a reading, with its interval over the items where that is asked for."""
    if not isinstance(found, Apart):
        return Reading(float(found))
    more = {"TPR at 1 % FPR": hits_at(found.inside, found.outside)}
    low, high = auc_interval(found.inside, found.outside) if interval else (None, None)
    return Reading(auc(found.inside, found.outside), low, high, more)

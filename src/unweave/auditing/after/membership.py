"""Does the model treat the deleted nodes as ones that it was trained on?

Deleted nodes are asked about on the graph as it was, with the features, edges and labels they had: that is what someone
who knows them would ask. They are compared with nodes that were held out of training. A retrained model need not be at
an area of 0.5: nodes that are hard to learn stand out without having been seen, so retrained models set the scale.
"""

import numpy as np

from unweave.auditing.after.likelihood import LikelihoodRatio, confidence
from unweave.auditing.case import Case, Subject
from unweave.auditing.form import NEW_MODEL, Probe
from unweave.auditing.separation import Apart

__all__ = ["fit_membership", "losses", "membership_tests"]

LIKELIHOOD, LOSS = "membership, likelihood ratio", "membership, loss threshold"


def losses(case: Case, subject: Subject) -> np.ndarray:
    """The loss of every node in question."""
    found: np.ndarray = -subject.whole[case.nodes].gather(1, case.labels[:, None]).flatten().cpu().numpy()
    return found


def fit_membership(case: Case) -> LikelihoodRatio:
    """The likelihood-ratio attack on the nodes in question."""
    seen = np.stack([shadow.nodes for shadow in case.shadows])
    return LikelihoodRatio(case.shadows, seen, lambda s: confidence(s.whole[case.nodes], case.labels)[:, None])


def membership_tests(case: Case, attack: LikelihoodRatio | None) -> list[Probe]:
    """The attacks on nodes; none where the request has no node that the training used."""
    if not case.targets:
        return []
    question = "Does the model still treat the deleted nodes as ones that it was trained on?"
    rule = Probe(
        LOSS, "membership", question, NEW_MODEL, "AUC", lambda s, _: Apart.first(-losses(case, s), case.targets)
    )
    if attack is None:
        return [rule]
    ratio = Probe(
        LIKELIHOOD, "membership", question, NEW_MODEL, "AUC", lambda s, _: Apart.first(attack(s), case.targets)
    )
    return [ratio, rule]

"""Does the model still know of the deleted edges (link stealing)?

The model is asked on the graph that remains, as it is served. Ends of an edge that was trained on have more alike
posteriors than pairs that only share a neighbour, to which they are compared (He et al., "Stealing links from graph
neural networks", USENIX Security 2021); and a training node that lost an edge is predicted less surely by a model that
learnt with it.
"""

import numpy as np
import torch
from torch import Tensor

from unweave.auditing.after.likelihood import LikelihoodRatio, confidence
from unweave.auditing.case import Case, Subject
from unweave.auditing.form import NEW_MODEL, Probe
from unweave.auditing.separation import Apart

__all__ = ["fit_links", "known_labels", "link_tests", "unlikeness"]

LIKELIHOOD, SIMILARITY = "deleted edges, likelihood ratio", "deleted edges, posterior similarity"


def unlikeness(outputs: Tensor, pairs: Tensor) -> np.ndarray:
    """Symmetric Kullback-Leibler divergence between the posteriors of two nodes."""
    p, q = (outputs[pairs[:, end]] for end in (0, 1))
    found: np.ndarray = ((p.exp() - q.exp()) * (p - q)).sum(dim=1).cpu().numpy()
    return found


def known_labels(case: Case, outputs: Tensor) -> Tensor:
    """The label of a training node; for any other node what a model predicts. No other label is read."""
    return torch.where(case.data.train_mask, case.data.y, outputs.argmax(dim=1))


def fit_links(case: Case) -> LikelihoodRatio:
    """The likelihood-ratio attack on the edges in question."""
    seen = np.stack([shadow.links for shadow in case.shadows])

    def look(subject: Subject) -> np.ndarray:
        labels = known_labels(case, subject.remaining)
        sure = [confidence(subject.remaining[ends], labels[ends]) for ends in case.links.t()]
        return np.stack([np.log(unlikeness(subject.remaining, case.links) + 1e-6), *sure], axis=1)

    return LikelihoodRatio(case.shadows, seen, look)


def link_tests(case: Case, attack: LikelihoodRatio | None) -> list[Probe]:
    """The attacks on edges; none where the request has none."""
    if not case.deleted:
        return []
    question = "Does the model still know which edges were deleted?"
    alike = Probe(
        SIMILARITY,
        "links",
        question,
        NEW_MODEL,
        "AUC",
        lambda s, _: Apart.first(-unlikeness(s.remaining, case.links), case.deleted),
    )
    if attack is None:
        return [alike]
    ratio = Probe(LIKELIHOOD, "links", question, NEW_MODEL, "AUC", lambda s, _: Apart.first(attack(s), case.deleted))
    return [ratio, alike]

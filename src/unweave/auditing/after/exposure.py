"""What the change from one model to the next gives away to someone who holds both.

No method can hide everything here: a retrained model differs from the one before where data was deleted, too. The
question is whether this change gives away more than that of retraining, so retrained models are each compared with the
model that was trained from the same seed, whose change stands out most. To give away less is no fault; a model that
nothing was done to gives away nothing here, and is for the other tests to find.
"""

import numpy as np
import torch
from torch import Tensor

from unweave.auditing.after.links import known_labels
from unweave.auditing.case import Case, Subject
from unweave.auditing.form import BOTH_MODELS, Probe
from unweave.auditing.separation import Apart

__all__ = ["exposure_tests"]

NODES, EDGES, TREND = "change of posteriors, nodes", "change of posteriors, edges", "confidence dip, edges"


def exposure_tests(case: Case) -> list[Probe]:
    """The attacks by someone who holds both models."""
    found = []
    if case.targets:
        others = _sample((case.removal.data.train_mask & ~case.removal.touched).nonzero().flatten(), case.targets)
        nodes = torch.cat([case.nodes[: case.targets], others])
        if others.numel():
            found.append(
                Probe(
                    NODES,
                    "exposure",
                    "Does the change of the predictions give away which nodes were deleted?",
                    BOTH_MODELS,
                    "AUC",
                    lambda after, before: Apart.first(_moved(before.whole, after.whole)[nodes.cpu()], case.targets),
                    side="above",
                )
            )
    if case.deleted and case.removal.data.edge_index.numel():
        pairs = torch.cat([case.links[: case.deleted], _sample(case.removal.data.edge_index.t(), case.deleted)])

        def dip(after: Subject, before: Subject) -> Apart:
            """Endpoints of a deleted edge are predicted less surely than before."""
            labels = known_labels(case, before.whole)[:, None]
            fell = (before.whole.gather(1, labels).exp() - after.remaining.gather(1, labels).exp()).flatten()
            return Apart.first(fell[pairs].sum(dim=1).cpu().numpy(), case.deleted)

        def moved(after: Subject, before: Subject) -> Apart:
            change = _moved(before.remaining, after.remaining)
            return Apart.first(change[pairs.cpu()].mean(axis=1), case.deleted)

        question = "Does the change of the predictions give away which edges were deleted?"
        found += [
            Probe(EDGES, "exposure", question, BOTH_MODELS, "AUC", moved, side="above"),
            Probe(TREND, "exposure", question, BOTH_MODELS, "AUC", dip, side="above"),
        ]
    return found


def _moved(before: Tensor, after: Tensor) -> np.ndarray:
    """How far the posterior of each node moved, as a divergence."""
    found: np.ndarray = (before.exp() * (before - after)).sum(dim=1).cpu().numpy()
    return np.round(found, 12)  # what has not moved has not moved, in whatever order it was summed


def _sample(items: Tensor, count: int) -> Tensor:
    chosen = np.random.default_rng(len(items)).permutation(len(items))[: max(count, 50)]
    return items[torch.from_numpy(np.sort(chosen)).to(items.device)]

"""Hard cases: the deleted nodes that a model memorises, and those with few or many edges.

How much a node is memorised is how much lower its loss is with models that saw it than with models that did not
(Feldman, "Does learning require memorization?", STOC 2020). A random request is mostly easy nodes that every model
predicts alike, and an average over them can hide that the others are still known.
"""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.auditing.after.likelihood import LikelihoodRatio
from unweave.auditing.after.membership import losses
from unweave.auditing.case import Case
from unweave.auditing.form import NEW_MODEL, Probe
from unweave.auditing.population import Upbringing, Variant, raise_models
from unweave.auditing.separation import Apart
from unweave.errors import RequestError
from unweave.request import Request
from unweave.training.adam import Progress

__all__ = ["hard_cases", "memorisation", "memorised_request"]

THIRDS = ("least", "middle", "most")
FEWEST = 15


def hard_cases(case: Case, attack: LikelihoodRatio | None) -> list[Probe]:
    """The likelihood ratio on thirds of the deleted nodes, by memorisation and by degree."""
    if attack is None or case.targets < FEWEST:
        return []
    found = []
    by = {"memorised": _gap(case), "connected": _degrees(case)}
    for word, values in by.items():
        order = np.argsort(values, kind="stable")
        for third, chosen in zip(THIRDS, np.array_split(order, 3), strict=True):
            if third == "middle":
                continue
            found.append(
                Probe(
                    f"membership, {third} {word} third",
                    "hard cases",
                    f"Are the {third} {word} of the deleted nodes still treated as training data?",
                    NEW_MODEL,
                    "AUC",
                    lambda s, _, chosen=chosen: Apart.first(attack(s), case.targets, chosen),  # type: ignore[misc]
                )
            )
    return found


def _gap(case: Case) -> np.ndarray:
    """Memorisation of the deleted nodes: loss without minus loss with them."""
    said = np.stack([losses(case, shadow.subject)[: case.targets] for shadow in case.shadows])
    saw = np.stack([shadow.nodes[: case.targets] for shadow in case.shadows])
    found: np.ndarray = (said * ~saw).sum(axis=0) / (~saw).sum(axis=0) - (said * saw).sum(axis=0) / saw.sum(axis=0)
    return found


def _degrees(case: Case) -> np.ndarray:
    degree = torch.bincount(case.data.edge_index[0], minlength=case.data.num_nodes)
    found: np.ndarray = degree[case.nodes[: case.targets]].cpu().numpy()
    return found


def memorisation(
    how: Upbringing,
    data: Data,
    *,
    models: int = 16,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor]:
    """How much each training node is memorised: its loss with models that did not see its label, less that with others.

    Args:
        how: How models are trained.
        data: The graph.
        models: How many are trained, each with half of the labels.
        seed: Decides the halves and the models.
        jobs: Processes that train.
        progress: Called with (models there, models).

    Returns:
        The training nodes, and a number for each.
    """
    nodes = data.train_mask.nonzero().flatten()
    rng = np.random.default_rng([0x3E3, seed])
    order = rng.permuted(np.tile(np.arange(models), (nodes.numel(), 1)), axis=1)
    saw = torch.from_numpy(order < models // 2).to(data.x.device)
    variants = [
        Variant(int(rng.integers(2**31)), Request(labels=nodes[~saw[:, number]].tolist())) for number in range(models)
    ]
    said = torch.zeros(nodes.numel(), models, dtype=torch.float64, device=data.x.device)
    for number, model in raise_models(how, data, variants, jobs=jobs, progress=progress):
        outputs = how.outputs(model, data)
        said[:, number] = -outputs[nodes].gather(1, data.y[nodes][:, None]).flatten()
    without, having = ((said * mask).sum(dim=1) / mask.sum(dim=1) for mask in (~saw, saw))
    return nodes, without - having


def memorised_request(how: Upbringing, data: Data, share: float, *, seed: int = 0, jobs: int = 1) -> Request:
    """A request for the training nodes that are memorised most: the hardest ones to forget.

    Args:
        how: How models are trained.
        data: The graph.
        share: Of the training nodes, above 0 and at most 0.5.
        seed: Of the models that tell.
        jobs: Processes that train.
    """
    if not 0 < share <= 0.5:
        raise RequestError(f"share must be above 0 and at most 0.5, got {share!r}")
    nodes, scores = memorisation(how, data, seed=seed, jobs=jobs)
    count = max(1, round(share * nodes.numel()))
    return Request(nodes=nodes[scores.argsort(descending=True)[:count]].tolist())

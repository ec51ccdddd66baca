"""Draw a random request, as in the experiments of the paper: ``edges:0.05``, ``nodes:0.1``, or a mix."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.errors import EmptyRequestError, RequestError
from unweave.graph import is_undirected
from unweave.request import ALL, KINDS, Request

__all__ = ["draw", "stage"]

FLIPPED = "flipped"


def draw(spec: str, data: Data, *, seed: int = 0) -> Request:
    """Draw each edge, or each training node, with a given probability.

    Args:
        spec: ``kind:probability``, several separated by commas, e.g. ``"edges:0.05,nodes:0.02"``.
            ``edges`` are drawn among all edges (an undirected edge is one draw); ``nodes``,
            ``features`` (whole rows) and ``labels`` among the training nodes.
        data: The graph, with ``train_mask``.
        seed: The same seed draws the same request; each kind has a stream of its own.

    Raises:
        RequestError: The specification cannot be read.
        EmptyRequestError: Nothing was drawn.
    """
    if seed < 0:
        raise RequestError(f"seed must be at least 0, got {seed}")
    chosen: dict[str, list[list[int]]] = {}
    for kind, probability in _parse(spec).items():
        candidates = _edges(data) if kind == "edges" else data.train_mask.nonzero()
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        picked = torch.from_numpy(rng.random(candidates.size(0)) < probability)
        chosen[kind] = candidates.cpu()[picked].tolist()
    if not any(chosen.values()):
        raise EmptyRequestError(
            f"{spec!r} with seed {seed} drew nothing from this graph; raise the probability or change the seed"
        )
    return Request(
        nodes=tuple(row[0] for row in chosen.get("nodes", [])),
        edges=tuple((row[0], row[1]) for row in chosen.get("edges", [])),
        features={row[0]: ALL for row in chosen.get("features", [])},
        labels=tuple(row[0] for row in chosen.get("labels", [])),
    )


def stage(spec: str, data: Data, *, seed: int = 0) -> tuple[Data, Request]:
    """Draw a request for a graph that is yet to be trained on, poisoning the graph first where the request says so.

    Args:
        spec: As for :func:`draw`, or ``flipped:0.2``: each training node's label is wrong with this probability, and
            exactly those nodes are to be forgotten.
        data: The graph, with ``train_mask``.
        seed: Decides the request, and the wrong labels.

    Returns:
        The graph to train on (the caller's is untouched) and the request.
    """
    kind, _, probability = spec.strip().partition(":")
    if kind != FLIPPED:
        return data, draw(spec, data, seed=seed)
    try:
        chance = float(probability)
    except ValueError:
        chance = -1.0
    if not 0 < chance <= 1:
        raise RequestError(f"cannot read {spec!r}; write e.g. flipped:0.2, alone")
    request = draw(f"nodes:{probability}", data, seed=seed)
    if data.y.dim() != 1 or data.y.is_floating_point() or int(data.y.max()) < 1:
        raise RequestError(f"{spec!r} needs one class label a node, of at least two classes, to flip")
    classes = int(data.y.max()) + 1
    nodes = torch.tensor(request.nodes)
    rng = np.random.default_rng([seed, len(KINDS)])
    shift = torch.from_numpy(rng.integers(1, classes, size=nodes.numel())).to(data.y)
    poisoned = data.clone()
    poisoned.y = data.y.clone()
    poisoned.y[nodes] = (poisoned.y[nodes] + shift) % classes
    return poisoned, request


def _parse(spec: str) -> dict[str, float]:
    parts: dict[str, float] = {}
    for part in spec.split(","):
        kind, _, text = part.strip().partition(":")
        if kind == FLIPPED:
            raise RequestError(f"{spec!r} poisons a graph before training, so it stands alone and only in a comparison")
        try:
            probability = float(text)
        except ValueError:
            probability = -1.0
        if kind not in KINDS or not 0 < probability <= 1:
            raise RequestError(
                f"cannot read {part.strip()!r}; write a kind ({', '.join(KINDS)}), a colon and a probability "
                "above 0 and at most 1, e.g. edges:0.05"
            )
        if kind in parts:
            raise RequestError(f"{kind} is named twice in {spec!r}; give one probability for each kind")
        parts[kind] = probability
    return parts


def _edges(data: Data) -> Tensor:
    """The edges as pairs, each once, in an order that does not depend on how they are stored."""
    pairs: Tensor = data.edge_index.t()
    if is_undirected(data):
        pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
    distinct: Tensor = torch.unique(pairs, dim=0)
    return distinct

"""Draw a random request, as in the experiments of the paper: ``edges:0.05``, ``nodes:0.1``, or a mix."""

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.mapped import Structure, structure_of
from unweave.errors import EmptyRequestError, RequestError
from unweave.graph.index import distinct_edges
from unweave.request import ALL, KINDS, Request
from unweave.tasks.task import Task

__all__ = ["MEMORISED", "POISONS", "draw"]

POISONS = ("flipped", "crossed", "triggered")
"""Kinds that poison a graph first (:mod:`unweave.experiments.poison`)."""

MEMORISED = "memorised"
"""A request for the training nodes that are memorised most (:mod:`unweave.auditing.after.hard`)."""


PART = 1 << 22
"""Edges of a folder that are looked at a time."""


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
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        if kind == "edges" and (known := structure_of(data.edge_index)) is not None:
            chosen[kind] = _mapped_edges(data.edge_index, known, rng, probability)
            continue
        candidates = distinct_edges(data) if kind == "edges" else _nodes(kind, data).nonzero()
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


def _mapped_edges(
    edge_index: Tensor, known: Structure, rng: np.random.Generator, probability: float
) -> list[list[int]]:
    """The same draw among the edges of a folder, a part at a time."""
    found: list[list[int]] = []
    for first in range(0, edge_index.size(1), PART):
        if known.out_edge is None:  # undirected: by target, each pair where that is the smaller end
            pairs = edge_index[:, first : first + PART].flip(0)
            pairs = pairs[:, pairs[0] <= pairs[1]]
        else:
            pairs = edge_index[:, known.out_edge[first : first + PART]]
        found += pairs[:, torch.from_numpy(rng.random(pairs.size(1)) < probability)].t().tolist()
    return found


def _nodes(kind: str, data: Data) -> Tensor:
    """Nodes to draw from: training nodes; on the graph of a task features are of nodes that need not be examples."""
    chosen: Tensor = data.featured() if kind == "features" and isinstance(data, Task) else data.train_mask
    return chosen


def _parse(spec: str) -> dict[str, float]:
    parts: dict[str, float] = {}
    for part in spec.split(","):
        kind, _, text = part.strip().partition(":")
        if kind in POISONS:
            raise RequestError(f"{spec!r} poisons a graph before training, so it stands alone and only in a comparison")
        if kind == MEMORISED:
            raise RequestError(f"{spec!r} is drawn by models of its own, so it stands alone and only in a comparison")
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

"""Draw a random request, as in the experiments of the paper: ``edges:0.05``, ``nodes:0.1``, or a mix."""

import numpy as np
import torch
from torch_geometric.data import Data

from unweave.errors import EmptyRequestError, RequestError
from unweave.graph import distinct_edges, is_undirected
from unweave.request import ALL, KINDS, Request

__all__ = ["draw", "is_poisoned", "stage"]

FLIPPED, CROSSED = "flipped", "crossed"


def is_poisoned(spec: str) -> bool:
    """Whether a request poisons the graph before training."""
    return spec.strip().partition(":")[0] in (FLIPPED, CROSSED)


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
        candidates = distinct_edges(data) if kind == "edges" else data.train_mask.nonzero()
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
        spec: As for :func:`draw`; or ``flipped:0.2``: each training node's label is wrong with this probability, and
            exactly those nodes are to be forgotten; or ``crossed:0.5``: half as many edges as there are, each between
            two training nodes of different classes, are added, and exactly those are to be forgotten.
        data: The graph, with ``train_mask``.
        seed: Decides the request, and the poison.

    Returns:
        The graph to train on (the caller's is untouched) and the request.
    """
    if not is_poisoned(spec):
        return data, draw(spec, data, seed=seed)
    kind, _, text = spec.strip().partition(":")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise RequestError(f"cannot read {spec!r}; write e.g. {kind}:0.2, alone")
    known = data.y[data.train_mask]
    if known.dim() != 1 or known.is_floating_point() or int(known.max()) == int(known.min()):
        raise RequestError(f"{spec!r} needs one class label a node, of at least two classes")
    rng = np.random.default_rng([seed, len(KINDS) + (kind == CROSSED)])
    return _flip(data, draw(f"nodes:{text}", data, seed=seed), rng) if kind == FLIPPED else _cross(data, share, rng)


def _flip(data: Data, request: Request, rng: np.random.Generator) -> tuple[Data, Request]:
    classes = int(data.y[data.train_mask].max()) + 1
    nodes = torch.tensor(request.nodes)
    shift = torch.from_numpy(rng.integers(1, classes, size=nodes.numel())).to(data.y)
    poisoned = data.clone()
    poisoned.y[nodes] = (poisoned.y[nodes] + shift) % classes
    return poisoned, request


def _cross(data: Data, share: float, rng: np.random.Generator) -> tuple[Data, Request]:
    attributes = [key for key in data.edge_attrs() if key != "edge_index"]
    if attributes:
        raise RequestError(f"crossed edges have no {attributes[0]}; use a graph without edge attributes")
    nodes, labels = data.train_mask.nonzero().flatten().cpu().numpy(), data.y.cpu().numpy()
    taken = {tuple(sorted(pair)) for pair in data.edge_index.t().tolist()}
    both = is_undirected(data)
    wanted = round(share * (distinct_edges(data).size(0)))
    if not wanted:
        raise EmptyRequestError(f"crossed:{share:g} adds no edge to this graph; raise the share")
    found: list[tuple[int, int]] = []
    for _ in range(1000 * wanted):
        if len(found) == wanted:
            break
        u, v = (int(node) for node in rng.choice(nodes, 2))
        pair = (min(u, v), max(u, v))
        if labels[u] != labels[v] and pair not in taken:
            taken.add(pair)
            found.append(pair if both else (u, v))
    else:
        raise RequestError(f"the graph has no room for {wanted} edges between its classes; lower the share")
    edges = torch.tensor(found, dtype=torch.long, device=data.edge_index.device).t()
    poisoned = data.clone()
    poisoned.edge_index = torch.cat([data.edge_index, edges, *([edges.flip(0)] if both else [])], dim=1)
    return poisoned, Request(edges=tuple(found))


def _parse(spec: str) -> dict[str, float]:
    parts: dict[str, float] = {}
    for part in spec.split(","):
        kind, _, text = part.strip().partition(":")
        if kind in (FLIPPED, CROSSED):
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

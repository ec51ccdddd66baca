"""Poison a graph before training, and tell how much of the poison a model still carries.

============== ==============================================================================================
``flipped``    labels of training nodes are wrong, each another class
``crossed``    edges are added between training nodes of different classes
``triggered``  a backdoor: training nodes of other classes carry a fixed pattern of features, and the label of a
               target class
============== ==============================================================================================
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.errors import DataError, EmptyRequestError, RequestError
from unweave.graph.draw import POISONS, draw
from unweave.graph.index import distinct_edges, is_undirected
from unweave.objective.objective import Forward, call
from unweave.objective.scores import log_probabilities
from unweave.request import KINDS, Request

__all__ = ["Poisoned", "attack_success", "is_poisoned", "poison", "stage"]

FLIPPED, CROSSED, TRIGGERED = POISONS

COLUMNS = 5
"""Columns of a trigger."""


@dataclass(frozen=True)
class Poisoned:
    """A graph with a poison in it.

    Attributes:
        kind: ``flipped``, ``crossed`` or ``triggered``.
        data: The graph to train on.
        poison: All that was poisoned, as a request: the nodes with a wrong label, or the edges that were added.
        request: What is asked to be forgotten: all of it, or a part.
        columns: The features that the trigger sets.
        values: What it sets them to.
        target: The class that the trigger stands for.
    """

    kind: str
    data: Data
    poison: Request
    request: Request
    columns: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    target: int | None = None

    @property
    def nodes(self) -> Tensor:
        """Ids of the nodes with a wrong label."""
        return torch.tensor(self.poison.nodes, dtype=torch.long, device=self.data.x.device)

    @property
    def wrong(self) -> Tensor:
        """Their wrong labels."""
        labels: Tensor = self.data.y[self.nodes]
        return labels

    def triggered(self, x: Tensor, nodes: Tensor) -> Tensor:
        """A copy of some features in which nodes, given as a mask or as ids, carry the trigger."""
        x = x.clone()
        for column, value in zip(self.columns, self.values, strict=True):
            x[nodes, column] = value
        return x


def is_poisoned(spec: str) -> bool:
    """Whether a request poisons the graph before training."""
    return spec.strip().partition(":")[0] in POISONS


def stage(spec: str, data: Data, *, seed: int = 0) -> tuple[Data, Request]:
    """Draw a request for a graph that is yet to be trained on, poisoning the graph first where the request says so.

    Args:
        spec: As for :func:`poison` or :func:`unweave.draw`.
        data: The graph, with ``train_mask``.
        seed: Decides the request, and the poison.

    Returns:
        The graph to train on (the caller's is untouched) and the request.
    """
    if not is_poisoned(spec):
        return data, draw(spec, data, seed=seed)
    found = poison(spec, data, seed=seed)
    return found.data, found.request


def poison(spec: str, data: Data, *, seed: int = 0) -> Poisoned:
    """Poison a graph, and ask for the poison to be forgotten.

    Args:
        spec: ``flipped:0.2``: each training node's label is wrong with this probability; ``crossed:0.5``: half as many
            edges as there are, each between two training nodes of different classes, are added; ``triggered:0.1``: each
            training node of another class than the target's, which the seed decides, carries the trigger with this
            probability and is labelled as the target. Exactly those nodes or edges are to be forgotten, or with
            ``flipped:0.2@0.5`` half of them: the poison is the same.
        data: The graph, with ``train_mask``; it is left as it is.
        seed: Decides all of it.

    Raises:
        RequestError: The specification cannot be read, or the graph cannot be poisoned so.
        EmptyRequestError: Nothing was drawn.
    """
    kind, _, text = spec.strip().partition(":")
    shares = [_number(share) for share in text.split("@")]
    if kind not in POISONS or len(shares) > 2 or not all(0 < share <= 1 for share in shares):
        raise RequestError(
            f"cannot read {spec!r}; write one of {', '.join(POISONS)} with a share, alone, e.g. flipped:0.2, or with "
            "the part of it that is to be forgotten, flipped:0.2@0.5"
        )
    known = data.y[data.train_mask]
    if known.dim() != 1 or known.is_floating_point() or int(known.max()) == int(known.min()):
        raise RequestError(f"{spec!r} needs one class label a node, of at least two classes")
    rng = np.random.default_rng([seed, len(KINDS) + POISONS.index(kind)])
    if kind == FLIPPED:
        found = _flip(data, draw(f"nodes:{shares[0]}", data, seed=seed), rng)
    else:
        found = (_cross if kind == CROSSED else _trigger)(data, shares[0], rng)
    return found if len(shares) == 1 else replace(found, request=_part(found.poison, shares[1], seed))


def attack_success(model: nn.Module, graph: Data, poisoned: Poisoned, forward: Forward = call) -> float:
    """How often a poison does what it is there for, 0 to 1; a clean model's is not 0 but what it gets wrong by itself.

    ``flipped``: of the nodes with a wrong label, those that are predicted as that label. They are asked for in the
    graph as it was before any of them was deleted, since a deleted node has nothing to be predicted from. ``crossed``:
    of the ends of the added edges, those that are predicted as a class at the other end. ``triggered``: of the
    validation and test nodes of other classes than the target, those that are predicted as the target once all of them
    carry the trigger; their labels serve for nothing else.

    Args:
        model: The model.
        graph: The graph that it answers on: what remains, or what it was trained on.
        poisoned: The poison.
        forward: How to call the model.
    """
    if poisoned.kind == FLIPPED:
        found = log_probabilities(model, poisoned.data, forward).argmax(dim=-1)
        return _share(found[poisoned.nodes] == poisoned.wrong)
    if poisoned.kind == CROSSED:
        found = log_probabilities(model, graph, forward).argmax(dim=-1)
        u, v = poisoned.poison.pairs.to(found.device).t()
        nodes, others = torch.cat([u, v]), poisoned.data.y[torch.cat([v, u])]
        fooled = torch.zeros_like(found, dtype=torch.bool)
        fooled[nodes[found[nodes] == others]] = True
        return _share(fooled[torch.unique(nodes)])
    assert poisoned.target is not None
    asked = _others(graph, poisoned.target)
    probed = copy.copy(graph)
    probed.x = poisoned.triggered(graph.x, asked)
    found = log_probabilities(model, probed, forward).argmax(dim=-1)
    return _share(found[asked].eq(poisoned.target))


def _others(graph: Data, target: int) -> Tensor:
    """Mask of the validation and test nodes of other classes than the target."""
    asked = torch.zeros_like(graph.train_mask)
    for name in ("val_mask", "test_mask"):
        asked |= graph.get(name, asked)
    asked &= (graph.y >= 0) & (graph.y != target)
    if not bool(asked.any()):
        raise DataError(
            f"there is no validation or test node of another class than {target} to put the trigger on; give the graph "
            "a val_mask or a test_mask"
        )
    return asked


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _part(whole: Request, share: float, seed: int) -> Request:
    """So much of the nodes or edges of a request, at least one."""
    rng = np.random.default_rng([seed, len(KINDS) + len(POISONS)])
    items: tuple[object, ...] = whole.nodes or whole.edges
    chosen = sorted(rng.permutation(len(items))[: max(1, round(share * len(items)))].tolist())
    if whole.nodes:
        return Request(nodes=[whole.nodes[i] for i in chosen])
    return Request(edges=[whole.edges[i] for i in chosen])


def _flip(data: Data, request: Request, rng: np.random.Generator) -> Poisoned:
    classes = int(data.y[data.train_mask].max()) + 1
    nodes = torch.tensor(request.nodes)
    shift = torch.from_numpy(rng.integers(1, classes, size=nodes.numel())).to(data.y)
    poisoned = data.clone()
    poisoned.y[nodes] = (poisoned.y[nodes] + shift) % classes
    return Poisoned(FLIPPED, poisoned, request, request)


def _trigger(data: Data, share: float, rng: np.random.Generator) -> Poisoned:
    present = torch.unique(data.y[data.train_mask]).tolist()
    target = int(present[rng.integers(len(present))])
    width = int(data.x.size(1))
    columns = sorted(rng.permutation(width)[: min(COLUMNS, width)].tolist())
    highest = data.x[:, columns].max(dim=0).values
    values = torch.where(highest > 0, highest, data.x.max()).tolist()
    others = (data.train_mask & (data.y != target)).nonzero().flatten().cpu()
    nodes = others[torch.from_numpy(rng.random(others.numel()) < share)]
    if not nodes.numel():
        raise EmptyRequestError(f"triggered:{share:g} drew no node of this graph; raise the share or change the seed")
    request = Request(nodes=nodes.tolist())
    found = Poisoned(TRIGGERED, data.clone(), request, request, tuple(columns), tuple(values), target)
    found.data.x = found.triggered(data.x, nodes)
    found.data.y[nodes] = target
    return found


def _cross(data: Data, share: float, rng: np.random.Generator) -> Poisoned:
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
    request = Request(edges=tuple(found))
    return Poisoned(CROSSED, poisoned, request, request)

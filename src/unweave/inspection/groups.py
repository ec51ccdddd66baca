"""Groups: the items that together change a quantity most, and what whole parts of the graph do to it."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.errors import RequestError
from unweave.graph.edit import stored_edges
from unweave.inspection.opening import open_scores
from unweave.inspection.removals import Removals, edges_apart, label_removals, node_removals, row_removals
from unweave.inspection.scores import Kind, Scored, Scores
from unweave.request import Request
from unweave.unlearning import unlearn

__all__ = ["Community", "Strongest", "communities", "contribution", "strongest"]

POOL = 4
"""Times as many items as are wanted are looked at: those with the largest scores."""

ROUNDS = 30
"""Of label propagation, which is done before as a rule."""


@dataclass(frozen=True)
class Strongest:
    """Items that together change a quantity most, in the order in which they were taken.

    Attributes:
        items: Each with its score on the graph without those before it, from a model that has forgotten them.
        together: The predicted effect of all of them, step by step.
        apart: The sum of their scores on the graph as it is: what they would do if effects did not interact.
    """

    items: tuple[Scored, ...]
    together: float
    apart: float


def strongest(found: Scores, kind: Kind, k: int, *, order: Literal["lowers", "raises"] = "lowers") -> Strongest:
    """The k items that together lower, or raise, the quantity most: greedily, each on what the last one left.

    Of two edges that do the same, the second does little once the first is gone. So after every item the model forgets
    it by ``gif``, and the others are scored anew on the remaining graph.

    Args:
        found: The inspection.
        kind: ``"nodes"``, ``"labels"``, ``"edges"`` or ``"rows"``.
        k: How many.
        order: Whether to lower or to raise.
    """
    if kind == "features":
        raise RequestError("columns are not taken one after the other; ask group() for the effect of some together")
    pool = [one.item for one in found.top(kind, POOL * k, order=order)]
    first = {one.item: one.effect for one in found.top(kind, POOL * k, order=order)}
    sign, now, items = (-1 if order == "lowers" else 1), found, list[Scored]()
    while pool and len(items) < k:
        scores = now.subject.scorer.score(_removals(now.subject.data, kind, pool)).tolist()
        best = max(range(len(pool)), key=lambda i: sign * scores[i])
        if sign * scores[best] <= 0:
            break
        items.append(Scored(kind, pool.pop(best), scores[best]))
        if pool and len(items) < k:
            now = _without(now, found.request(items[-1]))
    return Strongest(tuple(items), sum(one.effect for one in items), sum(first[one.item] for one in items))


def _removals(data: Data, kind: Kind, items: list[int | tuple[int, int]]) -> Removals:
    ids = torch.tensor(items, dtype=torch.long, device=data.x.device)
    if kind == "edges":
        return edges_apart(data, ids)[1]
    make = {"nodes": node_removals, "labels": label_removals, "rows": row_removals}[kind]
    return make(data, ids)


def _without(found: Scores, request: Request) -> Scores:
    """The inspection of the model that has forgotten a request, of the same quantity."""
    subject = found.subject
    objective, quantity = subject.objective, subject.quantity
    done = unlearn(
        objective.model,
        objective.data,
        request,
        "gif",
        weight_decay=found.weight_decay,
        loss=objective.loss,
        forward=objective.forward,
        allow_class_loss=True,
        prepared=subject.prepared,
    )
    if quantity.weights is not None and request.nodes:
        gone = torch.tensor(list(request.nodes), device=quantity.weights.device)
        quantity = replace(quantity, weights=quantity.weights.index_fill(0, gone, 0))
    return open_scores(
        done.model,
        done.data,
        quantity,
        weight_decay=found.weight_decay,
        loss=objective.loss,
        forward=objective.forward,
        prepared=done.prepared,
        hops=subject.reach.steps,
        memory_mib=subject.memory_mib,
    )


@dataclass(frozen=True)
class Community:
    """A part of the graph, and what the quantity would be without it.

    Attributes:
        nodes: Its nodes.
        effect: The predicted change of the quantity if all were deleted.
    """

    nodes: tuple[int, ...]
    effect: float


def communities(found: Scores, parts: Tensor | None = None, *, most: int = 20) -> list[Community]:
    """What whole communities do to the quantity, those of largest effect first.

    Args:
        found: The inspection.
        parts: The number of each node's community, ``[nodes]``; by label propagation where none is given.
        most: How many are looked at, the largest ones; each takes two passes.
    """
    data = found.subject.objective.data
    parts = _propagated(data) if parts is None else parts
    if not isinstance(parts, Tensor) or parts.shape != (data.num_nodes,) or parts.is_floating_point():
        raise RequestError(f"parts must be a whole number for each of {data.num_nodes} nodes")
    numbers, counts = torch.unique(parts, return_counts=True)
    largest = numbers[counts.argsort(descending=True, stable=True)][:most]
    told = []
    for number in largest.tolist():
        nodes = (parts == number).nonzero().flatten()
        if not bool(data.train_mask[~torch.isin(torch.arange(data.num_nodes, device=parts.device), nodes)].any()):
            continue  # nothing would be left to train on
        told.append(Community(tuple(nodes.tolist()), found.group(Request(nodes=nodes.tolist()))))
    return sorted(told, key=lambda one: -abs(one.effect))


def _propagated(data: Data) -> Tensor:
    """Communities by label propagation (Raghavan et al., 2007), every node in turn taking its neighbours' commonest.

    Nodes are taken in two halves, so that two of them do not change places for ever; of equally common labels the
    smallest is taken.
    """
    size = int(data.num_nodes)
    source, target = stored_edges(data)
    label = torch.arange(size, device=source.device)
    half = torch.randperm(size, generator=torch.Generator().manual_seed(0)).to(source.device) % 2 == 0
    for _ in range(ROUNDS):
        before = label
        for turn in (half, ~half):
            keys, counts = torch.unique(target * size + label[source], return_counts=True)
            order = (counts * size - keys % size).argsort(stable=True)  # the commonest last, of those the smallest
            new = label.clone()
            new[keys[order] // size] = keys[order] % size
            label = torch.where(turn, new, label)
        if torch.equal(label, before):
            break
    return label


def contribution(found: Scores, request: Request) -> float:
    """What a subject contributed to the quantity: it would be so much less had it never been there."""
    return -found.group(request)

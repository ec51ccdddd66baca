"""Carry out a change on a graph: what is forgotten goes, what is corrected becomes other, what is new comes.

Node ids never shift: new nodes come at the end. The graph before is the old one with a blank row for each of them, so
that both graphs have the same nodes, and a change is to every method what a request is.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.words import listed
from unweave.changes import Change
from unweave.changes.values import Edge
from unweave.errors import EmptyRequestError, RequestError
from unweave.graph.edit import MASKS, stored_edges
from unweave.graph.grown import check_growth, corrected, growth_of, labelled, padded, reweighed, with_growth
from unweave.graph.index import among, carried, edge_keys, symmetric
from unweave.graph.removal import Removal, check_request, remove
from unweave.request import ALL, Request
from unweave.tasks.growth import Growth, turned
from unweave.tasks.task import Task

__all__ = ["Alteration", "alter"]


@dataclass(frozen=True)
class Alteration(Removal):
    """A change carried out: the new graph, and what went, came and became other.

    The attributes of :class:`~unweave.graph.removal.Removal` hold for it: ``request`` names all that the change
    touches, ``edges`` are the stored ones that went, ``features`` the nodes whose features are others now, new nodes
    included, and ``labels`` those that lost a label in use, got one or have another.

    Attributes:
        old: The old graph, as it was given.
        before: The old graph, with a blank row for each new node.
        added: Ids of the new nodes.
        came: The stored edges that came, ``[2, m]``.
        weighed: The stored edges that weigh something else.
        done: What was done, by its ids and without values, for the receipt.
        numbers: How much that is.
    """

    old: Data
    before: Data
    added: Tensor
    came: Tensor
    weighed: Tensor
    done: dict[str, Any]
    numbers: dict[str, int]

    @property
    def content(self) -> dict[str, Any]:
        """What was carried out, as a receipt has it."""
        return self.done

    @property
    def counts(self) -> dict[str, int]:
        """How much went, came and was corrected."""
        return self.numbers

    @property
    def stored_edges_before(self) -> int:
        """Stored edges that there were."""
        return int(self.before.edge_index.size(1))

    @property
    def moved(self) -> Tensor:
        """The stored edges that went, came or weigh something else."""
        return torch.cat([self.edges, self.came, self.weighed], dim=1)

    @cached_property
    def both(self) -> Data:
        """The nodes with the edges of both graphs, along which an influence may spread."""
        return Data(x=self.before.x, edge_index=torch.cat([stored_edges(self.before), self.came], dim=1))


def alter(data: Data, change: Change) -> Alteration:
    """Carry out ``change`` on a copy of ``data``; refuse what does not fit the graph.

    Raises:
        RequestError: An id that is not in the graph, an edge that is there already, a value that none can have.
        EmptyRequestError: The graph is already as the change wants it.
    """
    check_growth(data, change)
    size = data.x.size(0)
    undirected = symmetric(stored_edges(data), size, *carried(data))
    growth = None if isinstance(data, Task) else _plain_growth(data, change, undirected)
    named = (
        change.correct.edge_weights
        if growth is None
        else _ordered(change.correct.edge_weights, "correct.edge_weights", undirected)
    )
    _check_ids("correct.features", change.correct.features, size, len(change.add.nodes))
    _check_ids("correct.labels", change.correct.labels, size, len(change.add.nodes))
    forget = None if change.forget is None else check_request(data, change.forget)
    if forget is not None:
        _refuse_forgotten(change.add.edges if growth is None else growth.pairs, "add.edges", forget)
        _refuse_forgotten(named, "correct.edge_weights", forget)
    gone = None if forget is None else _removed(data, forget)
    left = data if gone is None else gone.data
    if growth is None:
        assert isinstance(left, Task)
        growth = left.growth(change)  # nothing new rests on what goes
    before, grown = padded(data, growth), with_growth(padded(left, growth), growth)
    old, (x, rows) = grown, corrected(grown, change)
    grown = copy.copy(grown)
    grown.x = x
    grown, relabelled = _relabelled(grown, change)
    grown, weighed = reweighed(grown, growth.weights)
    none = torch.zeros(0, dtype=torch.long, device=data.x.device)
    added = torch.arange(size, size + growth.count, device=data.x.device)
    touched = torch.tensor(sorted(rows), dtype=torch.long, device=data.x.device)
    other = touched[(grown.x[touched] != old.x[touched]).any(dim=1)]
    went, nodes, lost, labels = (
        (stored_edges(data)[:, :0], none, none, none)
        if gone is None
        else (gone.edges, gone.nodes, gone.features, gone.labels)
    )
    if not any(part.numel() for part in (went, lost, labels, other, relabelled, weighed, growth.edges, added)):
        raise EmptyRequestError(f"the graph is already as this change wants it ({change.describe()})")
    fresh = torch.stack([value for name, value in growth.rows.items() if name in MASKS]).any(dim=0)
    return Alteration(
        request=_touched(change, forget, growth.pairs, named, added.tolist()),
        graph=grown,
        undirected=undirected or (isinstance(data, Task) and data.both_ways),
        edges=went,
        nodes=nodes,
        features=torch.unique(torch.cat([lost, other, added])),
        labels=torch.unique(torch.cat([labels, relabelled, added[fresh]])),
        old=data,
        before=before,
        added=added,
        came=growth.edges,
        weighed=weighed,
        done=_done(change, forget, growth, named, went=gone is not None),
        numbers={
            **(_NOTHING if gone is None else gone.counts),
            "added_nodes": len(change.add.nodes),
            "added_edges": len(growth.pairs),
            **({"added_graphs": len(change.add.graphs)} if change.add.graphs else {}),
            "added_stored_edges": growth.edges.size(1),
            "corrected_rows": other.numel(),
            "corrected_labels": relabelled.numel(),
            "corrected_weights": len(named),
        },
    )


_NOTHING = {"nodes": 0, "edges": 0, "stored_edges": 0, "feature_rows": 0, "labels": 0}


def _removed(data: Data, forget: Request) -> Removal | None:
    try:
        return remove(data, forget)
    except EmptyRequestError:  # the rest of the change is carried out all the same
        return None


def _relabelled(data: Data, change: Change) -> tuple[Data, Tensor]:
    """A graph with corrected labels, and the nodes that have another one, or one at last."""
    nodes = torch.tensor(list(change.correct.labels), dtype=torch.long, device=data.x.device)
    if not nodes.numel():
        return data, nodes
    y = labelled(data, change.correct.labels, "correct.labels")
    used = torch.zeros_like(data.train_mask)
    for name in MASKS:
        used = used | data[name] if data.get(name) is not None else used
    new = nodes[~used[nodes]]
    same = (y[nodes] == data.y[nodes]).reshape(nodes.numel(), -1).all(dim=1) & used[nodes]
    found = copy.copy(data)
    found.y, found.train_mask = y, data.train_mask.index_fill(0, new, True)
    return found, nodes[~same]


def _plain_growth(data: Data, change: Change, undirected: bool) -> Growth:
    edges, weights = _new_edges(data, change, undirected), _known_edges(data, change, undirected)
    return growth_of(data, change, edges, weights, undirected=undirected)


def _new_edges(data: Data, change: Change, undirected: bool) -> list[Edge]:
    """The edges that come, those of new nodes included, each once; one that is there already is refused."""
    size, count = data.x.size(0), len(change.add.nodes)
    own = [Edge(end, size + i, w) for i, node in enumerate(change.add.nodes) for end, w in node.edges]
    if own and not undirected:
        raise RequestError(
            "add.nodes: on a directed graph the edges of a new node need a direction; name them in add.edges as "
            f"[source, target], where the new nodes are {size} … {size + count - 1}"
        )
    kind = next((edge.kind for edge in change.add.edges if edge.kind is not None), None)
    if kind is not None:
        raise RequestError(f"add.edges: the graph has edges of one type, got some of {kind!r}; give a plain list")
    edges = _ordered([*change.add.edges, *own], "add.edges", undirected)
    _check_ids("add.edges", [end for edge in edges for end in edge[:2]], size, 0, last=size + count)
    there = _present(data, edges)
    if there:
        hint = " to change its weight use correct.edge_weights" if data.get("edge_weight") is not None else ""
        raise RequestError(f"add.edges: {listed(there)}: there already; leave it out{';' + hint if hint else ''}")
    return edges


def _known_edges(data: Data, change: Change, undirected: bool) -> list[Edge]:
    edges = _ordered(change.correct.edge_weights, "correct.edge_weights", undirected)
    _check_ids("correct.edge_weights", [end for e in edges for end in e[:2]], data.x.size(0), len(change.add.nodes))
    there = set(_present(data, edges))
    absent = [edge[:2] for edge in edges if edge[:2] not in there]
    if absent and data.get("edge_weight") is not None:
        raise RequestError(f"correct.edge_weights: {listed(absent)}: not in the graph; add.edges adds an edge")
    return edges


def _ordered(edges: Iterable[Edge], where: str, undirected: bool) -> list[Edge]:
    """Edges in canonical order, ``u <= v`` where the graph is undirected; each may be named once."""
    found = [turned(edge) if undirected and edge.source > edge.target else edge for edge in edges]
    twice = sorted(pair for pair, count in Counter(edge[:2] for edge in found).items() if count > 1)
    if twice:
        both = " (in one direction alone, as the graph is undirected)" if undirected else ""
        raise RequestError(f"{where}: named more than once: {listed(twice)}; name each edge once{both}")
    return sorted(found, key=lambda edge: edge[:2])


def _present(data: Data, edges: list[Edge]) -> list[tuple[int, int]]:
    """Those of some edges that the graph has."""
    if not edges:
        return []
    index, size = stored_edges(data), max(data.x.size(0), 1 + max(max(edge[:2]) for edge in edges))
    pairs = torch.tensor([edge[:2] for edge in edges], dtype=torch.long, device=index.device).t()
    stored = torch.unique(edge_keys(index[0], index[1], size))
    found = among(edge_keys(pairs[0], pairs[1], size), stored).tolist()
    return [edge[:2] for edge, there in zip(edges, found, strict=True) if there]


def _check_ids(where: str, ids: Iterable[int], size: int, new: int, last: int | None = None) -> None:
    unknown = sorted({i for i in ids if not 0 <= i < (size if last is None else last)})
    if not unknown:
        return
    if new and unknown[0] < size + new:
        raise RequestError(f"{where}: {listed(unknown)}: a new node; give its values where it is added, in add.nodes")
    known = f"0 … {size - 1}" + ("" if last in (None, size) else f", and the new ones are {size} … {(last or 0) - 1}")
    raise RequestError(f"{where}: {listed(unknown)}: not in the graph, whose nodes are {known}")


def _refuse_forgotten(edges: Iterable[Edge], where: str, forget: Request) -> None:
    gone = {way for edge in forget.edges for way in (edge, edge[::-1])}
    both = sorted({edge[:2] for edge in edges} & gone)
    if both:
        raise RequestError(f"{where}: {listed(both)}: the same change forgets it; leave one of the two out")


def _touched(
    change: Change, forget: Request | None, edges: Iterable[Edge], weights: Iterable[Edge], added: list[int]
) -> Request:
    """All that a change names, as one request: for what depends on how much it touches."""
    features: dict[int, Any] = dict.fromkeys(added, ALL) | (dict(forget.features) if forget is not None else {})
    for node, value in change.correct.features.items():
        known = features.get(node, ())
        whole = isinstance(value, tuple) or known == ALL
        features[node] = ALL if whole else tuple({*known, *value})
    labels = set(change.correct.labels) | (set(forget.labels) if forget is not None else set())
    pairs = [edge[:2] for edge in (*edges, *weights)]
    return Request(
        nodes=() if forget is None else forget.nodes,
        edges=list(dict.fromkeys([*pairs, *(() if forget is None else forget.edges)])),
        features=features,
        labels=labels,
        id=change.id,
        note=change.note,
    )


def _done(
    change: Change, forget: Request | None, growth: Growth, weights: Sequence[Edge], *, went: bool
) -> dict[str, Any]:
    """What is carried out, by its ids; examples that came along are not named."""
    kind = "graphs" if change.add.graphs else "nodes"
    new = {kind: list(growth.named), "edges": [list(edge[:2]) for edge in growth.pairs]}
    correct = change.correct.outline()
    if weights:
        correct["edge_weights"] = [list(edge[:2]) for edge in weights]
    parts: dict[str, Any] = {
        "add": {kind: part for kind, part in new.items() if part},
        "correct": correct,
        "forget": {} if forget is None or not went else forget.content(),
        "once": change.once,
    }
    return {kind: part for kind, part in parts.items() if part}

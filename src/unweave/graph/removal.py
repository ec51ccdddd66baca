"""Carry out a request on a graph, or on a view of one.

Node ids never shift: a deleted node stays as an isolated row without features, label or mask.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.memo import remembered_lightly
from unweave._core.words import listed
from unweave.errors import EmptyRequestError, RequestError
from unweave.graph.edit import MASKS, mask_of, stored_edges
from unweave.graph.index import among, carried, edge_keys, symmetric, uneven_between
from unweave.graph.view import GraphView, as_view
from unweave.request import ALL, Request
from unweave.tasks.task import Task

__all__ = ["Removal", "check_request", "remove", "take"]


@dataclass(frozen=True)
class Removal:
    """A request carried out: the remaining graph and what went.

    Attributes:
        request: The request in canonical form (undirected edges as ``u <= v``).
        graph: The remaining graph G', or a view of it.
        undirected: Whether edges were taken out in both directions.
        edges: The stored edges that went, ``[2, m]``, with those of deleted nodes.
        nodes: Ids of the deleted nodes.
        features: Ids of the nodes that lost features, deleted nodes included.
        labels: Ids of the nodes that lost a label in use, deleted nodes included.
    """

    request: Request
    graph: Data | GraphView
    undirected: bool
    edges: Tensor
    nodes: Tensor
    features: Tensor
    labels: Tensor

    @property
    def data(self) -> Data:
        """The remaining graph; of a view it is built when asked for."""
        return self.graph if isinstance(self.graph, Data) else self.graph.data

    @property
    def stored_edges(self) -> int:
        """Stored edges that remain."""
        return int(self.graph.edge_index.size(1)) if isinstance(self.graph, Data) else self.graph.stored_edges

    @property
    def stored_edges_before(self) -> int:
        """Stored edges that there were."""
        return self.stored_edges + self.edges.size(1)

    @property
    def content(self) -> dict[str, Any]:
        """What was carried out, as a receipt has it."""
        return self.request.content()

    @property
    def moved(self) -> Tensor:
        """The stored edges that messages take no longer as before, ``[2, m]``."""
        return self.edges

    @cached_property
    def touched(self) -> Tensor:
        """Mask of every node that was deleted, is an end of a named edge, or lost features or label."""
        asked = self.request
        ids = torch.tensor([*asked.nodes, *asked.labels, *asked.features], dtype=torch.long)
        named = torch.cat([ids, asked.pairs.flatten()]).to(self.nodes.device)
        return mask_of(torch.cat([named, self.nodes]), self._size)

    @property
    def _size(self) -> int:
        return int(self.graph.x.size(0)) if isinstance(self.graph, Data) else self.graph.size

    @property
    def counts(self) -> dict[str, int]:
        """How much was removed, in the terms of the graph."""
        pairs = edge_keys(self.edges[0], self.edges[1], self._size, ordered=self.undirected)
        return {
            "nodes": self.nodes.numel(),
            "edges": torch.unique(pairs).numel(),
            "stored_edges": self.edges.size(1),
            "feature_rows": self.features.numel(),
            "labels": self.labels.numel(),
        }


def remove(data: Data, request: Request) -> Removal:
    """Carry out ``request`` on a copy of ``data``; refuse what the graph does not hold.

    Raises:
        RequestError: An id, edge or column that is not in the graph, or an edge named in both directions.
        EmptyRequestError: The graph holds none of what is to be forgotten any more.
    """
    after, removal = _take(GraphView.of(data), request)
    return replace(removal, graph=after.built())


def take(view: GraphView, request: Request) -> tuple[GraphView, Removal]:
    """The same on a view: what is left of it, and what went. Nothing of the graph is copied.

    Of a view whose edges are indexed it takes time in proportion to the edges of what goes.
    """
    view.check_untouched()
    return _take(view, request)


def check_request(graph: Data | GraphView, request: Request) -> Request:
    """The request in canonical form; one that names what the graph does not hold is refused as :func:`remove` does."""
    if (view := as_view(graph)).mapped:
        request = _canonical(request, view.base, view.undirected)
        near = view.ids_at(torch.unique(request.pairs[:, 0]))
        _named(view.edge_index[:, near], view.size, request, view.undirected)
        return request
    data = view.data
    edges = stored_edges(data)
    undirected = symmetric(edges, data.num_nodes, *carried(data))
    request = _canonical(request, data, undirected)
    whole = data.complete(request) if isinstance(data, Task) else request
    _named(edges, data.num_nodes, whole, undirected)
    return request


def _take(view: GraphView, request: Request) -> tuple[GraphView, Removal]:
    undirected = view.undirected
    request = _canonical(request, view.base, undirected)
    whole = _with_all(view, request)
    nodes, labels, rows = (
        torch.tensor(list(ids), dtype=torch.long, device=view.gone.device)
        for ids in (whole.nodes, whole.labels, whole.features)
    )
    edge_ids, uneven = _edges_of(view, whole, nodes, undirected)
    features, x = _without(view, whole, nodes, rows)
    unlabelled = torch.unique(torch.cat([nodes, labels]))
    lost = unlabelled[~among(unlabelled, view.unlabelled)]
    in_use = torch.zeros_like(lost, dtype=torch.bool)
    for name in MASKS:
        if view.base.get(name) is not None:
            in_use |= view.base[name][lost]
    lost = lost[in_use]
    if not any(part.numel() for part in (edge_ids, features, lost)):
        raise EmptyRequestError(
            f"the graph no longer holds anything of this request ({request.describe()}): "
            "the edges, features and labels it names are already gone; there is nothing to forget"
        )
    after = view.less(edges=edge_ids, nodes=nodes, rows=features, x=x, unlabelled=unlabelled, uneven=uneven)
    edges = view.edge_index[:, edge_ids]
    both = undirected or (isinstance(view.base, Task) and view.base.both_ways)
    return after, Removal(request, after, both, edges, nodes, features, lost)


def _with_all(view: GraphView, request: Request) -> Request:
    """A request with all that goes along on the graph of a task, such as the examples of a user."""
    if not isinstance(view.base, Task):
        return request
    graph = view.data
    assert isinstance(graph, Task)
    return graph.complete(request)


def _canonical(request: Request, data: Data, undirected: bool) -> Request:
    """A request whose every id is in the graph, with undirected edges as ``u <= v``."""
    size, width = data.num_nodes, data.x.size(1)
    named: list[tuple[str, Sequence[int]]] = [
        ("nodes", request.nodes),
        ("edges", [end for edge in request.edges for end in edge]),
        ("features", list(request.features)),
        ("labels", request.labels),
    ]
    for kind, ids in named:
        unknown = sorted({i for i in ids if not 0 <= i < size})
        if unknown:
            raise RequestError(f"{kind}: {_some(unknown)} not in the graph, whose nodes are 0 … {size - 1}")
    for node, columns in request.features.items():
        outside = [c for c in columns if not 0 <= c < width] if columns != ALL else []
        if outside:
            raise RequestError(
                f"features: column {outside[0]} of node {node} is out of range; the graph has columns 0 … {width - 1}"
            )
    if not undirected or all(u <= v for u, v in request.edges):
        return request
    ordered = [(min(edge), max(edge)) for edge in request.edges]
    both = sorted(edge for edge, count in Counter(ordered).items() if count > 1)
    if both:
        raise RequestError(
            f"edges: {_some(both)} named in both directions; the graph is undirected, name each edge once"
        )
    return replace(request, edges=tuple(ordered))


def _edges_of(view: GraphView, request: Request, nodes: Tensor, undirected: bool) -> tuple[Tensor, int]:
    """Ids of the stored edges that a request takes, and how many more pairs have uneven edges then."""
    # Each edge that may go, and its reverse, touches one of these.
    near = torch.unique(torch.cat([nodes, request.pairs[:, 0].to(nodes.device)]))
    if not near.numel():
        return near, 0
    found = view.ids_at(near)
    ends = view.edge_index[:, found]
    drop = among(ends, nodes).any(dim=0) | _named(ends, view.size, request, undirected)
    if undirected or not bool(drop.any()):
        return found[drop], 0
    pair = edge_keys(ends[0], ends[1], view.size, ordered=True)
    close = among(pair, torch.unique(pair[drop]))
    before, after = (
        uneven_between(ends[:, part], [value[found[part]] for value in carried(view.base)], view.size)
        for part in (close, close & ~drop)
    )
    return found[drop], after - before


def _without(view: GraphView, request: Request, nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the nodes whose features a request changes, sorted, and what it leaves of them."""
    chosen = torch.unique(torch.cat([nodes, rows]))
    before = view.features(chosen)
    x = before.clone()
    x[among(chosen, nodes)] = 0
    for place, columns in zip(torch.searchsorted(chosen, rows).tolist(), request.features.values(), strict=True):
        x[place, slice(None) if columns == ALL else list(columns)] = 0
    changed = (x != before).flatten(1).any(dim=1)
    return chosen[changed], x[changed]


def _named(edge_index: Tensor, size: int, request: Request, undirected: bool) -> Tensor:
    """Mask of the stored edges that a request names; an edge that is not there is refused."""
    drop = torch.zeros(edge_index.size(1), dtype=torch.bool, device=edge_index.device)
    if not request.edges:
        return drop
    pairs = request.pairs.to(edge_index.device).t()
    keys, order = _sorted_keys(edge_index, size)
    wanted, reverse = edge_keys(pairs[0], pairs[1], size), edge_keys(pairs[1], pairs[0], size)
    first, last = _range(keys, wanted)
    if bool((missing := first == last).any()):
        absent = [tuple(edge) for edge in pairs[:, missing].t().tolist()]
        low, high = _range(keys, reverse)
        hint = "; the graph is directed and has the reverse" if bool(((low < high) & missing).any()) else ""
        raise RequestError(f"edges: {_some(absent)} not in the graph{hint}")
    if undirected:
        low, high = _range(keys, reverse)
        first, last = torch.cat([first, low]), torch.cat([last, high])
    count = last - first
    parallel = torch.repeat_interleave(first - count.cumsum(0) + count, count)
    drop[order[parallel + torch.arange(parallel.numel(), device=keys.device)]] = True
    return drop


@remembered_lightly
def _sorted_keys(edge_index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The stored edges as sorted numbers, and where each is stored."""
    keys, order = torch.sort(edge_keys(edge_index[0], edge_index[1], size), stable=True)
    return keys, order


def _range(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where each of some numbers begins and ends among sorted ones."""
    return torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)


def _some(entries: Sequence[object]) -> str:
    return f"{listed(entries)} {'is' if len(entries) == 1 else 'are'}"

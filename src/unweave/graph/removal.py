"""Apply a request to a graph, and find the nodes whose predictions can change.

Node ids never shift: a deleted node stays as an isolated row without features, label or mask.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.memo import derive, remembered
from unweave.errors import EmptyRequestError, RequestError
from unweave.models.reach import Reach
from unweave.request import ALL, Request

if TYPE_CHECKING:
    from unweave.graph.view import GraphView

__all__ = [
    "MASKS",
    "Region",
    "Removal",
    "attributes",
    "canonical",
    "counts",
    "distinct_edges",
    "hops_from",
    "influenced_region",
    "is_undirected",
    "mask_of",
    "named_edges",
    "remaining",
    "remove",
]

MASKS = ("train_mask", "val_mask", "test_mask")


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
        labels: Ids of the nodes that lost their label, deleted nodes included.
        touched: Mask of every node the request names: deleted, end of a named edge, without features or label.
    """

    request: Request
    graph: "Data | GraphView"
    undirected: bool
    edges: Tensor
    nodes: Tensor
    features: Tensor
    labels: Tensor
    touched: Tensor

    @property
    def data(self) -> Data:
        """The remaining graph; of a view it is built when asked for."""
        return self.graph if isinstance(self.graph, Data) else self.graph.data

    @property
    def stored_edges(self) -> int:
        """Stored edges that remain."""
        return int(self.graph.edge_index.size(1)) if isinstance(self.graph, Data) else self.graph.stored_edges

    @property
    def counts(self) -> dict[str, int]:
        """How much was removed, in the terms of the graph."""
        return counts(self.edges, self.nodes, self.features, self.labels, undirected=self.undirected)


@dataclass(frozen=True)
class Region:
    """The nodes whose prediction can change.

    Attributes:
        mask: The region as a node mask.
        sizes: How many nodes are reached first after 0, 1, 2, … message-passing steps.
        reach: How far and along which way messages flow, and how that is known.
    """

    mask: Tensor
    sizes: tuple[int, ...]
    reach: Reach

    @property
    def whole_graph(self) -> bool:
        """Whether the region is the whole graph because the model's hop count is unknown."""
        return self.reach.steps is None


def is_undirected(data: Data) -> bool:
    """Whether every stored edge has its reverse, equally often and with the same ``edge_weight``."""
    return _is_undirected(data.edge_index, data.get("edge_weight"), data.num_nodes)


@remembered
def _is_undirected(edge_index: Tensor, weight: Tensor | None, size: int) -> bool:
    row, col = edge_index
    values = torch.zeros(row.numel(), dtype=torch.float64, device=row.device)
    if weight is not None and row.numel():
        values = weight.reshape(row.numel(), -1)[:, 0].to(torch.float64)
    forward, backward = (_sorted_pairs(a, b, values, size) for a, b in ((row, col), (col, row)))
    return all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))


def distinct_edges(data: Data) -> Tensor:
    """The edges as pairs, each once, in an order that does not depend on how they are stored."""
    pairs: Tensor = data.edge_index.t()
    if is_undirected(data):
        pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
    distinct: Tensor = torch.unique(pairs, dim=0)
    return distinct


def remove(data: Data, request: Request) -> Removal:
    """Carry out ``request`` on a copy of ``data``; refuse what the graph does not hold.

    Raises:
        RequestError: An id, edge or column that is not in the graph, or an edge named in both directions.
        EmptyRequestError: The graph holds none of what is to be forgotten any more.
    """
    size, device = data.num_nodes, data.edge_index.device
    undirected = is_undirected(data)
    request = canonical(request, data, undirected)
    nodes = torch.tensor(request.nodes, dtype=torch.long, device=device)
    gone = mask_of(nodes, size)
    drop = named_edges(data, request, undirected)
    if request.nodes:
        row, col = data.edge_index
        drop |= gone[row] | gone[col]
    dropped = _ids(drop)

    x, feature_nodes = data.x, nodes[:0]
    if request.nodes or request.features:
        x = x.clone()
        x[nodes] = 0
        for node, columns in request.features.items():
            x[node, slice(None) if columns == ALL else list(columns)] = 0
        derive(x, data.x)
        rows = torch.tensor(sorted({*request.nodes, *request.features}), dtype=torch.long, device=device)
        feature_nodes = rows[(x[rows] != data.x[rows]).flatten(1).any(dim=1)]

    unlabelled, label_nodes = gone, nodes[:0]
    if request.nodes or request.labels:
        unlabelled = gone | mask_of(torch.tensor(request.labels, dtype=torch.long, device=device), size)
        in_use = torch.stack([data[name] for name in MASKS if data.get(name) is not None]).any(dim=0)
        label_nodes = _ids(unlabelled & in_use)
    if not (dropped.numel() or feature_nodes.numel() or label_nodes.numel()):
        raise EmptyRequestError(
            f"the graph no longer holds anything of this request ({request.describe()}): "
            "the edges, features and labels it names are already gone; there is nothing to forget"
        )
    touched = unlabelled | mask_of(torch.tensor(list(request.features), dtype=torch.long, device=device), size)
    touched[request.pairs.to(device).flatten()] = True
    return Removal(
        request=request,
        graph=remaining(data, x, ~drop, gone, unlabelled),
        undirected=undirected,
        edges=data.edge_index.index_select(1, dropped),
        nodes=nodes,
        features=feature_nodes,
        labels=label_nodes,
        touched=touched,
    )


def influenced_region(data: Data, removal: Removal, reach: Reach) -> Region:
    """The nodes whose prediction a removal can change, hop by hop along the flow of messages.

    A node whose features change reaches everything within K steps. A removed edge changes what its
    receiver gets in the first step, which leaves K − 1 more; when messages are weighted by degrees it
    also changes the weights of the endpoints' other edges, so both endpoints start at step 0. A deleted
    node is both at once: its neighbours are endpoints.

    Args:
        data: The graph before the removal; the remaining graph has only fewer edges.
        removal: What went.
        reach: The message-passing steps of the model.
    """
    size = data.num_nodes
    if reach.steps is None:
        mask = torch.ones(size, dtype=torch.bool, device=data.edge_index.device)
        return Region(mask, (size,), reach)
    source, target = data.edge_index if reach.flow == "source_to_target" else data.edge_index.flip(0)
    receivers = removal.edges[1 if reach.flow == "source_to_target" else 0]
    mask = mask_of(removal.features, size) | mask_of(removal.nodes, size)
    if reach.normalised:
        mask[removal.edges.flatten()] = True
    sizes = [mask.sum()]
    for step in range(reach.steps):
        reached = mask.clone()
        reached[target[mask[source]]] = True
        if step == 0:
            reached[receivers] = True
        sizes.append(reached.sum() - mask.sum())
        mask = reached
    return Region(mask, tuple(torch.stack(sizes).tolist()), reach)


def hops_from(data: Data, start: Tensor, flow: str) -> Tensor:
    """Steps from the nodes of a mask to every node, along the flow of messages; −1 out of reach."""
    source, target = data.edge_index if flow == "source_to_target" else data.edge_index.flip(0)
    hops = torch.where(start, 0, -1)
    front, step = start, 0
    while bool(front.any()):
        step += 1
        front = mask_of(target[front[source]], start.numel()) & (hops < 0)
        hops[front] = step
    return hops


def counts(edges: Tensor, nodes: Tensor, features: Tensor, labels: Tensor, *, undirected: bool) -> dict[str, int]:
    """How much was removed: stored edges ``[2, m]``, ids of nodes deleted, without features and without a label."""
    row, col = (edges.min(dim=0).values, edges.max(dim=0).values) if undirected and edges.numel() else edges
    pairs = _keys(row, col, int(edges.max()) + 1) if edges.numel() else edges[0]
    return {
        "nodes": nodes.numel(),
        "edges": torch.unique(pairs).numel(),
        "stored_edges": edges.size(1),
        "feature_rows": features.numel(),
        "labels": labels.numel(),
    }


def canonical(request: Request, data: Data, undirected: bool) -> Request:
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


def named_edges(data: Data, request: Request, undirected: bool) -> Tensor:
    """Mask of the stored edges that a request names; an edge that is not there is refused."""
    edge_index, size = data.edge_index, data.num_nodes
    drop = torch.zeros(edge_index.size(1), dtype=torch.bool, device=edge_index.device)
    if not request.edges:
        return drop
    pairs = request.pairs.to(edge_index.device).t()
    keys, order = _sorted_keys(edge_index, size)
    wanted, reverse = _keys(pairs[0], pairs[1], size), _keys(pairs[1], pairs[0], size)
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


@remembered
def _sorted_keys(edge_index: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The stored edges as sorted numbers, and where each is stored."""
    keys, order = torch.sort(_keys(edge_index[0], edge_index[1], size), stable=True)
    return keys, order


def _range(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Where each of some numbers begins and ends among sorted ones."""
    return torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)


def remaining(data: Data, x: Tensor, keep: Tensor, gone: Tensor, unlabelled: Tensor) -> Data:
    """A shallow copy of ``data`` in which only what changes is new memory."""
    left = copy.copy(data)
    of_nodes, of_edges = attributes(data)
    kept = _ids(keep)
    lost, deleted = torch.stack([unlabelled.any(), gone.any()]).tolist()
    if kept.numel() < keep.numel():
        for key in of_edges:
            value = data[key]
            if isinstance(value, list | tuple):
                left[key] = [entry for entry, stays in zip(value, keep.tolist(), strict=True) if stays]
            else:
                left[key] = value.index_select(data.__cat_dim__(key, value), kept)
        derive(left.edge_index, data.edge_index, kept)
    for key in of_nodes:
        value = data[key]
        if isinstance(value, list | tuple):
            left[key] = [None if lost else entry for entry, lost in zip(value, gone.tolist(), strict=True)]
        elif key == "x":
            left.x = x
        elif key in MASKS and lost:
            left[key] = value & ~unlabelled
        elif key == "y" and lost:
            left.y = value.clone()
            missing = torch.nan if value.is_floating_point() else 0 if value.dtype == torch.bool else -1
            left.y[unlabelled] = missing
        elif key not in MASKS and key != "y" and deleted:
            left[key] = value.clone()
            left[key][gone] = 0
    # PyG would otherwise infer the number of nodes from whatever tensor it finds first.
    left.num_nodes = data.num_nodes
    return left


def _sorted_pairs(row: Tensor, col: Tensor, values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    by_value = values.argsort(stable=True)
    keys = _keys(row, col, size)[by_value]
    order = keys.argsort(stable=True)
    return keys[order], values[by_value][order]


def _keys(row: Tensor, col: Tensor, size: int) -> Tensor:
    return row * size + col


def attributes(data: Data) -> tuple[list[str], list[str]]:
    """Names of the attributes of nodes and of edges; where there are as many of both, the name decides for PyG."""
    of_nodes, of_edges = data.node_attrs(), data.edge_attrs()
    both = set(of_nodes) & set(of_edges)
    return (
        [key for key in of_nodes if key not in both or "edge" not in key],
        [key for key in of_edges if key not in both or "edge" in key],
    )


def mask_of(ids: Tensor, size: int) -> Tensor:
    """Ids as a mask."""
    mask = torch.zeros(size, dtype=torch.bool, device=ids.device)
    mask[ids] = True
    return mask


def _ids(mask: Tensor) -> Tensor:
    return mask.nonzero().flatten()


def _some(entries: Sequence[Any]) -> str:
    shown = ", ".join(map(str, entries[:5])) + (", …" if len(entries) > 5 else "")
    return f"{shown} {'is' if len(entries) == 1 else 'are'}"

"""The stored edges of a graph: by either end, as pairs, and whether they go both ways; remembered with the graph."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.mapped import structure_of
from unweave._core.memo import look, remembered_lightly
from unweave.graph.edit import stored_edges
from unweave.graph.mapped_index import MappedSide, mapped_sides
from unweave.tasks.task import Task

__all__ = [
    "CARRIED",
    "GraphIndex",
    "Side",
    "among",
    "carried",
    "distinct_edges",
    "edge_keys",
    "edge_values",
    "graph_index",
    "is_undirected",
    "symmetric",
    "uneven_between",
    "uneven_pairs",
]

CARRIED = ("edge_weight", "edge_attr", "edge_type")
"""What PyG's layers take along an edge. Where it differs by direction, (u, v) and (v, u) are two edges."""


@dataclass(frozen=True)
class Side:
    """The stored edges by one of their ends, in the order in which they are stored.

    Attributes:
        start: Where the edges of each node begin, ``[nodes + 1]``.
        edge: Their ids.
        other: Their other ends.
        degree: How many of each node are no loops.
        weight: The sum of the weights of those.
    """

    start: Tensor
    edge: Tensor
    other: Tensor
    degree: Tensor
    weight: Tensor

    def at(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of some nodes: the position of each one's node among those given, its id and its other end."""
        first = self.start[nodes]
        count = self.start[nodes + 1] - first
        which = torch.repeat_interleave(torch.arange(nodes.numel(), device=nodes.device), count)
        place = torch.arange(which.numel(), device=nodes.device) + (first - count.cumsum(0) + count)[which]
        return which, self.edge[place], self.other[place]


@dataclass(frozen=True)
class GraphIndex:
    """The stored edges by source and by target.

    Attributes:
        out: By source.
        into: By target.
        loops: Ids of the edges from a node to itself, by node.
        loop_nodes: Those nodes, sorted.
        slate: A place to note something of each node, −1 everywhere while nobody does; see :meth:`noting`.
    """

    out: Side | MappedSide
    into: Side | MappedSide
    loops: Tensor
    loop_nodes: Tensor
    slate: Tensor
    lock: Any = field(default_factory=Lock)

    @contextmanager
    def noting(self, wiped: list[Tensor]) -> Iterator[Tensor]:
        """The slate, for one user at a time: lookups by node without sorting and without clearing all of it.

        Args:
            wiped: Filled by the user with the ids of all nodes noted, which are wiped off at the end.
        """
        with self.lock:
            try:
                yield self.slate
            except BaseException:
                self.slate.fill_(-1)
                raise
            for nodes in wiped:
                self.slate[nodes] = -1


def among(ids: Tensor, known: Tensor) -> Tensor:
    """Which ids are in a sorted vector."""
    if not known.numel():
        return torch.zeros_like(ids, dtype=torch.bool)
    return known[torch.searchsorted(known, ids).clamp(max=known.numel() - 1)] == ids


@remembered_lightly
def graph_index(edge_index: Tensor, edge_weight: Tensor | None, size: int) -> GraphIndex:
    """Sort the edges of a graph by either end; those of a folder are sorted there."""
    row, col = edge_index
    if (known := structure_of(edge_index)) is not None:
        out, into = mapped_sides(edge_index, edge_weight, known)
        return GraphIndex(out, into, known.loops, row[known.loops], torch.full((size,), -1))
    values = edge_values(edge_weight, edge_index, None)
    loops = (row == col).nonzero().flatten()
    loops = loops[row[loops].argsort(stable=True)]
    return GraphIndex(
        out=_side(row, col, values, size),
        into=_side(col, row, values, size),
        loops=loops,
        loop_nodes=row[loops],
        slate=torch.full((size,), -1, device=row.device),
    )


def _side(key: Tensor, other: Tensor, values: Tensor, size: int) -> Side:
    edge = key.argsort(stable=True)
    start = torch.zeros(size + 1, dtype=torch.long, device=key.device)
    start[1:] = torch.bincount(key, minlength=size).cumsum(0)
    apart = key != other
    degree = torch.bincount(key[apart], minlength=size)
    weight = torch.bincount(key[apart], values[apart], minlength=size)
    return Side(start, edge, other[edge], degree, weight)


def edge_values(edge_weight: Tensor | None, edge_index: Tensor, chosen: Tensor | None) -> Tensor:
    """The weights of all edges, or of those chosen by id, as one number each; 1 where there are none."""
    count = edge_index.size(1) if chosen is None else chosen.numel()
    if edge_weight is None or not count:
        return torch.ones(count, dtype=torch.float64, device=edge_index.device)
    weight = edge_weight if chosen is None else edge_weight[chosen]
    return weight.reshape(count, -1)[:, 0].to(torch.float64)


def edge_keys(row: Tensor, col: Tensor, size: int, *, ordered: bool = False) -> Tensor:
    """Edges as numbers; those of both directions are the same where ``ordered``."""
    return torch.minimum(row, col) * size + torch.maximum(row, col) if ordered else row * size + col


def is_undirected(data: Data) -> bool:
    """Whether every stored edge has its reverse, equally often and with the same of what messages take along."""
    values = carried(data)
    edges = stored_edges(data)
    for tensor in (edges, *values):
        look(tensor)
    return symmetric(edges, data.num_nodes, *values)


def distinct_edges(data: Data) -> Tensor:
    """The edges as pairs, each once, in an order that does not depend on how they are stored."""
    pairs, own = stored_edges(data).t(), data.own_edges() if isinstance(data, Task) else None
    pairs = pairs if own is None else pairs[own]
    if is_undirected(data) if own is None else symmetric(pairs.t(), data.num_nodes):
        pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
    size = int(data.num_nodes)
    keys = torch.unique(edge_keys(pairs[:, 0], pairs[:, 1], size))
    return torch.stack([keys // size, keys % size], dim=1)


def carried(data: Data) -> tuple[Tensor, ...]:
    """What the edges of a graph carry with their messages."""
    values = (data.get(key) for key in CARRIED)
    return tuple(v for v in values if isinstance(v, Tensor) and v.dim() and v.size(0) == data.edge_index.size(1))


@remembered_lightly
def symmetric(edge_index: Tensor, size: int, *values: Tensor) -> bool:
    """Whether every edge has its reverse, equally often and with the same values."""
    if (known := structure_of(edge_index)) is not None:
        return known.undirected
    row, col = edge_index
    (there, order), (back, reverse) = (edge_keys(a, b, size).sort(stable=True) for a, b in ((row, col), (col, row)))
    if not torch.equal(there, back):
        return False
    if bool((there[1:] == there[:-1]).any()):  # of parallel edges nobody knows which is whose reverse
        return not values or uneven_between(edge_index, values, size) == 0
    return all(torch.equal(value[order], value[reverse]) for value in values)


@remembered_lightly
def uneven_pairs(edge_index: Tensor, size: int, *values: Tensor) -> int:
    """Pairs {u, v} of a whole graph whose edges differ by direction (:func:`uneven_between`)."""
    if (known := structure_of(edge_index)) is not None:
        return known.uneven
    return 0 if symmetric(edge_index, size, *values) else uneven_between(edge_index, values, size)


def uneven_between(edge_index: Tensor, values: Iterable[Tensor], size: int) -> int:
    """Pairs {u, v} between which the edges u → v and v → u are not as many, or do not carry the same values."""
    row, col = edge_index
    if not row.numel():
        return 0
    codes = torch.zeros_like(row)
    for column in (column for value in values for column in value.reshape(row.numel(), -1).t()):
        _, rank = torch.unique(column, return_inverse=True)
        _, codes = torch.unique(codes * row.numel() + rank, return_inverse=True)
    apart = row != col
    row, col, codes = row[apart], col[apart], codes[apart].repeat(2)
    keys = torch.cat([edge_keys(row, col, size), edge_keys(col, row, size)])
    signs = torch.ones_like(keys)
    signs[row.numel() :] = -1
    order = codes.argsort(stable=True)
    order = order[keys[order].argsort(stable=True)]
    keys, codes, signs = keys[order], codes[order], signs[order]
    new = torch.ones_like(keys, dtype=torch.bool)
    new[1:] = (keys[1:] != keys[:-1]) | (codes[1:] != codes[:-1])
    excess = torch.zeros(int(new.sum()), dtype=torch.long, device=keys.device).index_add_(0, new.cumsum(0) - 1, signs)
    uneven = keys[new][excess != 0]
    return int(torch.unique(edge_keys(uneven // size, uneven % size, size, ordered=True)).numel())

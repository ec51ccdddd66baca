"""The stored edges of a graph by either end, sorted once and remembered for as long as nobody writes to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from unweave._core.memo import remembered

__all__ = ["GraphIndex", "Side", "among", "asymmetric_pairs", "edge_values", "graph_index"]


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
        asymmetric: Pairs of nodes whose edges differ by direction, in number or ``edge_weight``; 0 if undirected.
    """

    out: Side
    into: Side
    loops: Tensor
    loop_nodes: Tensor
    slate: Tensor
    asymmetric: int
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


@remembered
def graph_index(edge_index: Tensor, edge_weight: Tensor | None, size: int) -> GraphIndex:
    """Sort the edges of a graph by either end."""
    row, col = edge_index
    values = edge_values(edge_weight, edge_index, None)
    loops = (row == col).nonzero().flatten()
    loops = loops[row[loops].argsort(stable=True)]
    return GraphIndex(
        out=_side(row, col, values, size),
        into=_side(col, row, values, size),
        loops=loops,
        loop_nodes=row[loops],
        slate=torch.full((size,), -1, device=row.device),
        asymmetric=asymmetric_pairs(row, col, values, size),
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


def asymmetric_pairs(row: Tensor, col: Tensor, values: Tensor, size: int) -> int:
    """Pairs {u, v} between which the edges u → v and v → u are not as many, or not of the same weights."""
    apart = row != col
    row, col, values = row[apart], col[apart], values[apart].repeat(2)
    keys = torch.cat([row * size + col, col * size + row])
    signs = torch.ones_like(keys)
    signs[row.numel() :] = -1
    order = values.argsort(stable=True)
    order = order[keys[order].argsort(stable=True)]
    keys, values, signs = keys[order], values[order], signs[order]
    new = torch.ones_like(keys, dtype=torch.bool)
    new[1:] = (keys[1:] != keys[:-1]) | (values[1:] != values[:-1])
    excess = torch.zeros(int(new.sum()), dtype=torch.long, device=keys.device).index_add_(0, new.cumsum(0) - 1, signs)
    uneven = keys[new][excess != 0]
    low, high = torch.minimum(uneven // size, uneven % size), torch.maximum(uneven // size, uneven % size)
    return int(torch.unique(low * size + high).numel())

"""Many removals side by side: what each of them takes from the graph, as numbers that one pass can work on.

Nothing is taken from any graph here. Removal ``i`` is the request that :mod:`unweave.graph.removal` would carry out
for its item alone, spelled out as the stored edges, the rows of features and the labels that would go.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.edit import stored_edges
from unweave.graph.index import GraphIndex, distinct_edges, edge_keys, graph_index, is_undirected
from unweave.inspection.pairs import places

__all__ = ["Removals", "edges_apart", "label_removals", "node_removals", "row_removals"]


@dataclass(frozen=True)
class Removals:
    """Removals 0 … count − 1 of single items; each tensor is ``[2, m]``, a removal above what it takes, by removal.

    Attributes:
        count: How many.
        edges: Ids of stored edges.
        blank: Nodes whose features become zero.
        labels: Nodes whose label is no longer used.
        nodes: Nodes that are deleted, each of them also in ``blank`` and ``labels``.
    """

    count: int
    edges: Tensor
    blank: Tensor
    labels: Tensor
    nodes: Tensor

    def part(self, first: int, last: int) -> "Removals":
        """Removals ``first`` … ``last`` − 1, numbered from 0."""
        pieces = []
        for pairs in (self.edges, self.blank, self.labels, self.nodes):
            low, high = torch.searchsorted(pairs[0].contiguous(), torch.tensor([first, last], device=pairs.device))
            piece = pairs[:, low:high].clone()
            piece[0] -= first
            pieces.append(piece)
        return Removals(last - first, *pieces)

    def some(self, chosen: Tensor) -> "Removals":
        """Those removals whose numbers are given in order, numbered from 0."""
        pieces = []
        for pairs in (self.edges, self.blank, self.labels, self.nodes):
            place, there = places(chosen, pairs[0])
            pieces.append(torch.stack([place[there], pairs[1][there]]))
        return Removals(chosen.numel(), *pieces)

    def chunks(self, sizes: Tensor, most: float) -> Iterator[tuple[int, "Removals"]]:
        """These removals in order, cut so that the sizes in a chunk add up to ``most`` at most, or it has only one.

        Yields:
            The number of the first removal of each chunk, and the chunk.
        """
        ends = sizes.double().cumsum(0).cpu()
        first = 0
        while first < self.count:
            before = float(ends[first - 1]) if first else 0.0
            last = int(torch.searchsorted(ends, torch.tensor(before + most, dtype=torch.float64), right=True))
            last = max(last, first + 1)
            yield first, self.part(first, last)
            first = last


def _numbered(items: Tensor) -> Tensor:
    return torch.stack([torch.arange(items.numel(), device=items.device), items])


def _none(like: Tensor) -> Tensor:
    return torch.zeros(2, 0, dtype=torch.long, device=like.device)


def index_of(data: Data) -> GraphIndex:
    """The stored edges of a graph by either end."""
    return graph_index(stored_edges(data), data.get("edge_weight"), data.num_nodes)


def node_removals(data: Data, nodes: Tensor) -> Removals:
    """Each node deleted, with its edges, features and label."""
    index, edges = index_of(data), stored_edges(data)
    out, into = index.out.at(nodes), index.into.at(nodes)
    loop = edges[0][into[1]] == edges[1][into[1]]  # a loop goes once
    which, ids = torch.cat([out[0], into[0][~loop]]), torch.cat([out[1], into[1][~loop]])
    order = which.argsort(stable=True)
    own = _numbered(nodes)
    return Removals(nodes.numel(), torch.stack([which[order], ids[order]]), own, own, own)


def label_removals(data: Data, nodes: Tensor) -> Removals:
    """Each node's label no longer used."""
    none = _none(nodes)
    return Removals(nodes.numel(), none, none, _numbered(nodes), none)


def row_removals(data: Data, nodes: Tensor) -> Removals:
    """Each node's features set to zero."""
    none = _none(nodes)
    return Removals(nodes.numel(), none, _numbered(nodes), none, none)


def edges_apart(data: Data, pairs: Tensor | None = None) -> tuple[Tensor, Removals]:
    """Each edge removed, of an undirected graph in both directions and with all that run beside it.

    Args:
        data: The graph.
        pairs: Which, ``[m, 2]``; all by default.

    Returns:
        The edges, ``[2, m]``, each once, and their removals.
    """
    chosen = distinct_edges(data) if pairs is None else pairs
    size, stored, both = data.num_nodes, stored_edges(data), is_undirected(data)
    keys = edge_keys(chosen[:, 0], chosen[:, 1], size, ordered=both)
    known, order = keys.sort()
    here = edge_keys(stored[0], stored[1], size, ordered=both)
    place = torch.searchsorted(known, here).clamp(max=max(known.numel() - 1, 0))
    ids = (known[place] == here).nonzero().flatten() if known.numel() else stored[0][:0]
    which = order[place[ids]] if known.numel() else ids
    sort = which.argsort(stable=True)
    none = _none(stored)
    return chosen.t(), Removals(chosen.size(0), torch.stack([which[sort], ids[sort]]), none, none, none)

"""Nodes of many removals at once: node v of removal i is the number i · size + v."""

import torch
from torch import Tensor

from unweave.graph.index import Side, among
from unweave.graph.mapped_index import MappedSide

__all__ = ["ends_of", "joined", "kept_edges", "places", "spread"]


def joined(*keys: Tensor) -> Tensor:
    """Each number once, sorted."""
    found: Tensor = torch.unique(torch.cat(keys))
    return found


def places(known: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Where some numbers stand in a sorted vector, and which of them do."""
    if not known.numel():
        return torch.zeros_like(keys), torch.zeros_like(keys, dtype=torch.bool)
    place = torch.searchsorted(known, keys).clamp(max=known.numel() - 1)
    return place, known[place] == keys


def spread(keys: Tensor, size: int, side: Side | MappedSide) -> tuple[Tensor, Tensor, Tensor]:
    """The edges at some nodes of removals: the position of each one's node, its id, and the key of its other end."""
    which, ids, other = side.at(keys % size)
    return which, ids, (keys // size)[which] * size + other


def kept_edges(removal: Tensor, ids: Tensor, gone: Tensor, stored: int) -> Tensor:
    """Which stored edges are still there: ``gone`` is ``[2, m]``, a removal above the edge it takes."""
    taken = (gone[0] * stored + gone[1]).sort().values
    return ~among(removal * stored + ids, taken)


def ends_of(gone: Tensor, edge_index: Tensor, size: int) -> Tensor:
    """The keys of source and target of the edges that go, ``[2, m]``."""
    return gone[0] * size + edge_index[:, gone[1]]

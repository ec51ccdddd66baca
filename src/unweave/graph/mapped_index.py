"""The edges of a graph in a folder by either end: read off its files, where they lie sorted."""

from dataclasses import dataclass
from functools import cached_property
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from unweave._core.mapped import Structure, release, rows_of
from unweave.datasets.edges import find

__all__ = ["MappedSide", "mapped_sides"]

PART = 1 << 22
"""Edges whose weights are added up at a time."""


@dataclass(frozen=True, eq=False)
class MappedSide:
    """The stored edges by one of their ends; see :class:`~unweave.graph.index.Side`.

    Attributes:
        edge_index: The edges.
        edge_weight: Their weights, where they have any.
        known: How they lie in their file.
        whole: The tensor that is known to be mapped, while it lives.
        into: Whether they are taken by target.
    """

    edge_index: Tensor
    edge_weight: Tensor | None
    known: Structure
    whole: ref[Tensor]
    into: bool

    @property
    def start(self) -> Tensor:
        """Where the edges of each node begin, ``[nodes + 1]``."""
        return self.known.start if self.into or self.known.out_start is None else self.known.out_start

    def at(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of some nodes: the position of each one's node among those given, its id and its other end."""
        first = self.start[nodes]
        count = self.start[nodes + 1] - first
        which = torch.repeat_interleave(torch.arange(nodes.numel()), count)
        place = torch.arange(which.numel()) + (first - count.cumsum(0) + count)[which]
        (source, target), whole = self.edge_index, self.whole()
        whole = self.edge_index if whole is None else whole
        if self.into:
            return which, place, rows_of(source, place, whole)
        if self.known.out_edge is not None:
            ids = rows_of(self.known.out_edge, place)
            return which, ids, rows_of(target, ids, whole)
        # Undirected: whoever a node hears, hears it. The edge that goes there is looked for where that one's begin.
        others = rows_of(source, place, whole)
        found = find(source.numpy(), self.known.start.numpy(), others.numpy(), nodes[which].numpy())
        release(whole)
        return which, torch.from_numpy(found), others

    @cached_property
    def degree(self) -> Tensor:
        """How many edges of each node are no loops."""
        return self.start.diff().index_add_(0, self.edge_index[0][self.known.loops], -torch.ones_like(self.known.loops))

    @cached_property
    def weight(self) -> Tensor:
        """The sum of the weights of those."""
        if self.edge_weight is None:
            return self.degree.double()
        total = np.zeros(self.start.numel() - 1)
        for first in range(0, self.edge_weight.numel(), PART):
            source, target = self.edge_index[:, first : first + PART].numpy()
            value = np.where(source == target, 0, self.edge_weight[first : first + PART].double().numpy())
            total += np.bincount(target if self.into else source, value, minlength=total.size)
        return torch.from_numpy(total)


def mapped_sides(edge_index: Tensor, edge_weight: Tensor | None, known: Structure) -> tuple[MappedSide, MappedSide]:
    """The edges by source and by target."""
    # A view of the tensor: what is remembered of one must not hold it.
    how = edge_index[:], edge_weight, known, ref(edge_index)
    return MappedSide(*how, into=False), MappedSide(*how, into=True)

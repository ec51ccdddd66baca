"""What removals do to the outputs of any module: each on its own copy of the part of the graph that it reaches.

The copies of many removals are one graph whose parts do not touch, so that the module is called once for all of them.
It need not know of edge weights, and nothing is linearised.
"""

import copy
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.edit import attributes, blanked, chosen, lasting, stored_edges
from unweave.inspection.pairs import ends_of, joined, kept_edges, places, spread
from unweave.inspection.removals import Removals, index_of
from unweave.models.reach import Reach

__all__ = ["Copies", "Outputs"]

Outputs = Callable[[Data], tuple[Tensor, Tensor]]
"""The outputs of all nodes of a graph, and derivatives along some directions, ``[nodes, directions, outputs]``."""


class Copies:
    """Outputs after removals, by copies of neighbourhoods.

    Args:
        data: The graph.
        reach: The message-passing steps of the module, which must be known.
        outputs: The module.
    """

    def __init__(self, data: Data, reach: Reach, outputs: Outputs) -> None:
        self._data, self._reach, self._outputs = data, reach, outputs
        self._edges, self._index, self._size = stored_edges(data), index_of(data), int(data.num_nodes)
        onward = reach.flow == "source_to_target"
        self._onward, self._back = (self._index.out, self._index.into)[:: 1 if onward else -1]
        self._target = int(onward)

    @cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """The outputs of all nodes, and their derivatives."""
        return self._outputs(self._data)

    @property
    def _steps(self) -> int:
        assert self._reach.steps is not None
        return self._reach.steps

    def _sizes(self, removals: Removals) -> Tensor:
        """About how many numbers each removal takes, at most."""
        far = torch.ones(self._size, dtype=torch.float64, device=self._edges.device)
        degree = self._onward.start.diff().double() + 1
        for _ in range(2 * self._steps + self._reach.normalised):
            reached = far.clone().index_add_(0, self._edges[0], far[self._edges[1]])
            far = torch.minimum(reached, torch.full_like(far, self._size))
        found = torch.zeros(removals.count, dtype=torch.float64, device=far.device)
        found.index_add_(0, removals.blank[0], far[removals.blank[1]])
        for end in self._edges:
            found.index_add_(0, removals.edges[0], far[end[removals.edges[1]]])
        width: float = self._data.x[0].numel() + float(degree.mean())
        return found.clamp(max=self._size).mul(width)

    def changed(self, removals: Removals, rest: Tensor, most: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The outputs that may change, of some removals after the other: removal, node, outputs and derivatives.

        Args:
            removals: The removals.
            rest: As nothing is left out, it stays as it is.
            most: How many numbers may be held at a time.
        """
        for first, chunk in removals.chunks(self._sizes(removals), most):
            roots = self._region(chunk)
            yield roots // self._size + first, roots % self._size, *self._outputs_at(chunk, roots)

    def at(self, removals: Removals, keys: Tensor, most: float) -> Tensor:
        """The derivatives of some outputs alone: sorted keys, removal · nodes + node."""
        found = []
        for first, chunk in removals.chunks(self._sizes(removals), most):
            bounds = torch.tensor([first, first + chunk.count], device=keys.device) * self._size
            low, high = torch.searchsorted(keys, bounds).tolist()
            found.append(self._outputs_at(chunk, keys[low:high] - first * self._size)[1])
        return torch.cat(found)

    def _outputs_at(self, removals: Removals, keys: Tensor) -> tuple[Tensor, Tensor]:
        every, heard, sent, ids = self._neighbourhoods(removals, keys)
        part = self._part(removals, every, heard, sent, ids)
        place, _ = places(every, keys)
        outputs, derivatives = self._outputs(part)
        return outputs[place], derivatives[place]

    def _region(self, removals: Removals) -> Tensor:
        """Whose output may change, as :func:`unweave.graph.region.influenced_region` has it for one removal."""
        ends = ends_of(removals.edges, self._edges, self._size)
        blank = removals.blank[0] * self._size + removals.blank[1]
        keys = joined(blank, *([ends.flatten()] if self._reach.normalised else []))
        for step in range(self._steps):
            _, _, reached = spread(keys, self._size, self._onward)
            keys = joined(keys, reached, *([ends[self._target]] if step == 0 else []))
        return keys

    def _neighbourhoods(self, removals: Removals, roots: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All nodes that the outputs of some depend on, and the edges among them that are left."""
        keys, front = roots, roots
        heard, sent, ids = [], [], []
        for _ in range(self._steps + self._reach.normalised):  # degrees of the outermost are seen too
            which, edge, other = spread(front, self._size, self._back)
            left = kept_edges((front // self._size)[which], edge, removals.edges, self._edges.size(1))
            which, edge, other = which[left], edge[left], other[left]
            heard.append(front[which])
            sent.append(other)
            ids.append(edge)
            fresh = torch.unique(other)
            front = fresh[~places(keys, fresh)[1]]
            keys = joined(keys, front)
        none = roots[:0]
        return keys, torch.cat([none, *heard]), torch.cat([none, *sent]), torch.cat([none, *ids])

    def _part(self, removals: Removals, keys: Tensor, heard: Tensor, sent: Tensor, ids: Tensor) -> Data:
        """The copies as one graph."""
        base, nodes = self._data, keys % self._size
        part = copy.copy(base)
        part.num_nodes = keys.numel()
        order = (keys // self._size)[places(keys, heard)[0]] * self._edges.size(1) + ids
        order = order.argsort(stable=True)  # as they are stored, for layers that take what comes first
        lost, unlabelled, blank = (
            places(keys, some[0] * self._size + some[1]) for some in (removals.nodes, removals.labels, removals.blank)
        )
        gone, hidden = lost[0][lost[1]], unlabelled[0][unlabelled[1]]
        of_nodes, of_edges = attributes(base)
        for key in of_edges:
            if key != "edge_index":
                part[key] = chosen(base, key, ids[order])
        for key in of_nodes:
            value = base[key]
            rows = value[nodes] if isinstance(value, Tensor) else [value[node] for node in nodes.tolist()]
            part[key] = rows if key == "x" or lasting(base, key) else blanked(key, rows, gone, hidden)
        part.x = part.x.index_fill(0, blank[0][blank[1]], 0)
        ends = torch.stack([places(keys, end)[0] for end in (sent, heard)])
        part.edge_index = (ends if self._target else ends.flip(0))[:, order]
        return part

"""What removals do to the outputs of any module: each on its own copy of the part of the graph that it reaches.

The copies of many removals are one graph, so that the module is called once for all of them. It need not know of edge
weights, and nothing is linearised.

Only what a removal changes is copied. A copy hears the copies of the same removal and, for the rest, the nodes of the
graph as it is, which are there once for all removals and hear no copy. So a node of that graph has more edges away from
it than it should: where a module counts these, or turns edges round, each removal takes all that its copies depend on
with it, and the parts of the graph do not touch. That is many times as much.
"""

import copy
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.edit import attributes, blanked, chosen, lasting, stored_edges
from unweave.graph.index import among
from unweave.inspection.pairs import ends_of, joined, kept_edges, places, spread
from unweave.inspection.removals import Removals, index_of
from unweave.models.reach import Reach

__all__ = ["Copies", "Outputs"]

Outputs = Callable[[Data], tuple[Tensor, Tensor]]
"""The outputs of all nodes of a graph, and derivatives along some directions, ``[nodes, directions, outputs]``."""

HELD = 2
"""How many times over a layer holds a message and its two ends, about."""


class Copies:
    """Outputs after removals, by copies of neighbourhoods.

    Args:
        data: The graph.
        reach: The message-passing steps of the module, which must be known.
        outputs: The module.
        width: Numbers that a message has at most, about.
        heeded: Mask of the nodes whose outputs are asked for; all by default.
        shared: Whether what removals do not change is there once for all of them.
    """

    def __init__(
        self,
        data: Data,
        reach: Reach,
        outputs: Outputs,
        width: int,
        heeded: Tensor | None = None,
        *,
        shared: bool = True,
    ) -> None:
        self._data, self._reach, self._outputs = data, reach, outputs
        self._width, self._heeded, self.shared = width, heeded, shared
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

    @cached_property
    def _own(self) -> Tensor:
        """About how many numbers each node takes, with what it hears."""
        found: Tensor = self._data.x[0].numel() + HELD * (self._width + 2) * (1 + self._back.start.diff().double())
        return found

    def _sizes(self, removals: Removals, steps: int) -> Tensor:
        """About how many numbers each removal takes, at most, with what it changes in some steps."""
        onward, own = self._edges[[1 - self._target, self._target]], self._own

        def within(steps: int) -> Tensor:
            """The numbers of all that is so far from each node."""
            far: Tensor = own
            for _ in range(steps):
                far = far.index_add(0, onward[0], far[onward[1]]).clamp(max=float(own.sum()))
            return far

        more = 0 if self.shared else self._steps + self._reach.normalised
        found = torch.zeros(removals.count, dtype=torch.float64, device=own.device)
        found.index_add_(0, removals.blank[0], within(steps + more)[removals.blank[1]])
        far = within(steps - (not self._reach.normalised) + more)
        for end in self._edges if self._reach.normalised else self._edges[self._target][None]:
            found.index_add_(0, removals.edges[0], far[end[removals.edges[1]]])
        return found.clamp(max=float(own.sum()))

    def changed(self, removals: Removals, rest: Tensor, most: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The outputs that may change, of some removals after the other: removal, node, outputs and derivatives.

        Args:
            removals: The removals.
            rest: As nothing is left out, it stays as it is.
            most: How many numbers may be held at a time.
        """
        for first, chunk in removals.chunks(self._sizes(removals, self._steps), most):
            roots = self._region(chunk, self._steps)
            roots = roots if self._heeded is None else roots[self._heeded[roots % self._size]]
            yield roots // self._size + first, roots % self._size, *self._outputs_at(chunk, roots)

    def at(self, removals: Removals, keys: Tensor, most: float) -> Tensor:
        """The derivatives of some outputs alone: sorted keys, removal · nodes + node."""
        found = []
        sizes = self._sizes(removals, self._steps - self.shared)  # beside the keys, what is heard before the last step
        sizes.index_add_(0, keys // self._size, self._own[keys % self._size])
        for first, chunk in removals.chunks(sizes, most):
            bounds = torch.tensor([first, first + chunk.count], device=keys.device) * self._size
            low, high = torch.searchsorted(keys, bounds).tolist()
            found.append(self._outputs_at(chunk, keys[low:high] - first * self._size)[1])
        return torch.cat(found)

    def _outputs_at(self, removals: Removals, keys: Tensor) -> tuple[Tensor, Tensor]:
        if not keys.numel():
            return self.whole[0][:0], self.whole[1][:0]
        every, heard, sent, ids = self._neighbourhoods(removals, keys)
        part = self._part(removals, every, heard, sent, ids)
        place, _ = places(every, keys)
        outputs, derivatives = self._outputs(part)
        return outputs[place], derivatives[place]

    def _region(self, removals: Removals, steps: int) -> Tensor:
        """Who may be another after some steps, as :func:`unweave.graph.region.influenced_region` has it for one."""
        ends = ends_of(removals.edges, self._edges, self._size)
        blank = removals.blank[0] * self._size + removals.blank[1]
        keys = joined(blank, *([ends.flatten()] if self._reach.normalised else []))
        for step in range(steps):
            _, _, reached = spread(keys, self._size, self._onward)
            keys = joined(keys, reached, *([ends[self._target]] if step == 0 else []))
        return keys

    def _neighbourhoods(self, removals: Removals, roots: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All nodes that the outputs of some depend on, and the edges among them that are left.

        Where they are shared, who is as ever before the last step is heard as one more removal has it, which takes
        nothing; but for loops, which layers know by their ends.
        """
        keys, front = roots, roots
        changed = self._region(removals, self._steps - 1) if self.shared else None
        heard, sent, ids = [], [], []
        for _ in range(self._steps + self._reach.normalised):  # degrees of the outermost are seen too
            which, edge, other = spread(front, self._size, self._back)
            left = kept_edges((front // self._size)[which], edge, removals.edges, self._edges.size(1))
            which, edge, other = which[left], edge[left], other[left]
            if changed is not None:
                own = among(other, changed) | (other == front[which])
                other = torch.where(own, other, removals.count * self._size + other % self._size)
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
        part.x.index_fill_(0, blank[0][blank[1]], 0)
        ends = torch.stack([places(keys, end)[0] for end in (sent, heard)])
        part.edge_index = (ends if self._target else ends.flip(0))[:, order]
        return part

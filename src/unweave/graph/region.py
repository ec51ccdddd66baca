"""Whose prediction a removal can change, hop by hop along the flow of messages."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.edit import mask_of, stored_edges
from unweave.graph.removal import Removal
from unweave.graph.view import GraphView
from unweave.models.reach import Reach

__all__ = ["Region", "first_met", "hops_from", "influenced_region"]


@dataclass(frozen=True)
class Region:
    """The nodes whose prediction can change.

    Attributes:
        nodes: Their ids, sorted.
        size: Nodes of the graph.
        sizes: How many nodes are reached first after 0, 1, 2, … message-passing steps.
        reach: How far and along which way messages flow, and how that is known.
    """

    nodes: Tensor
    size: int
    sizes: tuple[int, ...]
    reach: Reach

    @cached_property
    def mask(self) -> Tensor:
        """The region as a node mask."""
        return mask_of(self.nodes, self.size)

    @property
    def whole_graph(self) -> bool:
        """Whether the region is the whole graph because the model's hop count is unknown."""
        return self.reach.steps is None


def influenced_region(graph: Data | GraphView, removal: Removal, reach: Reach) -> Region:
    """The nodes whose prediction a removal can change, hop by hop along the flow of messages.

    A node whose features change reaches everything within K steps. A removed edge changes what its
    receiver gets in the first step, which leaves K − 1 more; when messages are weighted by degrees it
    also changes the weights of the endpoints' other edges, so both endpoints start at step 0. A deleted
    node is both at once: its neighbours are endpoints.

    Of a view whose edges are indexed it takes time in proportion to what it returns; of any other graph, a look at all
    edges a step.

    Args:
        graph: The graph before the removal; the remaining graph has only fewer edges. Of a change, the edges of both.
        removal: What went.
        reach: The message-passing steps of the model.
    """
    view = graph if isinstance(graph, GraphView) else GraphView.of(graph)
    if reach.steps is None:
        return Region(torch.arange(view.size, device=view.gone.device), view.size, (view.size,), reach)
    onward = int(reach.flow == "source_to_target")
    start = [removal.features, removal.nodes, *([removal.moved.flatten()] if reach.normalised else [])]
    spread = _by_looks if view.known_index is None else _by_index
    nodes, sizes = spread(view, torch.cat(start), removal.moved[onward], reach.steps, onward)
    return Region(nodes, view.size, sizes, reach)


def _by_looks(
    view: GraphView, start: Tensor, receivers: Tensor, steps: int, onward: int
) -> tuple[Tensor, tuple[int, ...]]:
    """The region by a look at all edges a step."""
    mask = mask_of(start, view.size)
    source, target = view.edge_index[1 - onward], view.edge_index[onward]
    source, target = (end[~mask_of(view.gone, end.numel())] if view.gone.numel() else end for end in (source, target))
    sizes = [mask.sum()]
    for step in range(steps):
        reached = mask.clone()
        reached[target[mask[source]]] = True
        if step == 0:
            reached[receivers] = True
        sizes.append(reached.sum() - mask.sum())
        mask = reached
    return mask.nonzero().flatten(), tuple(torch.stack(sizes).tolist())


def _by_index(
    view: GraphView, start: Tensor, receivers: Tensor, steps: int, onward: int
) -> tuple[Tensor, tuple[int, ...]]:
    """The same in time proportional to it."""
    layers: list[Tensor] = []
    with view.index.noting(layers) as place:
        layers.append(first_met(start, place))
        for step in range(steps):
            reached = view.others_at(layers[-1], into=not onward)
            layers.append(first_met(torch.cat([reached, receivers]) if step == 0 else reached, place))
    return torch.cat(layers).sort().values, tuple(layer.numel() for layer in layers)


def first_met(ids: Tensor, place: Tensor) -> Tensor:
    """The ids that have no place yet, once each, sorted; they have one then."""
    ids = ids[place[ids] < 0]
    number = torch.arange(ids.numel(), device=ids.device)
    place[ids] = number  # of equal ids one remains
    return ids[place[ids] == number].sort().values


def hops_from(data: Data, start: Tensor, flow: str) -> Tensor:
    """Steps from the nodes of a mask to every node, along the flow of messages; −1 out of reach."""
    source, target = stored_edges(data) if flow == "source_to_target" else stored_edges(data).flip(0)
    hops = torch.where(start, 0, -1)
    front, step = start, 0
    while bool(front.any()):
        step += 1
        front = mask_of(target[front[source]], start.numel()) & (hops < 0)
        hops[front] = step
    return hops

"""The part of a graph that gives some nodes exactly the outputs that the whole graph gives them.

All of it takes time in proportion to what it returns, not to the graph.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.memo import derive
from unweave.graph.edit import attributes, blanked, chosen, lasting
from unweave.graph.index import among, edge_values
from unweave.graph.region import first_met
from unweave.graph.view import GraphView
from unweave.models.reach import Reach

__all__ = ["BORDERS", "Border", "Halo", "halo"]

Border = Literal["none", "merged", "into", "both"]
BORDERS: tuple[Border, ...] = ("merged", "into", "both")
"""How the nodes at the rim, of which a model looks at features and degree only, come to their degrees. Their other
neighbours are all stood in for by one node without features, by an edge that weighs as much as all that it stands for
(``merged``), by as many edges as there are into the rim (``into``), or also by those out of the halo (``both``)."""


@dataclass(frozen=True)
class Halo:
    """A part of a graph on which a model gives the first nodes the outputs that the whole graph gives them.

    Attributes:
        nodes: Ids of its nodes, those it is made for first, then by distance.
        rings: How many of the nodes lie within 0, 1, … steps of those it is made for.
        edges: Ids of the stored edges within it.
        ends: Their ends, as positions in ``nodes``.
        rim: Ids of the edges that only make up the degrees at the rim.
        rim_ends: Their ends; the position after the last is the node that stands in.
        merged: How many nodes, the last ones, get one edge for all those that they have beside loops.
        into: Whether edges bring messages to their target.
    """

    nodes: Tensor
    rings: tuple[int, ...]
    edges: Tensor
    ends: Tensor
    rim: Tensor
    rim_ends: Tensor
    merged: int
    into: bool

    def data(self, view: GraphView, whole: Data | None = None) -> Data:
        """The part as a graph of its own, as it is in a view that lacks nothing the halo was not made with.

        Its training nodes are those among the roots.

        Args:
            view: The graph, or what is left of it.
            whole: The part as it is in the graph that nothing was taken from, for who has it: what is known of that one
                then serves this one too.
        """
        base = view.base
        stand_in = int(self.rim.numel() + self.merged > 0)
        part = type(base)(num_nodes=self.nodes.numel() + stand_in)
        ids, ends, kept = self._edges(view)
        lost, unlabelled = (among(self.nodes, some).nonzero().flatten() for some in (view.nodes, view.unlabelled))
        of_nodes, of_edges = attributes(base)
        for key, value in base.to_dict().items():
            if key in ("edge_index", "num_nodes"):
                continue
            if key == "x":
                part.x = _padded(view.features(self.nodes), stand_in) if whole is None else self._features(view, whole)
            elif key in of_edges:
                part[key] = chosen(base, key, ids)
            elif key in of_nodes and isinstance(value, Tensor):
                rows = value[self.nodes]
                part[key] = _padded(rows if lasting(base, key) else blanked(key, rows, lost, unlabelled), stand_in)
            elif key in of_nodes:
                some = [value[node] for node in self.nodes.tolist()]
                part[key] = [*blanked(key, some, lost, unlabelled), *[None] * stand_in]
            else:
                part[key] = value
        part.train_mask[self.rings[0] :] = False
        if self.into:
            part.halo_rings = self.rings  # for models that are written out (unweave.models.sweep)
        if self.merged:
            drawn, weight, there = self._drawn_together(view)
            ends, kept = (
                torch.cat([ends, drawn], dim=1),
                torch.cat([kept, there + self.edges.numel() + self.rim.numel()]),
            )
            inner = edge_values(base.get("edge_weight"), view.edge_index, ids)
            part.edge_weight = torch.cat([inner, weight]).to(base.get("edge_weight", base.x).dtype)
        part.edge_index = ends
        if whole is not None and kept.numel() == whole.edge_index.size(1):
            part.edge_index = whole.edge_index
            if self.merged and torch.equal(part.edge_weight, whole.edge_weight):
                part.edge_weight = whole.edge_weight
        elif whole is not None:
            derive(ends, whole.edge_index, kept)
        return part

    def _features(self, view: GraphView, whole: Data) -> Tensor:
        """The features of the part, from those of the whole graph; the very same where none of them changed."""
        new = among(self.nodes, view.rows).nonzero().flatten()
        if not new.numel():
            return whole.x  # type: ignore[no-any-return]
        x: Tensor = whole.x.index_copy(0, new, view.features(self.nodes[new]))
        derive(x, whole.x)
        return x

    def _edges(self, view: GraphView) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and ends of the edges that are left, and which of all they are."""
        ids, ends = torch.cat([self.edges, self.rim]), torch.cat([self.ends, self.rim_ends], dim=1)
        if not view.gone.numel():
            return ids, ends, torch.arange(ids.numel(), device=ids.device)
        kept = (~among(ids, view.gone)).nonzero().flatten()
        return ids[kept], ends[:, kept], kept

    def _drawn_together(self, view: GraphView) -> tuple[Tensor, Tensor, Tensor]:
        """One edge to each node of the rim, from the stand-in, that weighs as much as all that are left there.

        Returns:
            The ends of those, their weights, and which they are of those that the whole graph has.
        """
        rim, first = self.nodes[-self.merged :], self.nodes.numel() - self.merged
        side = view.index.into if self.into else view.index.out
        degree, weight = side.degree[rim], side.weight[rim]
        had = degree > 0
        if view.gone.numel():
            ends = view.edge_index[:, view.gone]
            ends, other = ends[int(self.into)], ends[1 - int(self.into)]
            here = among(ends, rim) & (ends != other)
            at = torch.searchsorted(rim, ends[here])
            values = edge_values(view.base.get("edge_weight"), view.edge_index, view.gone[here])
            degree.index_add_(0, at, torch.full_like(at, -1))
            weight.index_add_(0, at, -values)
        at = degree.nonzero().flatten()
        away = torch.full_like(at, self.nodes.numel())
        drawn = torch.stack([away, at + first] if self.into else [at + first, away])
        return drawn, weight[at], degree[had].nonzero().flatten()


def halo(view: GraphView, roots: Tensor, reach: Reach, border: Border) -> Halo:
    """The part of a graph that some nodes' outputs depend on.

    K steps of a model see the features of what lies within K hops against the flow of messages, by the edges into what
    lies within K − 1. Where messages are weighted by degrees, the degrees of the nodes at the rim count too.

    Args:
        view: The graph.
        roots: Ids of the nodes whose outputs are wanted, each once.
        reach: The message-passing steps of the model, which must be known.
        border: How the rim comes to its degrees; ``"none"`` where these do not count.
    """
    into = reach.flow == "source_to_target"
    layers, edges = [roots], []
    receivers: list[Tensor] = []
    senders: list[Tensor] = []
    with view.index.noting(layers) as place:
        place[roots] = torch.arange(roots.numel(), device=roots.device)
        count = roots.numel()
        for _ in range(reach.steps or 0):
            which, ids, others = view.edges_at(layers[-1], into=into)
            edges.append(ids)
            receivers.append(which + count - layers[-1].numel())
            layers.append(first_met(others, place))
            place[layers[-1]] = torch.arange(layers[-1].numel(), device=roots.device) + count
            count += layers[-1].numel()
            senders.append(place[others])
        loops = view.index.loops[_places(view.index.loop_nodes, layers[-1])] if border == "merged" else roots[:0]
        loops = loops[~among(loops, view.gone)]
        loop_ends = place[view.edge_index[:, loops]]
    nodes = torch.cat(layers)
    none = roots[:0]
    heard, said = torch.cat([none, *receivers]), torch.cat([none, *senders])
    rim, rim_ends = loops, loop_ends
    if border in ("into", "both"):
        rim, rim_ends = _rim(view, layers[-1], nodes, torch.cat([none, *edges]), into=into, both=border == "both")
    return Halo(
        nodes=nodes,
        rings=tuple(accumulate(layer.numel() for layer in layers)),
        edges=torch.cat([none, *edges]),
        ends=torch.stack([said, heard] if into else [heard, said]),
        rim=rim,
        rim_ends=rim_ends,
        merged=layers[-1].numel() if border == "merged" else 0,
        into=into,
    )


def _rim(
    view: GraphView, last: Tensor, nodes: Tensor, inner: Tensor, *, into: bool, both: bool
) -> tuple[Tensor, Tensor]:
    """Edges into the outermost nodes, and with ``both`` out of all, other ends replaced by the stand-in."""
    stand_in = nodes.numel()
    which, ids, others = view.edges_at(last, into=into)
    at = which + stand_in - last.numel()
    away = torch.where(others == last[which], at, stand_in)  # a loop stays a loop
    ends = torch.stack([away, at] if into else [at, away])
    if not both:
        return ids, ends
    which, more, others = view.edges_at(nodes, into=not into)
    extra = ~among(more, inner.sort().values) & (others != nodes[which])
    which, more = which[extra], more[extra]
    away = torch.full_like(which, stand_in)
    return torch.cat([ids, more]), torch.cat([ends, torch.stack([which, away] if into else [away, which])], dim=1)


def _places(known: Tensor, ids: Tensor) -> Tensor:
    """Where in a sorted vector some ids stand, each as often as it is there."""
    first = torch.searchsorted(known, ids)
    count = torch.searchsorted(known, ids, right=True) - first
    which = torch.repeat_interleave(torch.arange(ids.numel(), device=ids.device), count)
    return torch.arange(which.numel(), device=ids.device) + (first - count.cumsum(0) + count)[which]


def _padded(rows: Tensor, more: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]) if more else rows

"""A graph from which things can be taken without building it anew.

An index of the stored edges is made once a graph. A :class:`GraphView` is that graph less a few edges, features and
labels; taking more away costs as much as what goes has edges, whatever the size of the graph.
"""

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.digest import graph_digest, tensor_digest
from unweave._core.document import document_digest
from unweave._core.mapped import mapped, rows_of, structure_of, with_rows
from unweave._core.memo import Stamp, look, stamp
from unweave.errors import DataError
from unweave.graph.edit import MASKS, less, mask_of, stored_edges
from unweave.graph.index import GraphIndex, among, carried, graph_index, symmetric, uneven_pairs

__all__ = ["GraphView", "as_view", "digest_of", "labels_of", "look_at"]


@dataclass(frozen=True, eq=False)
class GraphView:
    """A graph less what was taken from it. Node ids are what they were.

    Attributes:
        base: The graph whose edges are indexed. It must not be written to.
        gone: Ids of the stored edges that are gone, sorted.
        nodes: Ids of the deleted nodes, sorted.
        rows: Ids of the nodes whose features are others now, sorted.
        x: Their features.
        unlabelled: Ids of the nodes whose labels may not be used, sorted.
        uneven: Pairs of nodes whose edges differ by direction, less those of the base.
        stamp: Counts of writes to the tensors of the base, by name.
        before: The view of which this one is the rest, while it lives.
        notes: What was found out about this view, by who asked.
    """

    base: Data
    gone: Tensor
    nodes: Tensor
    rows: Tensor
    x: Tensor
    unlabelled: Tensor
    uneven: int = 0
    stamp: dict[str, Stamp | None] = field(default_factory=dict)
    before: "ref[GraphView] | None" = None
    notes: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Data) -> "GraphView":
        """The whole of a graph."""
        none = torch.zeros(0, dtype=torch.long, device=data.edge_index.device)
        base = copy.copy(data)
        look_at(data)
        return cls(base, none, none, none, data.x[:0], none, stamp=_stamp(base))

    @property
    def edge_index(self) -> Tensor:
        """The stored edges of the base."""
        return stored_edges(self.base)

    @property
    def index(self) -> GraphIndex:
        """The index of the base, made when it is first asked for."""
        return graph_index(self.edge_index, self.base.get("edge_weight"), self.size)

    @property
    def known_index(self) -> GraphIndex | None:
        """The index, where somebody has asked for it: a single look costs less than making it."""
        if structure_of(self.edge_index) is not None:
            return self.index
        return graph_index.known(self.edge_index, self.base.get("edge_weight"), self.size)

    @property
    def mapped(self) -> bool:
        """Whether the graph lies in a folder, and is not to be copied."""
        return structure_of(self.edge_index) is not None

    @property
    def size(self) -> int:
        """Nodes, deleted ones included."""
        return int(self.base.x.size(0))

    @property
    def stored_edges(self) -> int:
        """Stored edges that are left."""
        return int(self.edge_index.size(1)) - self.gone.numel()

    @property
    def undirected(self) -> bool:
        """Whether every edge has its reverse, equally often and with the same of what messages take along."""
        if not self.gone.numel():
            return symmetric(self.edge_index, self.size, *carried(self.base))
        return uneven_pairs(self.edge_index, self.size, *carried(self.base)) + self.uneven == 0

    @cached_property
    def data(self) -> Data:
        """The view as a graph of its own: the one operation here that takes time in proportion to the graph."""
        self.check_untouched()
        return self.built() if self.changed else self.base

    def built(self) -> Data:
        """A graph of its own, of new memory where it differs from the base."""
        x = self.base.x
        if self.rows.numel() and mapped(x) is not None:
            x = with_rows(x, self.rows, self.x)
        elif self.rows.numel():
            x = x.index_copy(0, self.rows, self.x)
        return less(self.base, x, self.gone, self.nodes, self.unlabelled)

    @property
    def changed(self) -> bool:
        """Whether anything was taken from the base."""
        return any(part.numel() for part in (self.gone, self.rows, self.unlabelled))

    @property
    def untouched(self) -> bool:
        """Whether nobody has written to the base, as far as torch counts writes; where it does not count, no."""
        return None not in self.stamp.values() and self.stamp == _stamp(self.base)

    def check_untouched(self) -> None:
        """Refuse a base that was written to."""
        if not self.untouched:
            raise DataError("the graph was written to after it was prepared for; call unweave.prepare on it again")

    def holds(self, data: Data) -> bool:
        """Whether a graph is made of the very tensors of this view, known without looking into them."""
        mine = self.__dict__.get("data", None if self.changed else self.base)
        if mine is None:
            return False
        ours, theirs = mine.to_dict(), data.to_dict()
        return ours.keys() == theirs.keys() and all(
            value is theirs[key] or (not isinstance(value, Tensor) and _equal(value, theirs[key]))
            for key, value in ours.items()
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphView":
        """A view of a copy, whose writes are counted from now on."""
        base = copy.deepcopy(self.base, memo)
        stamps = _stamp(base) if self.untouched else self.stamp
        return replace(self, base=base, stamp=stamps, before=None, notes={})

    def edges_at(self, nodes: Tensor, *, into: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The edges left that leave, or go into, some nodes: position of the node, id and other end of each."""
        found = (self.index.into if into else self.index.out).at(nodes)
        if not self.gone.numel():
            return found
        left = ~among(found[1], self.gone)
        which, edge, other = (part[left] for part in found)
        return which, edge, other

    def others_at(self, nodes: Tensor, *, into: bool) -> Tensor:
        """The other ends of those edges alone, of each edge one."""
        # In a folder edges lie by target; who hears a node of an undirected graph is whom it hears.
        return self.edges_at(nodes, into=into or (self.mapped and self.undirected))[2]

    def ids_at(self, nodes: Tensor) -> Tensor:
        """Ids of the edges left at some nodes, either way, sorted; by a look at all edges where there is no index."""
        if self.known_index is not None:
            both = torch.cat([self.edges_at(nodes, into=into)[1] for into in (False, True)])
            once: Tensor = torch.unique(both)
            return once
        mask = mask_of(nodes, self.size)
        found: Tensor = (mask[self.edge_index[0]] | mask[self.edge_index[1]]).nonzero().flatten()
        return found[~among(found, self.gone)] if self.gone.numel() else found

    def features(self, nodes: Tensor) -> Tensor:
        """The features of some nodes."""
        x = rows_of(self.base.x, nodes)
        new = among(nodes, self.rows)
        if bool(new.any()):
            x[new] = self.x[torch.searchsorted(self.rows, nodes[new])]
        return x

    @property
    def labels(self) -> Data:
        """Labels and masks alone, without those that may not be used."""
        kept = ~mask_of(self.unlabelled, self.size)
        masks = {name: self.base[name] & kept for name in MASKS if self.base.get(name) is not None}
        return Data(y=self.base.y, **masks)

    def in_training(self, nodes: Tensor) -> Tensor:
        """Which of some nodes are training nodes."""
        chosen: Tensor = self.base.train_mask[nodes] & ~among(nodes, self.unlabelled)
        return chosen

    def less(
        self, *, edges: Tensor, nodes: Tensor, rows: Tensor, x: Tensor, unlabelled: Tensor, uneven: int
    ) -> "GraphView":
        """The view without more of it.

        Args:
            edges: Ids of the stored edges that go.
            nodes: Ids of the nodes that are deleted.
            rows: Ids of the nodes whose features become others, sorted.
            x: Their features then.
            unlabelled: Ids of the nodes whose labels may not be used any more.
            uneven: How many more pairs of nodes have edges that differ by direction.
        """
        kept = ~among(self.rows, rows)
        order = torch.cat([self.rows[kept], rows]).argsort()
        return replace(
            self,
            gone=_together(self.gone, edges),
            nodes=_together(self.nodes, nodes),
            rows=torch.cat([self.rows[kept], rows])[order],
            x=torch.cat([self.x[kept], x])[order],
            unlabelled=_together(self.unlabelled, unlabelled),
            uneven=self.uneven + uneven,
            before=ref(self),
            notes={},
        )


def as_view(graph: Data | GraphView) -> GraphView:
    """A graph as a view: of the whole of it, where it is none."""
    return graph if isinstance(graph, GraphView) else GraphView.of(graph)


def labels_of(graph: Data | GraphView) -> Data:
    """A graph of which labels and masks are to be looked at, and nothing else."""
    return graph.labels if isinstance(graph, GraphView) else graph


def digest_of(graph: Data | GraphView) -> str:
    """What identifies a graph (:func:`unweave._core.digest.graph_digest`); of a folder less something, by what went."""
    if isinstance(graph, Data):
        return graph_digest(graph)
    if not graph.mapped or not graph.changed:
        return graph_digest(graph.data)
    parts = [(name, getattr(graph, name)) for name in ("gone", "nodes", "rows", "x", "unlabelled")]
    return document_digest([graph_digest(graph.base), tensor_digest(parts)])


def _together(known: Tensor, more: Tensor) -> Tensor:
    return torch.unique(torch.cat([known, more])) if more.numel() else known


def _equal(one: object, other: object) -> bool:
    """Whether two attributes that are no tensors are the same; what cannot be compared is not."""
    try:
        return bool(one == other)
    except Exception:  # anything may sit on a graph
        return False


def look_at(data: Data) -> None:
    """Look at what the tensors of a graph hold, so that writes which torch did not count are noticed from now on."""
    for value in data.to_dict().values():
        if isinstance(value, Tensor):
            look(value)


def _stamp(data: Data) -> dict[str, Stamp | None]:
    return {key: stamp(value) for key, value in data.to_dict().items() if isinstance(value, Tensor)}

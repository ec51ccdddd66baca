"""A graph from which things can be taken without building it anew.

An index of the stored edges is made once a graph. A :class:`GraphView` is that graph less a few edges, features and
labels; taking more away costs as much as what goes has edges, whatever the size of the graph.
"""

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.errors import DataError, EmptyRequestError
from unweave.graph.index import GraphIndex, among, asymmetric_pairs, edge_values, graph_index
from unweave.graph.removal import MASKS, canonical, counts, mask_of, named_edges, remaining
from unweave.request import ALL, Request

__all__ = ["GraphView", "Taken"]


@dataclass(frozen=True)
class Taken:
    """What one request takes from a view.

    Attributes:
        request: The request in canonical form.
        edges: The stored edges that go, ``[2, m]``, with those of deleted nodes.
        edge_ids: Where they are stored.
        nodes: Ids of the deleted nodes.
        features: Ids of the nodes that lose features.
        labels: Ids of the nodes that lose a label in use.
        undirected: Whether edges go in both directions.
    """

    request: Request
    edges: Tensor
    edge_ids: Tensor
    nodes: Tensor
    features: Tensor
    labels: Tensor
    undirected: bool

    @property
    def counts(self) -> dict[str, int]:
        """How much goes, in the terms of the graph."""
        return counts(self.edges, self.nodes, self.features, self.labels, undirected=self.undirected)


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
        asymmetric: Pairs of nodes whose edges differ by direction; ``None`` before the first request.
        stamp: Counts of writes to the tensors of the base, by name.
    """

    base: Data
    gone: Tensor
    nodes: Tensor
    rows: Tensor
    x: Tensor
    unlabelled: Tensor
    asymmetric: int | None = None
    stamp: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Data) -> "GraphView":
        """The whole of a graph."""
        none = torch.zeros(0, dtype=torch.long, device=data.edge_index.device)
        base = copy.copy(data)
        base.num_nodes = data.num_nodes  # PyG would otherwise look for it in every attribute
        return cls(base, none, none, none, data.x[:0], none, stamp=_stamp(base))

    @property
    def index(self) -> GraphIndex:
        """The index of the base, made when it is first asked for."""
        return graph_index(self.base.edge_index, self.base.get("edge_weight"), self.size)

    @property
    def size(self) -> int:
        """Nodes, deleted ones included."""
        return int(self.base.num_nodes)

    @property
    def stored_edges(self) -> int:
        """Stored edges that are left."""
        return int(self.base.edge_index.size(1)) - self.gone.numel()

    @property
    def undirected(self) -> bool:
        """Whether every edge has its reverse, equally often and with the same ``edge_weight``."""
        return (self.index.asymmetric if self.asymmetric is None else self.asymmetric) == 0

    @cached_property
    def data(self) -> Data:
        """The view as a graph of its own: the one operation here that takes time in proportion to the graph."""
        self.check_untouched()
        if not self._changed:
            return self.base
        x, keep = self.base.x, ~mask_of(self.gone, self.base.edge_index.size(1))
        if self.rows.numel():
            x = x.clone()
            x[self.rows] = self.x
        return remaining(self.base, x, keep, mask_of(self.nodes, self.size), mask_of(self.unlabelled, self.size))

    @property
    def _changed(self) -> bool:
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
        mine = self.__dict__.get("data", None if self._changed else self.base)
        if mine is None:
            return False
        ours, theirs = mine.to_dict(), data.to_dict()
        return ours.keys() - {"num_nodes"} == theirs.keys() - {"num_nodes"} and all(
            value is theirs[key] or (not isinstance(value, Tensor) and _equal(value, theirs[key]))
            for key, value in ours.items()
            if key != "num_nodes"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphView":
        """A view of a copy, whose writes are counted from now on."""
        base = copy.deepcopy(self.base, memo)
        return replace(self, base=base, stamp=_stamp(base) if self.untouched else self.stamp)

    def edges_at(self, nodes: Tensor, *, into: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The edges left that leave, or go into, some nodes: position of the node, id and other end of each."""
        found = (self.index.into if into else self.index.out).at(nodes)
        if not self.gone.numel():
            return found
        left = ~among(found[1], self.gone)
        which, edge, other = (part[left] for part in found)
        return which, edge, other

    def features(self, nodes: Tensor) -> Tensor:
        """The features of some nodes."""
        x: Tensor = self.base.x[nodes]
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

    def take(self, request: Request) -> tuple["GraphView", Taken]:
        """The view without what a request names, and what that is.

        Raises:
            RequestError: An id, edge or column that is not in the graph, or an edge named in both directions.
            EmptyRequestError: The graph holds none of what is to be forgotten any more.
        """
        self.check_untouched()
        undirected = self.undirected
        request = canonical(request, self.base, undirected)
        device = self.gone.device
        nodes, labels, rows = (
            torch.tensor(list(ids), dtype=torch.long, device=device)
            for ids in (request.nodes, request.labels, request.features)
        )
        edges, edge_ids, asymmetric = self._edges_of(request, nodes, undirected)
        features, x = self._without(request, nodes, rows)
        unlabelled = torch.unique(torch.cat([nodes, labels]))
        lost = unlabelled[~among(unlabelled, self.unlabelled)]
        in_use = torch.zeros_like(lost, dtype=torch.bool)
        for name in MASKS:
            if self.base.get(name) is not None:
                in_use |= self.base[name][lost]
        taken = Taken(request, edges, edge_ids, nodes, features, lost[in_use], undirected)
        if not any(part.numel() for part in (edge_ids, features, taken.labels)):
            raise EmptyRequestError(
                f"the graph no longer holds anything of this request ({request.describe()}): "
                "the edges, features and labels it names are already gone; there is nothing to forget"
            )
        kept = ~among(self.rows, features)
        order = torch.cat([self.rows[kept], features]).argsort()
        view = replace(
            self,
            gone=_together(self.gone, edge_ids),
            nodes=_together(self.nodes, nodes),
            rows=torch.cat([self.rows[kept], features])[order],
            x=torch.cat([self.x[kept], x])[order],
            unlabelled=_together(self.unlabelled, unlabelled),
            asymmetric=asymmetric,
        )
        return view, taken

    def _edges_of(self, request: Request, nodes: Tensor, undirected: bool) -> tuple[Tensor, Tensor, int]:
        """The stored edges that a request takes, their ids, and the pairs whose edges differ by direction then."""
        firsts = request.pairs[:, 0].to(nodes.device)
        # Each edge that may go, and its reverse, touches one of these.
        near = torch.unique(torch.cat([nodes, firsts]))
        found = torch.unique(torch.cat([self.edges_at(near, into=into)[1] for into in (False, True)]))
        ends = self.base.edge_index[:, found]
        drop = among(ends, torch.unique(nodes)).any(dim=0)
        drop |= named_edges(Data(edge_index=ends, num_nodes=self.size), request, undirected)
        asymmetric = self.index.asymmetric if self.asymmetric is None else self.asymmetric
        if asymmetric and bool(drop.any()):
            low, high = ends.min(dim=0).values, ends.max(dim=0).values
            pair = low * self.size + high
            close = among(pair, torch.unique(pair[drop]))
            values = edge_values(self.base.get("edge_weight"), self.base.edge_index, found)
            for part, sign in ((close, -1), (close & ~drop, 1)):
                asymmetric += sign * asymmetric_pairs(ends[0, part], ends[1, part], values[part], self.size)
        return ends[:, drop], found[drop], asymmetric

    def _without(self, request: Request, nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Ids of the nodes whose features a request changes, sorted, and what it leaves of them."""
        chosen = torch.unique(torch.cat([nodes, rows]))
        before = self.features(chosen)
        x = before.clone()
        x[among(chosen, torch.unique(nodes))] = 0
        for node, columns in request.features.items():
            x[chosen == node, slice(None) if columns == ALL else list(columns)] = 0
        changed = (x != before).flatten(1).any(dim=1)
        return chosen[changed], x[changed]


def _together(known: Tensor, more: Tensor) -> Tensor:
    return torch.unique(torch.cat([known, more])) if more.numel() else known


def _equal(one: object, other: object) -> bool:
    """Whether two attributes that are no tensors are the same; what cannot be compared is not."""
    try:
        return bool(one == other)
    except Exception:  # anything may sit on a graph
        return False


def _stamp(data: Data) -> dict[str, int | None]:
    return {key: None if value.is_inference() else value._version for key, value in _tensors(data).items()}


def _tensors(data: Data) -> dict[str, Tensor]:
    return {key: value for key, value in data.to_dict().items() if isinstance(value, Tensor)}

"""Several types of nodes and of edges: PyG's ``HeteroData`` as one plain graph, and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from unweave._core.memo import remembered
from unweave._core.words import listed, shown
from unweave.changes import Change
from unweave.errors import DataError, ModelError, RequestError
from unweave.request import Request
from unweave.tasks.calling import Offer, called, rows_of
from unweave.tasks.growth import Growth
from unweave.tasks.hetero import MASKS, Relation, flat
from unweave.tasks.more_relations import relation_change, relation_growth
from unweave.tasks.naming import check_columns, check_given, numbers, tuples, within
from unweave.tasks.task import Task

__all__ = ["Relations"]

Pair = tuple[int, int]


class Relations(Task):
    """A graph of several types of nodes and of edges, of which one type of nodes has labels.

    :meth:`of` makes it, of a ``HeteroData``. A model is called as ``model(x_dict, edge_index_dict)``, with
    ``edge_weight_dict`` and ``edge_attr_dict`` by name where the data has them. It gives a dict of outputs, of which
    that of the target is taken, or the outputs of the target alone.

    Nodes go by type and number within it, as in the ``HeteroData``; numbers never shift. Two relations whose edges are
    each other turned round (as ``T.ToUndirected`` makes ``rev_writes`` of ``writes``) are one fact, stored twice: who
    deletes an edge of one deletes it of the other.

    ``x`` has zeros where the features of a type are fewer than those of another; ``node_type`` counts types from 1.
    """

    @classmethod
    def of(cls, hetero: HeteroData, target: str | None = None) -> "Relations":
        """The plain graph of a ``HeteroData``.

        Taken are ``x`` of every type, ``edge_index``, ``edge_weight`` and ``edge_attr`` of every relation, ``y`` and
        the masks of the target. What else the data has stays behind.

        Args:
            hetero: The graph. Every type of nodes has ``x``.
            target: The type of nodes that has labels; by default the only one with ``y`` and ``train_mask``.

        Raises:
            DataError: It cannot be made a plain graph; the error says what to do.
        """
        tensors, spec = flat(hetero, target)
        graph = cls(**tensors)
        graph.spec = spec
        if not graph.y.is_floating_point() and graph.y.dim() == 1:
            graph.num_classes = int(graph.y.max()) + 1
        return graph

    @property
    def target(self) -> str:
        """The type of nodes that has labels."""
        return str(self.spec["target"])

    @property
    def types(self) -> list[str]:
        """The types of nodes, in the order of the data."""
        return [name for name, _ in self.spec["nodes"]]

    @property
    def relations(self) -> list[Relation]:
        """The types of edges, in the order of the data."""
        return [(source, name, into) for source, name, into in self.spec["edges"]]

    def ids(self, kind: str) -> Tensor:
        """Numbers in the plain graph of the nodes of a type, in order."""
        if kind not in self.types:
            raise RequestError(f"there is no type of nodes {shown(kind)}; there are {', '.join(self.types)}")
        return _places(self.node_type, len(self.types))[self.types.index(kind)]

    def call(self, model: nn.Module) -> Tensor:
        """The model's outputs of the target's nodes; zero rows for all others."""
        spec, relations = self.spec, self.relations
        widths = tuple(width for _, width in spec["nodes"])
        cut = _cut if self.x.requires_grad else _cut_once  # what is differentiated by is not remembered
        x = dict(zip(self.types, cut(self.x, self.node_type, widths), strict=True))
        parts = self._parts()
        edges = {relation: part.ends for relation, part in zip(relations, parts, strict=True)}
        offers: list[Offer] = []
        for key, have in (("edge_weight", spec["weighted"]), ("edge_attr", spec["attributes"])):
            if any(have):
                values = {
                    relation: self._carried(key, part.ids, width)
                    for relation, part, width in zip(relations, parts, have, strict=True)
                    if width
                }
                offers.append((key, (f"{key}_dict", key), values))
        found = called(model, (x, edges), "x_dict, edge_index_dict", tuple(offers))
        if isinstance(found, Mapping):
            if self.target not in found:
                raise ModelError(
                    f"{type(model).__name__} gives outputs of {listed(list(found))}, and the labels are those of "
                    f"{self.target}; give that one, or pass forward=lambda model, data: …"
                )
            found = found[self.target]
        return rows_of(found, model, self.ids(self.target), self.x.size(0), f"nodes of {self.target}")

    def request(
        self,
        nodes: Mapping[str, Iterable[int]] | None = None,
        edges: Mapping[Relation, Iterable[Pair]] | None = None,
        features: Mapping[str, Mapping[int, str | Iterable[int]]] | None = None,
        labels: Iterable[int] = (),
        *,
        id: str | None = None,
        note: str | None = None,
    ) -> Request:
        """A request in the numbering of the ``HeteroData``.

        Args:
            nodes: Nodes to delete, by type.
            edges: Edges to delete, by relation, as (source, target). The reverse goes along. Where two nodes are joined
                by several relations, name all of them: a request takes all edges from one node to another.
            features: Features to revoke, by type: node → ``"all"`` or the columns.
            labels: Nodes of the target whose labels may no longer be used.
            id: Your own name for the request.
            note: A remark.

        Example:
            >>> graph.request(nodes={"author": [3]}, edges={("author", "writes", "paper"): [(3, 7)]})  # doctest: +SKIP
        """
        check_given({"nodes": nodes, "edges": edges, "features": features}, EXAMPLES)
        check_given(dict(features or {}), dict.fromkeys(features or {}, "{7: 'all', 9: [0, 5]}"))
        columns: dict[int, Any] = {}
        for kind, rows in (features or {}).items():
            width = dict(map(tuple, self.spec["nodes"])).get(kind, 0)
            for plain, some in zip(self._plain(kind, rows.keys(), "features"), rows.values(), strict=True):
                columns[plain] = check_columns(some, width, kind)
        return Request(
            nodes=[plain for kind, some in (nodes or {}).items() for plain in self._plain(kind, some, "nodes")],
            edges=self._pairs(edges or {}),
            features=columns,
            labels=self._plain(self.target, labels, "labels"),
            id=id,
            note=note,
        )

    def growth(self, change: Change) -> Growth:
        """New nodes by type, and edges by relation, each with its reverse."""
        return relation_growth(self, change)

    def change(
        self,
        nodes: Mapping[str, Iterable[Any]] | None = None,
        edges: Mapping[Relation, Iterable[Sequence[Any]]] | None = None,
        features: Mapping[str, Mapping[int, Any]] | None = None,
        labels: Mapping[int, Any] | None = None,
        edge_weights: Mapping[Relation, Iterable[Sequence[Any]]] | None = None,
        *,
        forget: Request | None = None,
        id: str | None = None,
        note: str | None = None,
    ) -> Change:
        """A change in the numbering of the ``HeteroData``; new nodes of a type get the numbers after its last.

        Args:
            nodes: New nodes by type: a row of features each, or ``{"features": …, "label": 1, "mask": "val"}``.
            edges: New edges by relation, (source, target), with a weight where those of the relation have. The reverse
                comes along.
            features: Corrected features by type: node → its whole row, or columns with their values.
            labels: Corrected labels of the target, by node.
            edge_weights: Corrected weights by relation, (source, target, weight).
            forget: What goes, as :meth:`request` makes it.
            id: Your own name for the change.
            note: A remark.
        """
        given = {"nodes": nodes, "edges": edges, "features": features, "labels": labels, "edge_weights": edge_weights}
        check_given(given, EXAMPLES)
        parts = relation_change(self, {name: part or {} for name, part in given.items()})
        return Change(**parts, forget=forget, id=id, note=note)

    def complete(self, request: Request) -> Request:
        """A request with the reverse of every edge that it names."""
        if not request.edges:
            return request
        reverse, found = self.spec["reverse"], self._between(request.edges)
        back = {(v, u) for u, v in request.edges for k in found[u, v] if reverse[k] in found[v, u]}
        more = back - set(request.edges)
        return replace(request, edges=(*request.edges, *more)) if more else request

    def own_edges(self) -> Tensor:
        """Mask of the stored edges without those that are the reverse of another."""
        ways = torch.tensor([-1 if k is None else k for k in self.spec["reverse"]], device=self.edge_type.device)
        reverse, ends = ways[self.edge_type], self.edge_index
        first: Tensor = (
            (reverse < 0) | (self.edge_type < reverse) | ((self.edge_type == reverse) & (ends[0] <= ends[1]))
        )
        return first

    def to_hetero_data(self) -> HeteroData:
        """What is left as a ``HeteroData``. Deleted nodes are rows without features, edges, label and mask."""
        found, spec = HeteroData(), self.spec
        for (kind, width), rows in zip(spec["nodes"], _places(self.node_type, len(spec["nodes"])), strict=True):
            found[kind].x = self.x[rows][:, :width].contiguous()
        target = self.ids(self.target)
        for key in ("y", *MASKS):
            if self.get(key) is not None:
                found[self.target][key] = self[key][target]
        for number, (relation, part) in enumerate(zip(self.relations, self._parts(), strict=True)):
            found[relation].edge_index = part.ends.clone()
            for key, have in (("edge_weight", spec["weighted"]), ("edge_attr", spec["attributes"])):
                if have[number]:
                    found[relation][key] = self._carried(key, part.ids, have[number]).clone()
        return found

    def describe(self) -> Mapping[str, Any]:
        """How many nodes and edges there are of each type; deleted nodes count, as their rows are there."""
        places, parts = _places(self.node_type, len(self.types)), self._parts()
        return {
            "target": self.target,
            "nodes": {kind: rows.numel() for kind, rows in zip(self.types, places, strict=True)},
            "edges": {" ".join(r): part.ids.numel() for r, part in zip(self.relations, parts, strict=True)},
        }

    @property
    def names(self) -> Sequence[str]:
        """Types of nodes by their number, which begins with 1."""
        return ("", *self.types)

    @property
    def both_ways(self) -> bool:
        """Whether every relation has its reverse."""
        return all(number is not None for number in self.spec["reverse"])

    def _parts(self) -> "tuple[_Part, ...]":
        ends = tuple((self.types.index(a) + 1, self.types.index(b) + 1) for a, _, b in self.relations)
        return _by_relation(self.edge_index, self.edge_type, self.node_type, ends)

    def _carried(self, key: str, ids: Tensor, width: int) -> Tensor:
        """What the edges of one relation carry: a weight, or as many columns as they have."""
        value: Tensor = self[key][ids]
        return value if value.dim() == 1 else value[:, :width].contiguous()

    def _plain(self, kind: str, some: Any, what: str) -> list[int]:
        """Numbers of a type as those of the plain graph."""
        rows, given = self.ids(kind), numbers(some, f"{what} of {kind}")
        within(given, rows.numel(), f"{what}: {kind}")
        plain: list[int] = rows[torch.tensor(given, dtype=torch.long, device=rows.device)].tolist()
        return plain

    def _pairs(self, edges: Mapping[Relation, Iterable[Pair]]) -> list[Pair]:
        """Edges by relation as pairs of the plain graph; what a pair would take beside is refused."""
        asked: dict[Pair, set[int]] = {}
        for relation, some in edges.items():
            if relation not in self.relations:
                there = ", ".join(map(str, self.relations))
                raise RequestError(f"edges: there is no relation {shown(relation)}; there are {there}")
            number, (source, _, into) = self.relations.index(relation), relation
            given = tuples(some, 2, f"edges of {relation}", "a pair (source, target)")
            ends = [self._plain(kind, [e[i] for e in given], "edges") for i, kind in ((0, source), (1, into))]
            for u, v in zip(*ends, strict=True):
                asked.setdefault((u, v), set()).add(number)
        found, reverse = self._between(asked), self.spec["reverse"]
        for (u, v), own in asked.items():
            if own - found[u, v]:
                name = " ".join(self.relations[min(own - found[u, v])])
                raise RequestError(f"edges: {self._local(u, v)} is not among those of {name}")
            named = own | {reverse[k] for k in asked.get((v, u), ())}
            more = found[u, v] - named
            back = found[v, u] - {reverse[k] for k in named} - asked.get((v, u), set())
            if more or (back and any(reverse[k] in found[v, u] for k in own)):
                names = listed([" ".join(self.relations[k]) for k in sorted(more or back)])
                raise RequestError(
                    f"edges: {self._local(u, v)} are joined by {names} as well, and a request takes all edges between "
                    "two nodes; name them too, or revoke nothing of this pair"
                )
        return list(asked)

    def _local(self, *plain: int) -> str:
        """Some nodes by their type and number."""
        kinds = [int(self.node_type[node]) - 1 for node in plain]
        places = _places(self.node_type, len(self.types))
        return ", ".join(
            f"{self.types[k]} {int(torch.searchsorted(places[k], node))}" for node, k in zip(plain, kinds, strict=True)
        )

    def _between(self, pairs: Iterable[Pair]) -> dict[Pair, set[int]]:
        """By which relations each of some pairs is joined, and each turned round."""
        found: dict[Pair, set[int]] = {way: set() for u, v in pairs for way in ((u, v), (v, u))}
        size = self.x.size(0)
        wanted = torch.tensor([u * size + v for u, v in found], dtype=torch.long, device=self.edge_index.device)
        here = torch.isin(self.edge_index[0] * size + self.edge_index[1], wanted).nonzero().flatten()
        rows = torch.cat([self.edge_index[:, here], self.edge_type[None, here]]).t().tolist()
        for u, v, number in rows:
            found[u, v].add(number)
        return found


EXAMPLES = {
    "labels": "{7: 2}",
    "edge_weights": "{('author', 'writes', 'paper'): [(3, 7, 0.5)]}",
    "nodes": "{'author': [3]}",
    "edges": "{('author', 'writes', 'paper'): [(3, 7)]}",
    "features": "{'paper': {7: 'all'}}",
}


@dataclass(frozen=True)
class _Part:
    """The edges of one relation: where they are stored, and their ends as numbers of their types."""

    ids: Tensor
    ends: Tensor


@remembered
def _places(node_type: Tensor, count: int) -> tuple[Tensor, ...]:
    """The nodes of each type, in order."""
    order, sizes = node_type.argsort(stable=True), torch.bincount(node_type, minlength=count + 1).cumsum(0).tolist()
    return tuple(order[a:b].clone() for a, b in pairwise(sizes))


@remembered
def _by_relation(edge_index: Tensor, edge_type: Tensor, node_type: Tensor, ends: tuple[Pair, ...]) -> tuple[_Part, ...]:
    """The edges of each relation. A node without a type stands in for others in a part of a graph; its edges go."""
    local = torch.zeros_like(node_type)
    for rows in _places(node_type, max(max(pair) for pair in ends)):
        local[rows] = torch.arange(rows.numel(), device=rows.device)
    kinds, parts = node_type[edge_index], []
    known = (kinds > 0).all(dim=0)
    for number, pair in enumerate(ends):
        ids = ((edge_type == number) & known).nonzero().flatten()
        if bool((kinds[:, ids] != torch.tensor(pair, device=ids.device)[:, None]).any()):
            raise DataError(
                f"edges of type {number} join nodes of other types than they should; was edge_index edited?"
            )
        parts.append(_Part(ids, local[edge_index[:, ids]]))
    return tuple(parts)


def _cut(x: Tensor, node_type: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The features of each type."""
    places = _places(node_type, len(widths))
    return tuple(x[rows][:, :width].contiguous() for rows, width in zip(places, widths, strict=True))


_cut_once = remembered(_cut)

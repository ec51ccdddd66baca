"""Whole graphs as examples: a data set of graphs as one plain graph, in which every graph has a node of its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.memo import remembered
from unweave._core.words import listed
from unweave.changes import Change
from unweave.errors import DataError, ModelError, RequestError
from unweave.request import Request
from unweave.tasks.calling import Offer, called, rows_of, takes
from unweave.tasks.collection import CARRIED, flat
from unweave.tasks.growth import Growth
from unweave.tasks.more_graphs import as_document, graph_growth
from unweave.tasks.naming import check_columns, check_given, numbers, tuples, within
from unweave.tasks.task import Task

__all__ = ["Graphs"]

NODE, GRAPH = 1, 2
"""Types of nodes."""

MESSAGE, MEMBER = 0, 1
"""Types of edges: those of the graphs, and one from every node to the graph that it belongs to."""


class Graphs(Task):
    """Graphs with one label each.

    :meth:`of` makes it, of a list of ``Data``. A model is called as PyG's graph classifiers are,
    ``model(x, edge_index, batch)``, with ``edge_weight`` and ``edge_attr`` by name where the graphs have them; it gives
    one row a graph. Graphs and their nodes go by their numbers in the list, which never shift: ``graph`` has the number
    of the graph of every node.
    """

    readout = 1
    lasting = frozenset({"node_type", "graph"})

    @classmethod
    def of(
        cls,
        dataset: Iterable[Data],
        *,
        train: Sequence[int] | Tensor | None = None,
        val: Sequence[int] | Tensor | None = None,
        test: Sequence[int] | Tensor | None = None,
        seed: int = 0,
    ) -> "Graphs":
        """The plain graph of some graphs.

        Taken are ``x``, ``edge_index``, ``edge_weight``, ``edge_attr`` and ``y``. What else the graphs have stays
        behind.

        Args:
            dataset: The graphs, a list or one of PyG's data sets; each has ``x`` and one label ``y``.
            train: Numbers of the graphs to train on, or a boolean mask of them.
            val: Those to validate on.
            test: Those to test on.
            seed: Of the split into 81 % to train, 9 % to validate and 10 % to test, where none of them is given.

        Raises:
            DataError: They cannot be put together; the error says what to do.
        """
        tensors, undirected = flat(dataset, {"train": train, "val": val, "test": test}, seed)
        graph = cls(**tensors)
        graph.spec = {"undirected": undirected}
        if not graph.y.is_floating_point() and graph.y.dim() == 1:
            graph.num_classes = int(graph.y.max()) + 1
        return graph

    def call(self, model: nn.Module) -> Tensor:
        """The model's outputs of the graphs that have nodes; zero rows for all others."""
        whole = self._whole()
        _check_filled(self.edge_index, self.edge_type, self.node_type, self.train_mask)
        chosen = _chosen if self.x.requires_grad else _chosen_once  # what is differentiated by is not remembered
        offers: list[Offer] = [(key, (key,), self[key][whole.edges]) for key in CARRIED if self.get(key) is not None]
        first: tuple[Tensor, ...] = (chosen(whole.nodes, self.x), whole.ends)
        if takes(model, "batch"):
            offers.append(("several graphs", ("batch",), whole.batch))
        elif any(takes(model, key) for key in CARRIED):  # the third argument is not one for the batch
            raise ModelError(
                f"{type(model).__name__}.forward takes no batch, so it is no model of whole graphs; add the argument, "
                "or pass forward=lambda model, data: …"
            )
        else:
            first = (*first, whole.batch)
        found = called(model, first, "x, edge_index, batch", tuple(offers))
        return rows_of(found, model, whole.graphs, self.x.size(0), "graphs")

    def request(
        self,
        graphs: Iterable[int] = (),
        nodes: Iterable[tuple[int, int]] = (),
        edges: Iterable[tuple[int, int, int]] = (),
        features: Mapping[tuple[int, int], str | Iterable[int]] | None = None,
        labels: Iterable[int] = (),
        *,
        id: str | None = None,
        note: str | None = None,
    ) -> Request:
        """A request in the numbering of the data set.

        Args:
            graphs: Graphs to delete, with all that is in them.
            nodes: Nodes (graph, node) to delete, with their edges.
            edges: Edges (graph, u, v) to delete; in both directions where all edges go both ways.
            features: Features to revoke: (graph, node) → ``"all"`` or the columns.
            labels: Graphs whose labels may no longer be used.
            id: Your own name for the request.
            note: A remark.

        Example:
            >>> graphs.request(graphs=[3], nodes=[(4, 5)], edges=[(6, 0, 1)])  # doctest: +SKIP
        """
        check_given({"features": features}, {"features": "{(3, 5): 'all'}"})
        ends = tuples(edges, 3, "edges", "(graph, u, v)")
        rows = tuples((features or {}).keys(), 2, "features", "(graph, node)")
        columns = [
            check_columns(some, self.x.size(1), f"node {row[1]} of graph {row[0]}")
            for row, some in zip(rows, (features or {}).values(), strict=True)
        ]
        sources, targets = (self._nodes([(entry[0], entry[at]) for entry in ends], "edges") for at in (1, 2))
        return Request(
            nodes=[
                *self._graphs(graphs, "graphs"),
                *self._nodes(tuples(nodes, 2, "nodes", "(graph, node)"), "nodes"),
            ],
            edges=list(zip(sources, targets, strict=True)),
            features=dict(zip(self._nodes(rows, "features"), columns, strict=True)),
            labels=self._graphs(labels, "labels"),
            id=id,
            note=note,
        )

    def growth(self, change: Change) -> Growth:
        """New graphs, and edges within those that are there."""
        return graph_growth(self, change, (NODE, GRAPH), (MESSAGE, MEMBER))

    def change(
        self,
        graphs: Iterable[Data] = (),
        edges: Iterable[Sequence[Any]] = (),
        features: Mapping[tuple[int, int], Any] | None = None,
        labels: Mapping[int, Any] | None = None,
        edge_weights: Iterable[Sequence[Any]] = (),
        *,
        forget: Request | None = None,
        id: str | None = None,
        note: str | None = None,
    ) -> Change:
        """A change in the numbering of the data set; new graphs get the numbers after its last.

        Args:
            graphs: New graphs, as :meth:`of` takes them, to train on.
            edges: New edges (graph, u, v) within graphs that are there, with a weight where edges have one.
            features: Corrected features: (graph, node) → its whole row, or columns with their values.
            labels: Corrected labels, by graph.
            edge_weights: Corrected weights (graph, u, v, weight).
            forget: What goes, as :meth:`request` makes it.
            id: Your own name for the change.
            note: A remark.
        """
        check_given({"features": features}, {"features": "{(3, 5): {0: 1.5}}"})
        check_given({"labels": labels}, {"labels": "{3: 1}"})
        rows, known = dict(features or {}), dict(labels or {})

        def within_one(some: Iterable[Sequence[Any]], what: str) -> list[list[Any]]:
            return [[*self._nodes([(e[0], e[1]), (e[0], e[2])], what), *e[3:]] for e in map(tuple, some)]

        return Change(
            add={"graphs": [as_document(one, k) for k, one in enumerate(graphs)], "edges": within_one(edges, "edges")},
            correct={
                "features": dict(zip(self._nodes(list(rows), "features"), rows.values(), strict=True)),
                "labels": dict(zip(self._graphs(list(known), "labels"), known.values(), strict=True)),
                "edge_weights": within_one(edge_weights, "edge_weights"),
            },
            forget=forget,
            id=id,
            note=note,
        )

    def complete(self, request: Request) -> Request:
        """A request with all nodes of the graphs that it deletes, and with both directions of undirected edges.

        Raises:
            RequestError: It leaves a graph without nodes, or names what says that a node belongs to a graph.
        """
        kinds = self.node_type.cpu()
        strange = [edge for edge in request.edges if bool((kinds[list(edge)] == GRAPH).any())]
        if strange:
            raise RequestError(
                f"edges: {listed(strange)} tells that a node belongs to a graph, which is no edge of that graph; "
                "delete the node or the graph"
            )
        named = set(request.nodes)
        if named:
            node, into = self._members()
            whole = torch.tensor([n for n in request.nodes if kinds[n] == GRAPH], device=node.device, dtype=torch.long)
            here = torch.isin(into, whole)
            left = ~torch.isin(node, torch.tensor(request.nodes, device=node.device))
            touched, kept = torch.unique(into[~left & ~here]), torch.unique(into[left])
            emptied = touched[~torch.isin(touched, kept)]
            if emptied.numel():
                graphs = self.graph[emptied].tolist()
                raise RequestError(
                    f"nodes: no node is left of graph {listed(graphs)}, which has no meaning without; name the graph, "
                    f"request(graphs={graphs})"
                )
            named |= set(node[here].tolist())
        pairs = set(request.edges)
        if self.spec["undirected"]:
            pairs |= {(v, u) for u, v in pairs}
        if len(named) == len(request.nodes) and len(pairs) == len(request.edges):
            return request
        return replace(request, nodes=tuple(named), edges=tuple(pairs))

    def own_edges(self) -> Tensor:
        """Mask of the edges of the graphs."""
        mask: Tensor = self.edge_type == MESSAGE
        return mask

    def graphs(self) -> list[Data]:
        """What is left, each graph with its ``number``; deleted nodes and graphs are not in it."""
        whole, found = self._whole(), []
        nodes = torch.bincount(whole.batch, minlength=whole.graphs.numel()).tolist()
        # Edges of one graph lie together, as they did in the data set.
        order = whole.batch[whole.ends[0]].argsort(stable=True)
        edges = torch.bincount(whole.batch[whole.ends[0]], minlength=whole.graphs.numel()).tolist()
        at, first = 0, 0
        for graph, size, count in zip(whole.graphs.tolist(), nodes, edges, strict=True):
            some = order[first : first + count]
            data = Data(x=self.x[whole.nodes[at : at + size]], edge_index=whole.ends[:, some] - at)
            for key in CARRIED:
                if self.get(key) is not None:
                    data[key] = self[key][whole.edges[some]]
            data.y, data.number = self.y[graph : graph + 1], int(self.graph[graph])
            found.append(data)
            at, first = at + size, first + count
        return found

    def describe(self) -> Mapping[str, Any]:
        """How many graphs, nodes and edges are left."""
        whole = self._whole()
        return {"graphs": whole.graphs.numel(), "nodes": whole.nodes.numel(), "edges": whole.edges.numel()}

    @property
    def names(self) -> Sequence[str]:
        """Types of nodes by their number, which begins with 1."""
        return ("", "node", "graph")

    @property
    def both_ways(self) -> bool:
        """Whether every edge goes both ways."""
        return bool(self.spec["undirected"])

    def _whole(self) -> "_Whole":
        return _whole(self.edge_index, self.edge_type, self.node_type)

    def _members(self) -> tuple[Tensor, Tensor]:
        """Nodes, and the graph that each is in."""
        node, into = self.edge_index[:, self.edge_type == MEMBER]
        return node, into

    def _graphs(self, some: Any, what: str) -> list[int]:
        """Numbers of graphs as those of the plain graph."""
        rows, given = (self.node_type == GRAPH).nonzero().flatten(), numbers(some, what)
        within(given, rows.numel(), f"{what}: graph")
        plain: list[int] = rows[torch.tensor(given, dtype=torch.long, device=rows.device)].tolist()
        return plain

    def _nodes(self, some: Sequence[tuple[int, ...]], what: str) -> list[int]:
        """Nodes (graph, node) as those of the plain graph."""
        order, start = _rows(self.graph, self.node_type)
        within((graph for graph, _ in some), start.numel() - 1, f"{what}: graph")
        plain = []
        for graph, node in some:
            first, end = int(start[graph]), int(start[graph + 1])
            within([node], end - first, f"{what}: node of graph {graph}")
            plain.append(int(order[first + node]))
        return plain


@dataclass(frozen=True)
class _Whole:
    """The graphs that are left, as a batch.

    Attributes:
        nodes: Their nodes, by graph.
        batch: The place of each node's graph among those left.
        graphs: The nodes that stand for these.
        edges: Where their edges are stored.
        ends: The ends of these, as places among the nodes.
    """

    nodes: Tensor
    batch: Tensor
    graphs: Tensor
    edges: Tensor
    ends: Tensor


@remembered
def _whole(edge_index: Tensor, edge_type: Tensor, node_type: Tensor) -> _Whole:
    node, into = edge_index[:, (edge_type == MEMBER) & (node_type[edge_index] > 0).all(dim=0)]
    order = node.argsort(stable=True)
    order = order[into[order].argsort(stable=True)]
    nodes, (graphs, batch) = node[order], torch.unique(into[order], return_inverse=True)
    place = torch.full_like(node_type, -1)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    ends = place[edge_index]
    edges = ((edge_type == MESSAGE) & (ends >= 0).all(dim=0)).nonzero().flatten()
    return _Whole(nodes, batch, graphs, edges, ends[:, edges])


@remembered
def _check_filled(edge_index: Tensor, edge_type: Tensor, node_type: Tensor, train_mask: Tensor) -> None:
    """Refuse a graph that is trained on and has no nodes, as it is left where nobody completed a request."""
    trained = train_mask.nonzero().flatten()
    empty = trained[~torch.isin(trained, _whole(edge_index, edge_type, node_type).graphs)]
    if empty.numel():
        raise DataError(f"{empty.numel()} graphs that are trained on have no nodes left; delete these graphs, too")


@remembered
def _rows(graph: Tensor, node_type: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes by the number of their graph, in order, deleted ones included, and where those of each begin."""
    nodes = (node_type == NODE).nonzero().flatten()
    order, count = nodes[graph[nodes].argsort(stable=True)], int((node_type == GRAPH).sum())
    start = torch.zeros(count + 1, dtype=torch.long, device=graph.device)
    start[1:] = torch.bincount(graph[nodes], minlength=count).cumsum(0)
    return order.cpu(), start.cpu()


def _chosen(nodes: Tensor, x: Tensor) -> Tensor:
    """The features of some nodes; remembered with these, which every data set has its own of, while two may share x."""
    return x.index_select(0, nodes)


_chosen_once = remembered(_chosen)

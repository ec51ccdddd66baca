"""What a change adds and what it corrects: parsed, checked for their form, described."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from unweave._core.reading import refuse_twice
from unweave._core.words import shown
from unweave.changes.values import (
    Edge,
    Label,
    as_edges,
    as_id,
    as_items,
    as_label,
    as_number,
    as_row,
    by_id,
    only,
)
from unweave.errors import RequestError

__all__ = ["Added", "Corrected", "NewGraph", "NewNode"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class NewNode:
    """A node that is added.

    Attributes:
        features: Its row of features; empty for a user or an item, which has none.
        label: Its label; ``None`` where it has none.
        mask: The set it belongs to: ``"train"``, ``"val"``, ``"test"``, or ``None`` for a node without a label.
        edges: Its neighbours, each with the weight of the edge where the graph has weights; on undirected graphs alone.
        type: What it is, where a graph has nodes of several types.
    """

    features: tuple[float, ...]
    label: Label | None = None
    mask: str | None = None
    edges: tuple[tuple[int, float | None], ...] = ()
    type: str | None = None

    @classmethod
    def read(cls, document: Any, number: int) -> "NewNode":
        """Read one of ``add.nodes``."""
        where = f"add.nodes[{number}]"
        given = only(document, ("features", "label", "mask", "edges", "type"), where)
        kind = given.get("type")
        if kind is not None and not isinstance(kind, str):
            raise RequestError(f"{where}.type must be the name of a type of nodes, got {shown(kind)}")
        if "features" not in given and kind is None:
            raise RequestError(f"{where} has no features; give its whole row, as wide as those of the graph")
        label, mask = _labelled(given, where)
        edges = [_neighbour(entry, f"{where}.edges") for entry in as_items(given.get("edges", ()), f"{where}.edges")]
        refuse_twice(f"{where}.edges", [end for end, _ in edges])
        features = as_row(given.get("features", ()), f"{where}.features")
        return cls(features, label, mask, tuple(sorted(edges)), kind)

    def content(self) -> dict[str, Any]:
        """The JSON document."""
        found: dict[str, Any] = {"features": list(self.features)} if self.features or self.type is None else {}
        if self.label is not None:
            found |= {"label": _plain(self.label), "mask": self.mask}
        if self.edges:
            found["edges"] = [end if weight is None else [end, weight] for end, weight in self.edges]
        return found if self.type is None else {"type": self.type, **found}


@dataclass(frozen=True)
class NewGraph:
    """A whole graph that is added to a data set of graphs.

    Attributes:
        features: A row for each of its nodes.
        label: Its label.
        mask: The set it belongs to.
        edges: Its edges, by the numbers of its own nodes, from 0 on.
    """

    features: tuple[tuple[float, ...], ...]
    label: Label
    mask: str
    edges: tuple[Edge, ...]

    @classmethod
    def read(cls, document: Any, number: int) -> "NewGraph":
        """Read one of ``add.graphs``."""
        where = f"add.graphs[{number}]"
        given = only(document, ("features", "label", "mask", "edges"), where)
        if "features" not in given or given.get("label") is None:
            raise RequestError(f"{where} needs features, a row for each of its nodes, and a label")
        rows = [as_row(row, f"{where}.features") for row in as_items(given["features"], f"{where}.features")]
        edges = as_edges(given.get("edges", ()), f"{where}.edges")
        outside = next((edge[:2] for edge in edges if max(edge[:2]) >= len(rows)), None)
        if not rows or outside is not None:
            what = f"edge {outside} leads out of it" if rows else "it has no nodes"
            raise RequestError(f"{where}: {what}; its nodes are the rows of its features, from 0 on")
        label, mask = _labelled(given, where)
        assert label is not None
        assert mask is not None
        return cls(tuple(rows), label, mask, tuple(edges))

    def content(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "features": [list(row) for row in self.features],
            "label": _plain(self.label),
            "mask": self.mask,
            "edges": [edge.content() for edge in self.edges],
        }


@dataclass(frozen=True)
class Added:
    """What is added.

    Attributes:
        nodes: New nodes. The first gets the id after the last of the graph, the next the one after, and so on.
        edges: New edges, among old and new nodes.
        graphs: New graphs of a data set of graphs.
    """

    nodes: tuple[NewNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    graphs: tuple[NewGraph, ...] = ()

    @classmethod
    def read(cls, document: Any) -> "Added":
        """Read ``add``."""
        given = only(document, ("nodes", "edges", "graphs"), "add")
        nodes = [NewNode.read(node, i) for i, node in enumerate(as_items(given.get("nodes", ()), "add.nodes"))]
        graphs = [NewGraph.read(one, i) for i, one in enumerate(as_items(given.get("graphs", ()), "add.graphs"))]
        return cls(tuple(nodes), tuple(as_edges(given.get("edges", ()), "add.edges")), tuple(graphs))

    def content(self) -> dict[str, Any]:
        """The JSON document; what is absent is left out."""
        kinds = {edge.kind: None for edge in self.edges}
        edges: Any = [edge.content() for edge in self.edges]
        if set(kinds) - {None}:
            edges = {kind: [edge.content() for edge in self.edges if edge.kind == kind] for kind in kinds}
        found: dict[str, Any] = {
            "nodes": [node.content() for node in self.nodes],
            "edges": edges,
            "graphs": [one.content() for one in self.graphs],
        }
        return {kind: entries for kind, entries in found.items() if entries}


@dataclass(frozen=True)
class Corrected:
    """What is corrected.

    Attributes:
        features: Node → its whole row, or the columns that change with their values.
        labels: Node → its label. A node that is in no mask is a training node then.
        edge_weights: Edges ``(u, v, weight)`` that are there, with what they weigh from now on.
    """

    features: Mapping[int, tuple[float, ...] | Mapping[int, float]] = field(default_factory=dict)
    labels: Mapping[int, Label] = field(default_factory=dict)
    edge_weights: tuple[Edge, ...] = ()

    @classmethod
    def read(cls, document: Any) -> "Corrected":
        """Read ``correct``."""
        given = only(document, ("features", "labels", "edge_weights"), "correct")
        rows = by_id(given.get("features", {}), "correct.features", '{"7": {"0": 1.5}}, or {"7": [a whole row]}')
        labels = by_id(given.get("labels", {}), "correct.labels", '{"4": 2}')
        edges = as_edges(given.get("edge_weights", ()), "correct.edge_weights")
        bare = next((edge for edge in edges if edge[2] is None), None)
        if bare is not None:
            raise RequestError(f"correct.edge_weights: {bare[:2]} has no weight; write [u, v, weight]")
        named = next((edge.kind for edge in edges if edge.kind is not None), None)
        if named is not None:
            raise RequestError(f"correct.edge_weights must be a list of [u, v, weight], got one of {shown(named)}")
        return cls(
            MappingProxyType({node: _values(node, value) for node, value in rows.items()}),
            MappingProxyType({node: as_label(value, f"correct.labels of {node}") for node, value in labels.items()}),
            tuple(edges),
        )

    def content(self) -> dict[str, Any]:
        """The JSON document; what is absent is left out."""
        features = {
            str(node): {str(c): v for c, v in value.items()} if isinstance(value, Mapping) else list(value)
            for node, value in self.features.items()
        }
        found: dict[str, Any] = {
            "features": features,
            "labels": {str(node): _plain(label) for node, label in self.labels.items()},
            "edge_weights": [edge.content() for edge in self.edge_weights],
        }
        return {kind: entries for kind, entries in found.items() if entries}

    def outline(self) -> dict[str, Any]:
        """What is corrected without its values."""
        features = {str(n): list(v) if isinstance(v, Mapping) else "all" for n, v in self.features.items()}
        edges = [list(edge[:2]) for edge in self.edge_weights]
        found = {"features": features, "labels": list(self.labels), "edge_weights": edges}
        return {kind: entries for kind, entries in found.items() if entries}


def _labelled(given: Mapping[str, Any], where: str) -> tuple[Label | None, str | None]:
    """The label of something new, and the set it belongs to: that to train with, where nothing else is said."""
    label = None if given.get("label") is None else as_label(given["label"], f"{where}.label")
    mask = given.get("mask", None if label is None else "train")
    if mask is not None and mask not in SPLITS:
        raise RequestError(f"{where}.mask: {shown(mask)} is none of {', '.join(SPLITS)}")
    if (mask is None) != (label is None):
        raise RequestError(f"{where}: a node with a label is in one of {', '.join(SPLITS)}, one without in none")
    return label, mask


def _neighbour(entry: Any, where: str) -> tuple[int, float | None]:
    if isinstance(entry, list | tuple):
        if len(entry) != 2:
            raise RequestError(f"{where}: {shown(entry)} is no neighbour; write its id, or [id, weight]")
        return as_id(entry[0], where), as_number(entry[1], where)
    return as_id(entry, where), None


def _values(node: int, value: Any) -> tuple[float, ...] | Mapping[int, float]:
    where = f"correct.features of {node}"
    if not isinstance(value, Mapping):
        return as_row(value, where)
    found = {column: as_number(entry, where) for column, entry in by_id(value, where, '{"0": 1.5}').items()}
    if not found:
        raise RequestError(f"{where}: no column is named; leave the node out, or give a column with its value")
    return MappingProxyType(found)


def _plain(label: Label) -> int | float | list[float]:
    return list(label) if isinstance(label, tuple) else label

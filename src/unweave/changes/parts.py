"""What a change adds and what it corrects: parsed, checked for their form, described."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from unweave._core.words import shown
from unweave.changes.values import Edge, Label, as_edge, as_id, as_items, as_label, as_number, as_row, by_id, once, only
from unweave.errors import RequestError

__all__ = ["Added", "Corrected", "NewNode"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class NewNode:
    """A node that is added.

    Attributes:
        features: Its row of features.
        label: Its label; ``None`` where it has none.
        mask: The set it belongs to: ``"train"``, ``"val"``, ``"test"``, or ``None`` for a node without a label.
        edges: Its neighbours, each with the weight of the edge where the graph has weights; on undirected graphs alone.
    """

    features: tuple[float, ...]
    label: Label | None = None
    mask: str | None = None
    edges: tuple[tuple[int, float | None], ...] = ()

    @classmethod
    def read(cls, document: Any, number: int) -> "NewNode":
        """Read one of ``add.nodes``."""
        where = f"add.nodes[{number}]"
        given = only(document, ("features", "label", "mask", "edges"), where)
        if "features" not in given:
            raise RequestError(f"{where} has no features; give its whole row, as wide as those of the graph")
        label = None if given.get("label") is None else as_label(given["label"], f"{where}.label")
        mask = given.get("mask", None if label is None else "train")
        if mask is not None and mask not in SPLITS:
            raise RequestError(f"{where}.mask: {shown(mask)} is none of {', '.join(SPLITS)}")
        if (mask is None) != (label is None):
            raise RequestError(f"{where}: a node with a label is in one of {', '.join(SPLITS)}, one without in none")
        edges = [_neighbour(entry, f"{where}.edges") for entry in as_items(given.get("edges", ()), f"{where}.edges")]
        once([end for end, _ in edges], f"{where}.edges")
        return cls(as_row(given["features"], f"{where}.features"), label, mask, tuple(sorted(edges)))

    def content(self) -> dict[str, Any]:
        """The JSON document."""
        found: dict[str, Any] = {"features": list(self.features)}
        if self.label is not None:
            found |= {"label": _plain(self.label), "mask": self.mask}
        if self.edges:
            found["edges"] = [end if weight is None else [end, weight] for end, weight in self.edges]
        return found


@dataclass(frozen=True)
class Added:
    """What is added.

    Attributes:
        nodes: New nodes. The first gets the id after the last of the graph, the next the one after, and so on.
        edges: New edges ``(u, v, weight)``, among old and new nodes.
    """

    nodes: tuple[NewNode, ...] = ()
    edges: tuple[Edge, ...] = ()

    @classmethod
    def read(cls, document: Any) -> "Added":
        """Read ``add``."""
        given = only(document, ("nodes", "edges"), "add")
        nodes = [NewNode.read(node, i) for i, node in enumerate(as_items(given.get("nodes", ()), "add.nodes"))]
        edges = [as_edge(edge, "add.edges") for edge in as_items(given.get("edges", ()), "add.edges")]
        once([edge[:2] for edge in edges], "add.edges")
        return cls(tuple(nodes), tuple(sorted(edges, key=lambda edge: edge[:2])))

    def content(self) -> dict[str, Any]:
        """The JSON document; what is absent is left out."""
        edges = [[u, v] if weight is None else [u, v, weight] for u, v, weight in self.edges]
        found: dict[str, Any] = {"nodes": [node.content() for node in self.nodes], "edges": edges}
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
        weights = as_items(given.get("edge_weights", ()), "correct.edge_weights")
        edges = [as_edge(edge, "correct.edge_weights") for edge in weights]
        bare = next((edge for edge in edges if edge[2] is None), None)
        if bare is not None:
            raise RequestError(f"correct.edge_weights: {bare[:2]} has no weight; write [u, v, weight]")
        once([edge[:2] for edge in edges], "correct.edge_weights")
        return cls(
            MappingProxyType({node: _values(node, value) for node, value in rows.items()}),
            MappingProxyType({node: as_label(value, f"correct.labels of {node}") for node, value in labels.items()}),
            tuple(sorted(edges, key=lambda edge: edge[:2])),
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
            "edge_weights": [list(edge) for edge in self.edge_weights],
        }
        return {kind: entries for kind, entries in found.items() if entries}

    def outline(self) -> dict[str, Any]:
        """What is corrected without its values."""
        features = {str(n): list(v) if isinstance(v, Mapping) else "all" for n, v in self.features.items()}
        edges = [list(edge[:2]) for edge in self.edge_weights]
        found = {"features": features, "labels": list(self.labels), "edge_weights": edges}
        return {kind: entries for kind, entries in found.items() if entries}


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

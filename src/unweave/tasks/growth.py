"""What a change brings to the plain graph of a task, in tensors; and the checks that all tasks share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unweave._core.words import listed, shown
from unweave.changes import Change
from unweave.changes.values import Edge, Label
from unweave.errors import RequestError

__all__ = [
    "MASKS",
    "Growth",
    "blank_rows",
    "check_corrections",
    "check_new",
    "check_weighted",
    "finite",
    "label_of",
    "there_already",
    "turned",
    "weighed",
]

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class Growth:
    """What comes to a graph, with all that goes along, such as the examples of a new interaction.

    Attributes:
        rows: Attributes of the new nodes by name, as they are once the change is carried out.
        lasting: Those that say what a new node is; a graph has them from the moment it has the row.
        edges: The stored edges that come, ``[2, m]``.
        carried: Attributes of these by name.
        pairs: The edges that the change names, its own neighbours included, in the task's order of their ends.
        weights: All stored edges that are to weigh something else.
        named: Ids of the new nodes that the change names; of new graphs there is one each.
        spec: What else is to be known of the grown graph of a task.
    """

    rows: Mapping[str, Tensor]
    edges: Tensor
    carried: Mapping[str, Tensor]
    pairs: Sequence[Edge]
    weights: Sequence[Edge] = ()
    named: Sequence[int] = ()
    lasting: Mapping[str, Tensor] = field(default_factory=dict)
    spec: Mapping[str, Any] | None = None

    @property
    def count(self) -> int:
        """How many nodes come."""
        return self.rows["x"].size(0)


def blank_rows(graph: Any, count: int) -> dict[str, Tensor]:
    """Features, labels and masks of so many nodes that have none."""
    found = {"x": graph.x.new_zeros((count, graph.x.size(1)))}
    y: Tensor = graph.y
    missing = torch.nan if y.is_floating_point() else 0 if y.dtype == torch.bool else -1
    found["y"] = y.new_full((count, *y.shape[1:]), missing)
    return found | {name: graph[name].new_zeros(count) for name in MASKS if graph.get(name) is not None}


def label_of(graph: Any, label: Label, where: str) -> Tensor:
    """A label as a graph has its own."""
    y: Tensor = graph.y
    if y.dim() > 1:
        width = y[0].numel()
        if not isinstance(label, tuple) or len(label) != width:
            raise RequestError(f"{where} must be a list of {width} numbers, as data.y has them; got {label!r}")
        return torch.tensor(label, dtype=y.dtype, device=y.device).reshape(y.shape[1:])
    if isinstance(label, tuple):
        raise RequestError(f"{where} must be one number, as data.y has them; got {len(label)}")
    if not y.is_floating_point():
        known = graph.get("num_classes")
        classes = 2 if y.dtype == torch.bool else known if isinstance(known, int) else int(y.max()) + 1
        if not isinstance(label, int) or not 0 <= label < classes:
            raise RequestError(f"{where} must be one of the classes 0 … {classes - 1}, got {label!r}")
    return torch.tensor(label, dtype=y.dtype, device=y.device)


def finite(values: Any, like: Tensor, where: str) -> Tensor:
    """Numbers in the precision of a tensor; one that it cannot hold is refused."""
    found = torch.as_tensor(values, dtype=torch.double).to(like.device, like.dtype)
    if not bool(torch.isfinite(found).all()):
        raise RequestError(f"{where}: a number is too large for {like.dtype}; a graph holds no infinity")
    return found


def check_new(change: Change, types: Sequence[str], *, graphs: bool = False) -> list[int]:
    """The type of each new node, by its place; a kind of thing that the task does not add is refused."""
    if change.add.graphs and not graphs:
        raise RequestError("add.graphs: the data is no data set of graphs (unweave.tasks.Graphs); add nodes and edges")
    found = []
    for number, node in enumerate(change.add.nodes):
        kind = types[0] if node.type is None and len(types) == 1 else node.type
        if kind not in types:
            got = "no type" if kind is None else shown(kind)
            raise RequestError(f"add.nodes[{number}].type: {got}; there are {', '.join(types)}")
        found.append(types.index(kind))
    return found


def check_corrections(change: Change, widths: Tensor, labelled: Tensor, what: str) -> None:
    """Refuse to correct what a node does not have.

    Args:
        change: The change.
        widths: How many features each node has, 0 for none.
        labelled: Which nodes may have a label.
        what: Which these are, in words.
    """
    size = widths.numel()
    inside = [node for node in change.correct.features if node < size]
    for node in inside:
        value, width = change.correct.features[node], int(widths[node])
        if not width:
            raise RequestError(
                f"correct.features of node {node}: it has none, or was deleted; users, items and examples have no row"
            )
        columns = list(value) if isinstance(value, Mapping) else [len(value) - 1]
        if max(columns) >= width or (not isinstance(value, Mapping) and len(value) != width):
            raise RequestError(f"correct.features of node {node}: nodes of its type have columns 0 … {width - 1}")
    strange = [node for node in change.correct.labels if node < size and not bool(labelled[node])]
    if strange:
        raise RequestError(f"correct.labels: {listed(strange)}: {what}")


def there_already(edges: Iterable[Edge], known: set[tuple[int, int]]) -> None:
    """Refuse edges that are there already, and those that are named twice."""
    seen: set[tuple[int, int]] = set()
    for edge in edges:
        pair = edge[:2]
        if pair in seen:
            raise RequestError(f"add.edges: named more than once: {pair}; name each edge once, in one direction")
        if pair in known:
            raise RequestError(f"add.edges: {pair}: there already; leave it out")
        seen.add(pair)


def turned(edge: Edge) -> Edge:
    """An edge in the other direction."""
    return edge._replace(source=edge.target, target=edge.source)


def check_weighted(graph: Any, edges: Iterable[Edge], where: str) -> None:
    """Edges have a weight where those of the graph have, and only there."""
    weighted = graph.get("edge_weight") is not None
    odd = next((edge for edge in edges if (edge.weight is not None) != weighted), None)
    if odd is not None:
        needs = "has weights, so write [u, v, weight]" if weighted else "has no data.edge_weight, so write [u, v]"
        raise RequestError(f"{where}: {odd[:2]}: the graph {needs}")


def weighed(graph: Any, change: Change, own: Tensor, *, both: bool) -> list[Edge]:
    """All stored edges whose weight a change corrects.

    Args:
        graph: The graph.
        change: The change.
        own: Which stored edges are the user's.
        both: Whether an edge and its reverse are one.
    """
    asked = list(change.correct.edge_weights)
    if not asked:
        return []
    if graph.get("edge_weight") is None:
        raise RequestError("correct.edge_weights: the graph has no data.edge_weight; forget an edge, or add one")
    there = set(map(tuple, graph.edge_index[:, own].t().tolist()))
    absent = [edge[:2] for edge in asked if edge[:2] not in there]
    if absent:
        raise RequestError(f"correct.edge_weights: {listed(absent)}: not in the graph; add.edges adds an edge")
    ways = [way for edge in asked for way in ([edge, turned(edge)] if both and edge[0] != edge[1] else [edge])]
    found = {way[:2]: way for way in ways}
    if len(found) < len(ways):
        raise RequestError("correct.edge_weights: an edge is named in both directions, which are one; name it once")
    return list(found.values())

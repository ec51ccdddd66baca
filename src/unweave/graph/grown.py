"""A graph with more in it, attribute by attribute: blank rows, new edges, other values. Nothing is written in place."""

import copy
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.changes import Change
from unweave.changes.values import Edge, Label
from unweave.errors import RequestError
from unweave.graph.edit import MASKS, attributes, blanked, stored_edges
from unweave.graph.index import among, edge_keys
from unweave.tasks.growth import Growth, blank_rows, check_new, check_weighted, finite, label_of, turned
from unweave.tasks.task import Task

__all__ = ["check_growth", "corrected", "growth_of", "labelled", "padded", "reweighed", "with_growth"]

GROWS = ("x", "y", *MASKS)
CARRIED = ("edge_index", "edge_weight")


def check_growth(data: Data, change: Change) -> None:
    """Refuse a change to a graph with something in it of which the change cannot tell what it is for new entries."""
    of_nodes, of_edges = attributes(data)
    known = data.lasting if isinstance(data, Task) else frozenset()
    carried = (*CARRIED, "edge_type", "edge_attr") if isinstance(data, Task) else CARRIED
    parts: list[tuple[bool, list[str], Iterable[str], str]] = [
        (bool(change.add.nodes or change.add.graphs), of_nodes, {*GROWS, *known}, "node"),
        (bool(change.add.edges or any(node.edges for node in change.add.nodes)), of_edges, carried, "edge"),
    ]
    for grows, names, allowed, what in parts:
        other = next((name for name in names if name not in allowed), None)
        if grows and other is not None:
            raise RequestError(
                f"data.{other} has an entry for every {what}, and a change cannot say what that of a new {what} is; "
                f"delete it from the graph, or train anew on a graph that has it"
            )
    weight = data.get("edge_weight")
    if isinstance(weight, Tensor) and weight.dim() != 1:
        raise RequestError(f"data.edge_weight has shape {tuple(weight.shape)}; a change gives one number an edge")


def growth_of(data: Data, change: Change, edges: list[Edge], weights: list[Edge], *, undirected: bool) -> Growth:
    """What a change brings to a plain graph.

    Args:
        data: The graph.
        change: The change.
        edges: The edges that come.
        weights: Those whose weight is corrected.
        undirected: Whether an edge is stored in both directions.
    """
    check_new(change, ["node"])
    size, count = data.x.size(0), len(change.add.nodes)
    pairs, weight = _stored(data, edges, "add.edges", undirected=undirected)
    return Growth(
        rows=_rows(data, change),
        edges=pairs,
        carried={} if weight is None else {"edge_weight": weight},
        pairs=edges,
        weights=_ways(weights, undirected=undirected),
        named=range(size, size + count),
    )


def padded(data: Data, growth: Growth) -> Data:
    """The same graph with blank rows at its end: nodes without features, edges, label or mask, of a known type."""
    count = growth.count
    if not count:
        return data
    grown, size = copy.copy(data), data.x.size(0)
    none = torch.arange(size, size + count, device=data.x.device)
    for key in attributes(data)[0]:
        value = data[key]
        if key in growth.lasting:
            grown[key] = torch.cat([value, growth.lasting[key].to(value)])
        elif isinstance(value, Tensor):
            value = torch.cat([value, value.new_zeros((count, *value.shape[1:]))])
            grown[key] = blanked(key, value, none, none)
        elif isinstance(value, np.ndarray):
            grown[key] = np.concatenate([value, np.zeros((count, *value.shape[1:]), value.dtype)])
        else:
            grown[key] = [*value, *[None] * count]
    if "num_nodes" in data:
        grown.num_nodes = size + count
    if growth.spec is not None:
        grown.spec = dict(growth.spec)
    return grown


def with_growth(data: Data, growth: Growth) -> Data:
    """A graph whose blank rows at the end are those of the new nodes of a change, and with its edges at their end."""
    grown, first = copy.copy(data), data.x.size(0) - growth.count
    if growth.count:
        for name, rows in growth.rows.items():
            grown[name] = torch.cat([data[name][:first], rows.to(data[name])])
    if growth.edges.size(1):
        grown.edge_index = torch.cat([stored_edges(data), growth.edges], dim=1)
        for name, values in growth.carried.items():
            grown[name] = torch.cat([data[name], values.to(data[name])])
    return grown


def _rows(data: Data, change: Change) -> dict[str, Tensor]:
    """Features, labels and masks of the new nodes of a plain graph."""
    nodes, width = change.add.nodes, data.x.size(1)
    rows = blank_rows(data, len(nodes))
    for number, node in enumerate(nodes):
        if len(node.features) != width:
            raise RequestError(
                f"add.nodes[{number}].features has {len(node.features)} numbers; the graph has {width} features a node"
            )
        rows["x"][number] = finite(node.features, rows["x"], "add.nodes")
        if node.label is None:
            continue
        name = f"{node.mask}_mask"
        if name not in rows:
            raise RequestError(f"add.nodes[{number}].mask: the graph has no data.{name}; leave mask out for training")
        rows["y"][number] = label_of(data, node.label, f"add.nodes: the label of node {data.x.size(0) + number}")
        rows[name][number] = True
    return rows


def labelled(data: Data, labels: Mapping[int, Label], where: str) -> Tensor:
    """The labels of a graph with other ones for some nodes."""
    y: Tensor = data.y.clone()
    for node, label in labels.items():
        y[node] = label_of(data, label, f"{where}: the label of node {node}")
    return y


def corrected(data: Data, change: Change) -> tuple[Tensor, list[int]]:
    """The features of a graph with those that a change corrects, and whose they are."""
    rows = change.correct.features
    if not rows:
        return data.x, []
    x, width = data.x.clone(), data.x.size(1)
    for node, value in rows.items():
        where = f"correct.features of node {node}"
        if not isinstance(value, Mapping):
            if len(value) != width:
                raise RequestError(f"{where}: {len(value)} numbers; the graph has {width} features a node")
            x[node] = finite(value, x, where)
            continue
        outside = [column for column in value if column >= width]
        if outside:
            raise RequestError(f"{where}: column {outside[0]} is out of range; the graph has columns 0 … {width - 1}")
        x[node, list(value)] = finite(list(value.values()), x, where)
    return x, list(rows)


def reweighed(data: Data, edges: Iterable[Edge]) -> tuple[Data, Tensor]:
    """A graph some of whose stored edges weigh something else, and those that do."""
    edges = list(edges)
    if not edges:
        return data, stored_edges(data)[:, :0]
    if data.get("edge_weight") is None:
        raise RequestError("correct.edge_weights: the graph has no data.edge_weight; forget an edge, or add one")
    pairs, weights = _stored(data, edges, "correct.edge_weights", undirected=False)
    assert weights is not None
    index, size, grown = stored_edges(data), data.x.size(0), copy.copy(data)
    known, order = torch.sort(edge_keys(pairs[0], pairs[1], size))
    stored = edge_keys(index[0], index[1], size)
    found = among(stored, known).nonzero().flatten()
    values = weights[order][torch.searchsorted(known, stored[found])]
    changed = found[data.edge_weight[found] != values]
    grown.edge_weight = data.edge_weight.index_copy(0, found, values)
    return grown, index[:, changed]


def _stored(data: Data, edges: list[Edge], where: str, *, undirected: bool) -> tuple[Tensor, Tensor | None]:
    """Edges as they are stored, in both directions on an undirected graph, and their weights."""
    check_weighted(data, edges, where)
    ways = _ways(edges, undirected=undirected)
    pairs = torch.tensor([edge[:2] for edge in ways], dtype=torch.long, device=data.edge_index.device).reshape(-1, 2)
    weight = data.get("edge_weight")
    return pairs.t(), None if weight is None else finite([edge.weight for edge in ways], weight, where)


def _ways(edges: list[Edge], *, undirected: bool) -> list[Edge]:
    """Edges with their reverse, where they go both ways."""
    return [*edges, *(turned(edge) for edge in edges if undirected and edge.source != edge.target)]

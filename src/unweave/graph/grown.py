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
from unweave.tasks.task import Task

__all__ = ["check_growth", "corrected", "labelled", "padded", "reweighed", "with_edges", "with_nodes"]

GROWS = ("x", "y", *MASKS)
CARRIED = ("edge_index", "edge_weight")


def check_growth(data: Data, change: Change) -> None:
    """Refuse a change to a graph with something in it of which the change cannot tell what it is for new entries."""
    if isinstance(data, Task):
        raise RequestError(
            f"a {type(data).__name__} has nodes and edges of several types, which a change cannot name; forget what is "
            "to go with a Request, and train anew on the graph with what is new"
        )
    of_nodes, of_edges = attributes(data)
    parts: list[tuple[bool, list[str], tuple[str, ...], str]] = [
        (bool(change.add.nodes), of_nodes, GROWS, "node"),
        (bool(change.add.edges or any(node.edges for node in change.add.nodes)), of_edges, CARRIED, "edge"),
    ]
    for grows, names, known, what in parts:
        other = next((name for name in names if name not in known), None)
        if grows and other is not None:
            raise RequestError(
                f"data.{other} has an entry for every {what}, and a change cannot say what that of a new {what} is; "
                f"delete it from the graph, or train anew on a graph that has it"
            )
    weight = data.get("edge_weight")
    if isinstance(weight, Tensor) and weight.dim() != 1:
        raise RequestError(f"data.edge_weight has shape {tuple(weight.shape)}; a change gives one number an edge")


def padded(data: Data, count: int) -> Data:
    """The same graph with blank rows at its end: nodes without features, edges, label or mask."""
    if not count:
        return data
    grown, size = copy.copy(data), data.x.size(0)
    none = torch.arange(size, size + count, device=data.x.device)
    for key in attributes(data)[0]:
        value = data[key]
        if isinstance(value, Tensor):
            value = torch.cat([value, value.new_zeros((count, *value.shape[1:]))])
            grown[key] = blanked(key, value, none, none)
        elif isinstance(value, np.ndarray):
            grown[key] = np.concatenate([value, np.zeros((count, *value.shape[1:]), value.dtype)])
        else:
            grown[key] = [*value, *[None] * count]
    if "num_nodes" in data:
        grown.num_nodes = size + count
    return grown


def with_nodes(data: Data, change: Change, first: int) -> Data:
    """A graph whose last rows are those of the new nodes of a change."""
    nodes = change.add.nodes
    if not nodes:
        return data
    grown, width = copy.copy(data), data.x.size(1)
    for number, node in enumerate(nodes):
        if len(node.features) != width:
            raise RequestError(
                f"add.nodes[{number}].features has {len(node.features)} numbers; the graph has {width} features a node"
            )
        name = None if node.mask is None else f"{node.mask}_mask"
        if name is not None and data.get(name) is None:
            raise RequestError(f"add.nodes[{number}].mask: the graph has no data.{name}; leave mask out for training")
    grown.x = data.x.clone()
    grown.x[first:] = _finite(torch.tensor([node.features for node in nodes], dtype=torch.double), data.x, "add.nodes")
    given = {first + i: node.label for i, node in enumerate(nodes) if node.label is not None}
    grown.y = labelled(data, given, "add.nodes")
    for name in MASKS:
        chosen = [first + i for i, node in enumerate(nodes) if f"{node.mask}_mask" == name]
        if chosen:
            grown[name] = data[name].index_fill(0, _ids(chosen, data), True)
    return grown


def labelled(data: Data, labels: Mapping[int, Label], where: str) -> Tensor:
    """The labels of a graph with other ones for some nodes."""
    y: Tensor = data.y.clone()
    for node, label in labels.items():
        y[node] = _label(data, label, f"{where}: the label of node {node}")
    return y


def _label(data: Data, label: Label, where: str) -> Tensor:
    y: Tensor = data.y
    if y.dim() > 1:
        width = y[0].numel()
        if not isinstance(label, tuple) or len(label) != width:
            raise RequestError(f"{where} must be a list of {width} numbers, as data.y has them; got {label!r}")
        return torch.tensor(label, dtype=y.dtype, device=y.device).reshape(y.shape[1:])
    if isinstance(label, tuple):
        raise RequestError(f"{where} must be one number, as data.y has them; got {len(label)}")
    if not y.is_floating_point():
        known = data.get("num_classes")
        classes = 2 if y.dtype == torch.bool else known if isinstance(known, int) else int(y.max()) + 1
        if not isinstance(label, int) or not 0 <= label < classes:
            raise RequestError(f"{where} must be one of the classes 0 … {classes - 1}, got {label!r}")
    return torch.tensor(label, dtype=y.dtype, device=y.device)


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
            x[node] = _finite(torch.tensor(value, dtype=torch.double), x, where)
            continue
        outside = [column for column in value if column >= width]
        if outside:
            raise RequestError(f"{where}: column {outside[0]} is out of range; the graph has columns 0 … {width - 1}")
        x[node, list(value)] = _finite(torch.tensor(list(value.values()), dtype=torch.double), x, where)
    return x, list(rows)


def with_edges(data: Data, edges: list[Edge], *, undirected: bool) -> tuple[Data, Tensor]:
    """A graph with more edges at the end of those it has, and the stored ones that came."""
    pairs, weights = _stored(data, edges, "add.edges", undirected=undirected)
    if not edges:
        return data, pairs
    grown = copy.copy(data)
    grown.edge_index = torch.cat([stored_edges(data), pairs], dim=1)
    if weights is not None:
        grown.edge_weight = torch.cat([data.edge_weight, weights])
    return grown, pairs


def reweighed(data: Data, edges: Iterable[Edge], *, undirected: bool) -> tuple[Data, Tensor]:
    """A graph whose edges weigh something else, and the stored ones that do."""
    edges = list(edges)
    if edges and data.get("edge_weight") is None:
        raise RequestError("correct.edge_weights: the graph has no data.edge_weight; forget an edge, or add one")
    pairs, weights = _stored(data, edges, "correct.edge_weights", undirected=undirected)
    if not edges:
        return data, pairs
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
    weighted = data.get("edge_weight") is not None
    odd = next((edge for edge in edges if (edge[2] is not None) != weighted), None)
    if odd is not None:
        needs = "has weights, so write [u, v, weight]" if weighted else "has no data.edge_weight, so write [u, v]"
        raise RequestError(f"{where}: {odd[:2]}: the graph {needs}")
    device = data.edge_index.device
    pairs = torch.tensor([edge[:2] for edge in edges], dtype=torch.long, device=device).reshape(-1, 2).t()
    weights = None
    if weighted:
        numbers = torch.tensor([edge[2] for edge in edges], dtype=torch.double)
        weights = _finite(numbers, data.edge_weight, where)
    if undirected:
        back = (pairs[0] != pairs[1]).nonzero().flatten()
        pairs = torch.cat([pairs, pairs[:, back].flip(0)], dim=1)
        weights = None if weights is None else torch.cat([weights, weights[back]])
    return pairs, weights


def _finite(values: Tensor, like: Tensor, where: str) -> Tensor:
    found = values.to(like.device, like.dtype)
    if not bool(torch.isfinite(found).all()):
        raise RequestError(f"{where}: a number is too large for {like.dtype}; a graph holds no infinity")
    return found


def _ids(ids: list[int], data: Data) -> Tensor:
    return torch.tensor(ids, dtype=torch.long, device=data.x.device)

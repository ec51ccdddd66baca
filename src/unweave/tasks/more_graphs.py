"""What a change brings to a data set of graphs: whole graphs, and edges within those that are there."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.changes import Change
from unweave.changes.parts import NewGraph
from unweave.changes.values import Edge
from unweave.errors import RequestError
from unweave.tasks.growth import (
    Growth,
    blank_rows,
    check_corrections,
    check_new,
    check_weighted,
    finite,
    label_of,
    there_already,
    turned,
    weighed,
)
from unweave.tasks.naming import within

__all__ = ["as_document", "graph_growth"]


def as_document(one: Any, number: int) -> dict[str, Any]:
    """A graph of PyG's as one of ``add.graphs``."""
    if not isinstance(one, Data) or not all(isinstance(one.get(key), Tensor) for key in ("x", "edge_index", "y")):
        raise RequestError(f"graphs: graph {number} must be a torch_geometric.data.Data with x, edge_index and y")
    if one.get("edge_attr") is not None or one.y.numel() != one.y[:1].numel():
        raise RequestError(
            f"graphs: graph {number} must have one label y, and no edge_attr, which a change cannot give"
        )
    weight = one.get("edge_weight")
    edges = [
        [*pair, *([] if weight is None else [float(weight[k])])] for k, pair in enumerate(one.edge_index.t().tolist())
    ]
    label = one.y.flatten().tolist()
    return {"features": one.x, "edges": edges, "label": label[0] if one.y.dim() < 2 else label}


def graph_growth(graph: Any, change: Change, types: tuple[int, int], kinds: tuple[int, int]) -> Growth:
    """What a change brings: of a new graph its nodes first, then the one that stands for it.

    Args:
        graph: The plain graph of the data set.
        change: The change.
        types: Types of nodes and of graphs.
        kinds: Types of edges, and of what says that a node belongs to a graph.
    """
    check_new(change, ["node"], graphs=True)
    if change.add.nodes:
        raise RequestError("add.nodes: a node belongs to a graph; add a whole one, in add.graphs")
    node, whole = types
    device, node_type, size = graph.x.device, graph.node_type, graph.node_type.numel()
    there = torch.zeros_like(node_type, dtype=torch.bool)  # what was deleted belongs to no graph, and has no nodes
    there[graph.edge_index[:, graph.edge_type == kinds[1]].flatten()] = True
    widths = torch.where((node_type == node) & there, graph.x.size(1), 0)
    labelled = (node_type == whole) & there
    check_corrections(change, widths, labelled, "whole graphs that are there have labels; name what stands for one")
    if (change.add.edges or change.add.graphs) and graph.get("edge_attr") is not None:
        raise RequestError("add: the edges of the graphs have edge_attr, which a change cannot give; train anew")
    inner = _within_graphs(graph, change, node, there)
    sizes = [len(one.features) for one in change.add.graphs]
    first, total, count = int((node_type == whole).sum()), sum(sizes), len(sizes)
    starts = [size + sum(sizes[:k]) + k for k in range(count)]
    stored = [way for edge in inner for way in _ways(graph, edge)]
    for start, one in zip(starts, change.add.graphs, strict=True):
        stored += [
            way._replace(source=way.source + start, target=way.target + start)
            for edge in _local(graph, one)
            for way in _ways(graph, edge)
        ]
    member = [(start + k, start + n) for start, n in zip(starts, sizes, strict=True) for k in range(n)]
    ends = torch.tensor([*(edge[:2] for edge in stored), *member], dtype=torch.long, device=device).reshape(-1, 2).t()
    carried = {"edge_type": torch.tensor([kinds[0]] * len(stored) + [kinds[1]] * len(member), device=device)}
    if graph.get("edge_weight") is not None:
        weights = [1.0 if edge.weight is None else edge.weight for edge in stored] + [1.0] * len(member)
        carried["edge_weight"] = finite(weights, graph.edge_weight, "add")
    each = [kind for n in sizes for kind in [*[node] * n, whole]]
    belongs = [first + k for k, n in enumerate(sizes) for _ in range(n + 1)]
    return Growth(
        rows=_rows(graph, change, total + count, starts, size),
        edges=ends,
        carried=carried,
        pairs=inner,
        weights=weighed(graph, change, graph.edge_type == kinds[0], both=graph.both_ways),
        named=[start + n for start, n in zip(starts, sizes, strict=True)],
        lasting={
            "node_type": torch.tensor(each, dtype=torch.long, device=device),
            "graph": torch.tensor(belongs, dtype=torch.long, device=device),
        },
        spec=graph.spec,
    )


def _rows(graph: Any, change: Change, count: int, starts: list[int], size: int) -> dict[str, Tensor]:
    rows, width = blank_rows(graph, count), graph.x.size(1)
    for number, (start, one) in enumerate(zip(starts, change.add.graphs, strict=True)):
        where, at = f"add.graphs[{number}]", start - size
        odd = next((len(row) for row in one.features if len(row) != width), None)
        if odd is not None:
            raise RequestError(f"{where}.features has {odd} numbers a node; the graphs have {width} features a node")
        end = at + len(one.features)
        rows["x"][at:end] = finite(one.features, rows["x"], where)
        rows["y"][end] = label_of(graph, one.label, f"{where}.label")
        if f"{one.mask}_mask" not in rows:
            raise RequestError(f"{where}.mask: the data has no {one.mask}_mask; leave mask out for training")
        rows[f"{one.mask}_mask"][end] = True
    return rows


def _within_graphs(graph: Any, change: Change, node: int, there: Tensor) -> list[Edge]:
    """New edges of graphs that are there."""
    edges, found = change.add.edges, list[Edge]()
    for edge in edges:
        within(edge[:2], graph.node_type.numel(), "add.edges: node")
        ends = list(edge[:2])
        kinds, homes = graph.node_type[ends].tolist(), graph.graph[ends].tolist()
        if kinds != [node, node] or homes[0] != homes[1] or edge.kind is not None or not bool(there[ends].all()):
            raise RequestError(f"add.edges: {edge[:2]}: an edge joins two nodes of one graph that are there")
        found.append(turned(edge) if graph.both_ways and edge.source > edge.target else edge)
    check_weighted(graph, found, "add.edges")
    there_already(found, set(map(tuple, graph.edge_index.t().tolist())) if found else set())
    return found


def _local(graph: Any, one: NewGraph) -> list[Edge]:
    """The edges of a new graph; where all go both ways each is taken once."""
    check_weighted(graph, list(one.edges), "add.graphs: edges")
    if not graph.both_ways:
        return list(one.edges)
    found: dict[tuple[int, int], Edge] = {}
    for edge in one.edges:
        low, high = sorted(edge[:2])
        known = found.setdefault((low, high), edge._replace(source=low, target=high))
        if known.weight != edge.weight:
            raise RequestError(f"add.graphs: edge {(low, high)} weighs something else in either direction")
    return list(found.values())


def _ways(graph: Any, edge: Edge) -> list[Edge]:
    """An edge as it is stored."""
    loop = edge.source == edge.target
    return [edge] if loop or not graph.both_ways else [edge, turned(edge)]

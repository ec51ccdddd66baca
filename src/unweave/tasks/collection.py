"""Put a data set of graphs together to the tensors of one plain graph."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from unweave._core.split import parts_of
from unweave.errors import DataError

__all__ = ["CARRIED", "flat"]

CARRIED = ("edge_weight", "edge_attr")


def flat(
    dataset: Iterable[Data], given: Mapping[str, Sequence[int] | Tensor | None], seed: int
) -> tuple[dict[str, Tensor], bool]:
    """The tensors of the plain graph, all nodes before the graphs; and whether every edge has its reverse."""
    if isinstance(dataset, Data | HeteroData) or not isinstance(dataset, Iterable):
        raise DataError(f"Graphs.of takes a list of graphs or a data set, got {type(dataset).__name__}")
    graphs: list[Data] = list(dataset)
    if not graphs:
        raise DataError("the data set has no graph")
    for number, graph in enumerate(graphs):
        _check(graph, number, graphs[0])
    sizes = torch.tensor([graph.x.size(0) for graph in graphs])
    counts, device = torch.tensor([graph.edge_index.size(1) for graph in graphs]), graphs[0].x.device
    total, many = int(sizes.sum()), len(graphs)
    starts = (sizes.cumsum(0) - sizes).to(device)
    each = torch.arange(many, device=device)
    belongs = torch.repeat_interleave(each, sizes.to(device))
    shift = torch.repeat_interleave(starts, counts.to(device))
    inner = torch.cat([graph.edge_index for graph in graphs], dim=1) + shift
    member = torch.stack([torch.arange(total, device=device), belongs + total])
    x = torch.cat([graph.x for graph in graphs])
    tensors = {
        "x": torch.cat([x, x.new_zeros(many, x.size(1))]),
        "edge_index": torch.cat([inner, member], dim=1),
        "edge_type": torch.cat([torch.zeros_like(inner[0]), torch.ones_like(member[0])]),
        "node_type": torch.cat([torch.ones_like(belongs), torch.full_like(each, 2)]),
        "graph": torch.cat([belongs, each]),
        "y": _labels(graphs, total),
    }
    for key, blank in zip(CARRIED, (1.0, 0.0), strict=True):
        if graphs[0].get(key) is not None:
            values = torch.cat([graph[key] for graph in graphs])
            tensors[key] = torch.cat([values, values.new_full((total, *values.shape[1:]), blank)])
    for name, ids in _split(given, many, seed).items():
        tensors[f"{name}_mask"] = torch.zeros(total + many, dtype=torch.bool, device=device)
        tensors[f"{name}_mask"][ids.to(device) + total] = True
    return tensors, _both_ways(inner, total)


def _check(graph: Any, number: int, first: Any) -> None:
    if not isinstance(graph, Data):
        raise DataError(
            f"graph {number} of the data set must be a torch_geometric.data.Data, got {type(graph).__name__}"
        )
    if not isinstance(graph.get("x"), Tensor) or graph.x.dim() != 2 or not graph.x.is_floating_point():
        raise DataError(
            f"graph {number} has no x, floating-point features of its nodes; without any, take their degrees or ones, "
            "e.g. by torch_geometric.transforms.OneHotDegree or Constant"
        )
    if not graph.x.size(0):
        raise DataError(f"graph {number} has no nodes; leave it out")
    index = graph.get("edge_index")
    if not isinstance(index, Tensor) or index.dtype != torch.long or index.dim() != 2 or index.size(0) != 2:
        raise DataError(f"graph {number} has no edge_index, int64 of shape [2, edges]")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < graph.x.size(0):
        raise DataError(f"edge_index of graph {number} names nodes outside 0 … {graph.x.size(0) - 1}")
    label = graph.get("y")
    if not isinstance(label, Tensor) or (label.dim() and label.size(0) != 1) or label.dim() > 2:
        got = tuple(label.shape) if isinstance(label, Tensor) else type(label).__name__
        raise DataError(f"graph {number} must have one label y for all of it, of shape [1] or [1, targets], got {got}")
    for key in ("x", "y", *CARRIED):
        one, other = graph.get(key), first.get(key)
        if (one is None) != (other is None) or (
            one is not None and (one.dtype, one.shape[1:], one.device) != (other.dtype, other.shape[1:], other.device)
        ):
            raise DataError(f"{key} of graph {number} is not of the same kind as that of graph 0")
        if key in CARRIED and one is not None and one.size(0) != index.size(1):
            raise DataError(f"{key} of graph {number} has {one.size(0)} rows for {index.size(1)} edges")


def _labels(graphs: list[Data], nodes: int) -> Tensor:
    """The labels, on the rows of the graphs."""
    labels = torch.cat([graph.y.reshape(1, *graph.y.shape[1:]) for graph in graphs])
    blank = torch.nan if labels.is_floating_point() else -1
    return torch.cat([labels.new_full((nodes, *labels.shape[1:]), blank), labels])


def _split(given: Mapping[str, Sequence[int] | Tensor | None], size: int, seed: int) -> dict[str, Tensor]:
    """Numbers of the graphs of each part."""
    if all(part is None for part in given.values()):
        return parts_of(size, seed)
    found: dict[str, Tensor] = {}
    for name, part in given.items():
        if part is None:
            continue
        ids = torch.as_tensor(np.asarray(part.cpu() if isinstance(part, Tensor) else part))
        if ids.dtype == torch.bool and ids.shape == (size,):
            ids = ids.nonzero().flatten()
        if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
            raise DataError(f"{name} must be numbers of graphs, or a boolean mask of {size}, got {part!r}")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            raise DataError(f"{name} names graphs outside 0 … {size - 1}")
        found[name] = ids.long()
    if "train" not in found:
        raise DataError("say which graphs to train on: train=…")
    return found


def _both_ways(edge_index: Tensor, size: int) -> bool:
    there, back = (edge_index[a] * size + edge_index[b] for a, b in ((0, 1), (1, 0)))
    return torch.equal(there.sort().values, back.sort().values)

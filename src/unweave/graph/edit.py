"""What is left of a graph once some of it is taken out, attribute by attribute."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from unweave._core.memo import derive
from unweave.errors import DataError
from unweave.tasks.task import Task

__all__ = ["MASKS", "attributes", "blanked", "check_attributes", "chosen", "lasting", "less", "mask_of", "stored_edges"]

MASKS = ("train_mask", "val_mask", "test_mask")


def less(data: Data, x: Tensor, gone: Tensor, nodes: Tensor, unlabelled: Tensor) -> Data:
    """A shallow copy of a graph in which only what changes is new memory.

    Args:
        data: The graph.
        x: Its features, or what is left of them.
        gone: Ids of the stored edges that are taken out.
        nodes: Ids of the deleted nodes. They stay as rows without features, edges, label or mask.
        unlabelled: Ids of the nodes whose labels may not be used, deleted ones included.
    """
    left = copy.copy(data)
    of_nodes, of_edges = attributes(data)
    if gone.numel():
        kept = (~mask_of(gone, data.edge_index.size(1))).nonzero().flatten()
        for key in of_edges:
            left[key] = chosen(data, key, kept)
        derive(left.edge_index, data.edge_index, kept)
    for key in of_nodes:
        if key != "x" and not lasting(data, key):
            left[key] = blanked(key, data[key], nodes, unlabelled)
    left.x = x
    derive(x, data.x)
    return left


def chosen(data: Data, key: str, ids: Tensor) -> Any:
    """An attribute of edges for some of them."""
    value = data[key]
    if isinstance(value, list | tuple):
        return [value[edge] for edge in ids.tolist()]
    along = data.__cat_dim__(key, value)
    return value.take(ids.cpu().numpy(), along) if isinstance(value, np.ndarray) else value.index_select(along, ids)


def blanked(key: str, value: Any, nodes: Tensor, unlabelled: Tensor) -> Any:
    """An attribute of nodes without what may not be known of deleted ones, or used of those without a label."""
    if isinstance(value, list | tuple):
        lost = set(nodes.tolist())
        return [None if node in lost else entry for node, entry in enumerate(value)] if lost else value
    if isinstance(value, np.ndarray):
        value = value.copy()
        value[nodes.cpu().numpy()] = None if value.dtype == object else np.zeros((), value.dtype)
        return value
    if key in MASKS:
        return value.index_fill(0, unlabelled, False) if unlabelled.numel() else value
    if key == "y":
        missing = torch.nan if value.is_floating_point() else 0 if value.dtype == torch.bool else -1
        return value.index_fill(0, unlabelled, missing) if unlabelled.numel() else value
    return value.index_fill(0, nodes, 0) if nodes.numel() else value


def lasting(data: Data, key: str) -> bool:
    """Whether an attribute stays as it is of deleted nodes too: of what type they were, which numbers others."""
    return isinstance(data, Task) and key in data.lasting


def attributes(data: Data) -> tuple[list[str], list[str]]:
    """Names of the attributes of nodes and of edges; where there are as many of both, the name decides for PyG."""
    of_nodes, of_edges = data.node_attrs(), data.edge_attrs()
    both = set(of_nodes) & set(of_edges)
    return (
        [key for key in of_nodes if key not in both or "edge" not in key],
        [key for key in of_edges if key not in both or "edge" in key],
    )


def check_attributes(data: Data) -> None:
    """Refuse a graph with something in it of which a part cannot be taken out."""
    rows = data.x.size(0)
    if data.num_nodes != rows:
        raise DataError(
            f"data.num_nodes is {data.num_nodes}, but data.x has {rows} rows; set it to {rows}, or delete it"
        )
    for key in dict.fromkeys(name for names in attributes(data) for name in names):
        value = data[key]
        if isinstance(value, list | tuple | np.ndarray) or (
            isinstance(value, Tensor) and value.layout == torch.strided
        ):
            continue
        kind = f"tensor of layout {value.layout}" if isinstance(value, Tensor) else type(value).__name__
        raise DataError(
            f"data.{key} has an entry for every node or edge and is a {kind}, from which none can be taken out; make "
            "it a dense tensor, an array or a list, or delete it from the graph"
        )


def stored_edges(data: Data) -> Tensor:
    """The edges of a graph as a plain tensor, ``[2, m]``, whatever PyG knows of them beside."""
    edges: Tensor = data.edge_index
    return edges.as_tensor() if isinstance(edges, EdgeIndex) else edges


def mask_of(ids: Tensor, size: int) -> Tensor:
    """Ids as a mask."""
    mask = torch.zeros(size, dtype=torch.bool, device=ids.device)
    mask[ids] = True
    return mask

"""What is left of a graph once some of it is taken out, attribute by attribute."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.memo import derive

__all__ = ["MASKS", "attributes", "blanked", "less", "mask_of"]

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
            value = data[key]
            if isinstance(value, list | tuple):
                left[key] = [value[edge] for edge in kept.tolist()]
            else:
                left[key] = value.index_select(data.__cat_dim__(key, value), kept)
        derive(left.edge_index, data.edge_index, kept)
    for key in of_nodes:
        left[key] = x if key == "x" else blanked(key, data[key], nodes, unlabelled)
    derive(x, data.x)
    return left


def blanked(key: str, value: Any, nodes: Tensor, unlabelled: Tensor) -> Any:
    """An attribute of nodes without what may not be known of deleted ones, or used of those without a label."""
    if isinstance(value, list | tuple):
        lost = set(nodes.tolist())
        return [None if node in lost else entry for node, entry in enumerate(value)] if lost else value
    if key in MASKS:
        return value.index_fill(0, unlabelled, False) if unlabelled.numel() else value
    if key == "y":
        missing = torch.nan if value.is_floating_point() else 0 if value.dtype == torch.bool else -1
        return value.index_fill(0, unlabelled, missing) if unlabelled.numel() else value
    return value.index_fill(0, nodes, 0) if nodes.numel() else value


def attributes(data: Data) -> tuple[list[str], list[str]]:
    """Names of the attributes of nodes and of edges; where there are as many of both, the name decides for PyG."""
    of_nodes, of_edges = data.node_attrs(), data.edge_attrs()
    both = set(of_nodes) & set(of_edges)
    return (
        [key for key in of_nodes if key not in both or "edge" not in key],
        [key for key in of_edges if key not in both or "edge" in key],
    )


def mask_of(ids: Tensor, size: int) -> Tensor:
    """Ids as a mask."""
    mask = torch.zeros(size, dtype=torch.bool, device=ids.device)
    mask[ids] = True
    return mask

"""PyG's pair of stores, written as a folder: features by rows, edges as the store gives them."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from unweave._core.mapped import new_array
from unweave.datasets.sorting import write_sorted
from unweave.errors import DataError
from unweave.tasks.hetero import MASKS

__all__ = ["write_stores"]

ROWS = 1 << 16


def write_stores(features: FeatureStore, graph: GraphStore, folder: Path) -> None:
    """Write what two stores hold of one type of nodes and one of edges: ``x``, ``y``, masks and edges.

    Raises:
        DataError: They hold several types, or not what is needed.
    """
    known = {attr.attr_name: attr for attr in features.get_all_tensor_attrs()}
    groups = {attr.group_name for attr in known.values()}
    if len(groups) != 1 or not {"x", "y", "train_mask"} <= set(known):
        raise DataError(
            f"the feature store holds {', '.join(map(str, known))} of {len(groups)} types of nodes; x, y and "
            "train_mask of one are needed"
        )
    size = _write(features, known["x"], folder / "x.npy")
    for name in ("y", *MASKS):
        if name in known:
            _write(features, known[name], folder / f"{name}.npy")
    if twice := write_sorted([_edges(graph)], size, folder, both_ways=False):
        raise DataError(
            f"{twice} edges of the graph store are there more than once; draw parallel edges together first"
        )


def _write(features: FeatureStore, attr: TensorAttr, path: Path) -> int:
    """One tensor by rows; how many there are."""
    size, array = int(features.get_tensor_size(attr)[0]), None
    for first in range(0, size, ROWS):
        rows = _numpy(features.get_tensor(_rows(attr, slice(first, min(first + ROWS, size)))))
        array = new_array(path, rows.dtype, (size, *rows.shape[1:])) if array is None else array
        array[first : first + len(rows)] = rows
    if array is None:
        raise DataError(f"the feature store holds no row of {attr.attr_name}")
    array.flush()
    return size


def _rows(attr: TensorAttr, index: slice) -> TensorAttr:
    attr = copy.copy(attr)  # stores may have a class of their own for it
    attr.group_name = attr.group_name if attr.is_set("group_name") else None
    attr.index = index
    return attr


def _edges(graph: GraphStore) -> Any:
    attrs: list[EdgeAttr] = graph.get_all_edge_attrs()
    if len({attr.edge_type for attr in attrs}) != 1:
        raise DataError(
            f"the graph store holds edges of {len({attr.edge_type for attr in attrs})} types; one is needed"
        )
    attr = next((attr for attr in attrs if attr.layout == EdgeLayout.COO), None)
    if attr is None:
        raise DataError("the graph store holds no edges as pairs (COO); give those")
    row, col = graph.get_edge_index(attr)
    return np.stack([_numpy(row), _numpy(col)])


def _numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(torch.as_tensor(value))

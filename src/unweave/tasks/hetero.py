"""Read a ``HeteroData`` into the tensors of one plain graph."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from unweave._core.words import listed
from unweave.errors import DataError

__all__ = ["MASKS", "Relation", "flat"]

MASKS = ("train_mask", "val_mask", "test_mask")

Relation = tuple[str, str, str]
"""A type of edges, as PyG names it: type of the source, name, type of the target."""


def flat(hetero: HeteroData, target: str | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of the plain graph, and what else there is to know of it."""
    if not isinstance(hetero, HeteroData):
        raise DataError(f"Relations.of takes a torch_geometric.data.HeteroData, got {type(hetero).__name__}")
    features = _features(hetero)
    target = _target(hetero, target)
    types, sizes = list(features), [x.size(0) for x in features.values()]
    starts = dict(zip(types, [sum(sizes[:n]) for n in range(len(sizes))], strict=True))
    widths = {kind: x.size(1) for kind, x in features.items()}
    first = next(iter(features.values()))
    x = first.new_zeros(sum(sizes), max(widths.values()))
    for kind, rows in features.items():
        x[starts[kind] : starts[kind] + rows.size(0), : widths[kind]] = rows
    tensors = {"x": x, **_labels(hetero, target, starts[target], x)}
    counts = torch.tensor(sizes, device=x.device)
    tensors["node_type"] = torch.repeat_interleave(torch.arange(1, len(types) + 1, device=x.device), counts)
    relations: list[Relation] = list(hetero.edge_types)
    edges = [_edges(hetero, relation, features) for relation in relations]
    shifts = [torch.tensor([[starts[a]], [starts[b]]], device=x.device) for a, _, b in relations]
    tensors["edge_index"] = torch.cat([ends + shift for ends, shift in zip(edges, shifts, strict=True)], dim=1)
    counts = torch.tensor([ends.size(1) for ends in edges], device=x.device)
    tensors["edge_type"] = torch.repeat_interleave(torch.arange(len(relations), device=x.device), counts)
    weighted, attributes = _carried(hetero, relations, edges, tensors, x)
    spec = {
        "target": target,
        "nodes": [[kind, width] for kind, width in widths.items()],
        "edges": [list(relation) for relation in relations],
        "reverse": _reverse(hetero, relations, edges),
        "weighted": weighted,
        "attributes": attributes,
    }
    return tensors, spec


def _features(hetero: HeteroData) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for kind in hetero.node_types:
        x = hetero[kind].get("x")
        if not isinstance(x, Tensor):
            raise DataError(
                f"nodes of type {kind!r} have no x; give them one, e.g. data[{kind!r}].x = torch.ones(n, 1), or what "
                "an embedding gives"
            )
        if x.dim() != 2 or not x.is_floating_point() or x.layout != torch.strided:
            raise DataError(
                f"data[{kind!r}].x must be a dense floating-point matrix [nodes, features], got {x.dtype} of shape "
                f"{tuple(x.shape)}"
            )
        found[kind] = x
    if not found or not hetero.edge_types:
        raise DataError("the data has no nodes, or no edges; a graph has both")
    if len({(x.dtype, x.device) for x in found.values()}) > 1:
        raise DataError("the features of all types must be of one dtype and on one device; move them with .to(…) first")
    return found


def _target(hetero: HeteroData, target: str | None) -> str:
    labelled: list[str] = [kind for kind in hetero.node_types if {"y", "train_mask"} <= set(hetero[kind].keys())]
    if target is None:
        if len(labelled) != 1:
            there = f"{listed(labelled)} have" if labelled else "no type of nodes has"
            raise DataError(f"{there} y and train_mask; one type of nodes is learnt, name it: target='…'")
        return labelled[0]
    if target not in labelled:
        raise DataError(
            f"target {target!r} must be a type of nodes with y and train_mask; {listed(labelled)} have both"
        )
    return target


def _labels(hetero: HeteroData, target: str, start: int, x: Tensor) -> dict[str, Tensor]:
    """Labels and masks of the target on the rows of the plain graph."""
    size, found = hetero[target].x.size(0), {}
    for key in ("y", *MASKS):
        value = hetero[target].get(key)
        if value is None:
            continue
        if not isinstance(value, Tensor) or not value.dim() or value.size(0) != size:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise DataError(f"data[{target!r}].{key} must have a row for each of {size} nodes, got {got}")
        if key != "y" and (value.dtype != torch.bool or value.dim() != 1):
            raise DataError(f"data[{target!r}].{key} must be a boolean vector; choose one split if there are several")
        missing = False if value.dtype == torch.bool else torch.nan if value.is_floating_point() else -1
        found[key] = torch.full((x.size(0), *value.shape[1:]), missing, dtype=value.dtype, device=x.device)
        found[key][start : start + size] = value
    return found


def _edges(hetero: HeteroData, relation: Relation, features: dict[str, Tensor]) -> Tensor:
    source, _, into = relation
    strange = [kind for kind in (source, into) if kind not in features]
    if strange:
        raise DataError(f"the relation {relation} names nodes of type {strange[0]!r}, which are not in the data")
    ends = hetero[relation].get("edge_index")
    if not isinstance(ends, Tensor) or ends.dtype != torch.long or ends.dim() != 2 or ends.size(0) != 2:
        hint = "; convert adj_t to edge_index first" if "adj_t" in hetero[relation] else ""
        raise DataError(f"the relation {relation} has no edge_index, int64 of shape [2, edges]{hint}")
    for row, kind in zip(ends, (source, into), strict=True):
        if row.numel() and not 0 <= int(row.min()) <= int(row.max()) < features[kind].size(0):
            raise DataError(f"the relation {relation} names nodes of {kind!r} outside 0 … {features[kind].size(0) - 1}")
    return ends


def _carried(
    hetero: HeteroData, relations: list[Relation], edges: list[Tensor], tensors: dict[str, Tensor], x: Tensor
) -> tuple[list[int], list[int]]:
    """Weights and attributes of all edges, among the tensors; returns which relations have them, and how wide."""
    have: dict[str, list[int]] = {}
    for key, blank in (("edge_weight", 1.0), ("edge_attr", 0.0)):
        values = [hetero[relation].get(key) for relation in relations]
        for relation, value, ends in zip(relations, values, edges, strict=True):
            if value is not None and (
                value.size(0) != ends.size(1) or value.dim() > 2 or not value.is_floating_point()
            ):
                raise DataError(
                    f"{key} of {relation} must be floating-point numbers with a row for each of {ends.size(1)} edges, "
                    f"got {value.dtype} of shape {tuple(value.shape)}"
                )
            if key == "edge_weight" and value is not None and value.dim() != 1:
                raise DataError(f"edge_weight of {relation} must be one number an edge; for more there is edge_attr")
        have[key] = [0 if v is None else 1 if v.dim() == 1 else v.size(1) for v in values]
        if not any(have[key]):
            continue
        flat_ones = all(value is None or value.dim() == 1 for value in values)
        if not flat_ones and any(value is not None and value.dim() == 1 for value in values):
            raise DataError(f"{key} of all relations must have as many dimensions; give those of one number [edges, 1]")
        shape = () if flat_ones else (max(have[key]),)
        whole = torch.full((tensors["edge_index"].size(1), *shape), blank, dtype=x.dtype, device=x.device)
        start = 0
        for value, ends in zip(values, edges, strict=True):
            if value is not None:
                where = whole[start : start + ends.size(1)]
                (where if flat_ones else where[:, : value.size(1)]).copy_(value)
            start += ends.size(1)
        tensors[key] = whole
    return have["edge_weight"], have["edge_attr"]


def _reverse(hetero: HeteroData, relations: list[Relation], edges: list[Tensor]) -> list[int | None]:
    """For each relation the one that has its edges turned round, by what is stored or by the name ``rev_…``."""
    found: list[int | None] = []
    for number, ((source, name, into), ends) in enumerate(zip(relations, edges, strict=True)):
        others = [k for k, (a, _, b) in enumerate(relations) if (a, b) == (into, source)]
        named = [k for k in others if relations[k][1] == f"rev_{name}" or name == f"rev_{relations[k][1]}"]
        size = max(hetero[source].x.size(0), hetero[into].x.size(0))
        own = (ends[0] * size + ends[1]).sort().values
        turned = [
            k for k in others if own.numel() and torch.equal((edges[k][1] * size + edges[k][0]).sort().values, own)
        ]
        if number in turned and not _even(hetero, relations[number], ends, size):
            turned.remove(number)
        found.append(next(iter([*named, *sorted(turned, key=lambda k: k != number)]), None))
    return found


def _even(hetero: HeteroData, relation: Relation, ends: Tensor, size: int) -> bool:
    """Whether the edges of a relation that go both ways carry the same in either direction."""
    there, back = (ends[0] * size + ends[1]).argsort(stable=True), (ends[1] * size + ends[0]).argsort(stable=True)
    values = [value for key in ("edge_weight", "edge_attr") if (value := hetero[relation].get(key)) is not None]
    return all(torch.equal(value[there], value[back]) for value in values)

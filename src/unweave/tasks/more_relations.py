"""What a change brings to a graph of several types of nodes and of edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unweave._core.words import listed, shown
from unweave.changes import Change
from unweave.changes.values import Edge
from unweave.errors import RequestError
from unweave.tasks.growth import Growth, blank_rows, check_corrections, check_new, finite, label_of, turned
from unweave.tasks.naming import numbers, within

__all__ = ["relation_change", "relation_growth"]

Typed = tuple[int, int, int]
"""Source, target and number of the relation."""


def relation_change(graph: Any, given: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    """What a change adds and corrects in the numbers of the plain graph; ``Relations.change`` tells what is given."""
    new = {kind: list(rows) for kind, rows in given["nodes"].items()}
    last, ids = graph.node_type.numel(), {kind: graph.ids(kind).cpu() for kind in {*graph.types, *new}}
    for kind, rows in new.items():
        ids[kind] = torch.cat([ids[kind], torch.arange(last, last + len(rows))])
        last += len(rows)

    def plain(kind: str, some: Any, what: str, *, known: bool = False) -> list[int]:
        there, wanted = graph.ids(kind).cpu() if known else ids[kind], numbers(some, f"{what} of {kind}")
        within(wanted, there.numel(), f"{what}: {kind}")
        return [int(there[number]) for number in wanted]

    def joined(what: str) -> dict[str, list[list[Any]]]:
        unknown = next((relation for relation in given[what] if relation not in graph.relations), None)
        if unknown is not None:
            there = ", ".join(map(str, graph.relations))
            raise RequestError(f"{what}: there is no relation {shown(unknown)}; there are {there}")
        return {
            " ".join(relation): [
                [*plain(relation[0], edge[:1], what), *plain(relation[2], edge[1:2], what), *edge[2:]] for edge in some
            ]
            for relation, some in given[what].items()
        }

    def valued(kind: str, some: Mapping[Any, Any], what: str) -> dict[int, Any]:
        return dict(zip(plain(kind, some.keys(), what, known=True), some.values(), strict=True))

    rows = [
        {"type": kind, **(row if isinstance(row, Mapping) else {"features": row})}
        for kind, some in new.items()
        for row in some
    ]
    features = [valued(kind, some, "features") for kind, some in given["features"].items()]
    return {
        "add": {"nodes": rows, "edges": joined("edges")},
        "correct": {
            "features": {node: value for some in features for node, value in some.items()},
            "labels": valued(graph.target, given["labels"], "labels"),
            "edge_weights": [edge for some in joined("edge_weights").values() for edge in some],
        },
    }


def relation_growth(graph: Any, change: Change) -> Growth:
    """What a change brings: nodes by type, edges by relation, each with its reverse where the relation has one."""
    spec, size = graph.spec, graph.node_type.numel()
    types = [name for name, _ in spec["nodes"]]
    kinds = check_new(change, types)
    device, node_type = graph.x.device, graph.node_type
    every = torch.cat([node_type.cpu(), torch.tensor(kinds, dtype=torch.long) + 1])
    widths = torch.tensor([0, *(width for _, width in spec["nodes"])], device=device)[node_type]
    target = types.index(spec["target"]) + 1
    check_corrections(change, widths, node_type == target, f"only nodes of type {spec['target']!r} have labels")
    own = [edge for node in change.add.nodes for edge in node.edges]
    if own:
        raise RequestError("add.nodes: edges of several types need theirs; name them in add.edges, by relation")
    found = _typed(graph, change.add.edges, every)
    edges, weights = _with_reverse(graph, found)
    carried = {"edge_type": torch.tensor([number for _, _, number in edges], dtype=torch.long, device=device)}
    if graph.get("edge_weight") is not None:
        carried["edge_weight"] = finite(weights, graph.edge_weight, "add.edges")
    if graph.get("edge_attr") is not None:
        carried["edge_attr"] = graph.edge_attr.new_zeros((len(edges), *graph.edge_attr.shape[1:]))
    ends = torch.tensor([edge[:2] for edge in edges], dtype=torch.long, device=device).reshape(-1, 2).t()
    return Growth(
        rows=_rows(graph, change, kinds, target),
        edges=ends,
        carried=carried,
        pairs=[edge for edge, _ in found],
        weights=_weights(graph, change),
        named=range(size, size + len(kinds)),
        lasting={"node_type": every[size:].to(device)},
        spec=spec,
    )


def _rows(graph: Any, change: Change, kinds: list[int], target: int) -> dict[str, Tensor]:
    rows = blank_rows(graph, len(kinds))
    for number, (node, kind) in enumerate(zip(change.add.nodes, kinds, strict=True)):
        where, (name, width) = f"add.nodes[{number}]", graph.spec["nodes"][kind]
        if len(node.features) != width:
            raise RequestError(f"{where}.features has {len(node.features)} numbers; nodes of type {name} have {width}")
        rows["x"][number, :width] = finite(node.features, rows["x"], where)
        if node.label is None:
            continue
        if kind + 1 != target or f"{node.mask}_mask" not in rows:
            what = f"the data has no {node.mask}_mask" if kind + 1 == target else f"nodes of type {name} have no labels"
            raise RequestError(f"{where}: {what}; leave the label or the mask out")
        rows["y"][number] = label_of(graph, node.label, f"{where}.label")
        rows[f"{node.mask}_mask"][number] = True
    return rows


def _typed(graph: Any, edges: Sequence[Edge], node_type: Tensor) -> list[tuple[Edge, int]]:
    """Each edge with the number of its relation; one that is there already, or fits none, is refused."""
    spec = graph.spec
    types = ["", *(name for name, _ in spec["nodes"])]
    names = [" ".join(relation) for relation in spec["edges"]]
    ends = [(types.index(source), types.index(into)) for source, _, into in spec["edges"]]
    stored = torch.cat([graph.edge_index, graph.edge_type[None]]).t().tolist() if edges else []
    there, found = set(map(tuple, stored)), list[tuple[Edge, int]]()
    for edge in edges:
        within(edge[:2], node_type.numel(), "add.edges: node")
        own = tuple(int(node_type[end]) for end in edge[:2])
        fitting = [k for k, pair in enumerate(ends) if pair == own and edge.kind in (None, names[k])]
        if len(fitting) != 1:
            known = listed([names[k] for k in fitting] or names)
            said = "could be each of" if fitting else "is none of"
            raise RequestError(
                f"add.edges: {edge[:2]} from a {types[own[0]]} to a {types[own[1]]} {said} {known}; name its relation, "
                'as in {"author writes paper": [[3, 7]]}'
            )
        number = fitting[0]
        if (*edge[:2], number) in there:
            raise RequestError(f"add.edges: {edge[:2]}: there already among {names[number]}; leave it out")
        if spec["attributes"][number]:
            raise RequestError(f"add.edges: edges of {names[number]} have edge_attr, which a change cannot give")
        if (edge.weight is not None) != bool(spec["weighted"][number]):
            needs = "have a weight, write [u, v, weight]" if spec["weighted"][number] else "have no weight"
            raise RequestError(f"add.edges: {edge[:2]}: edges of {names[number]} {needs}")
        found.append((edge, number))
    return found


def _with_reverse(graph: Any, found: list[tuple[Edge, int]]) -> tuple[list[Typed], list[float]]:
    """The stored edges and their weights: those named, and the reverse of each where its relation has one."""
    edges: dict[Typed, float] = {}
    for edge, number in found:
        back = graph.spec["reverse"][number]
        weight = 1.0 if edge.weight is None else edge.weight
        ways = [(edge.source, edge.target, number)]
        if back is not None and (back != number or edge.source != edge.target):
            ways.append((edge.target, edge.source, back))
        twice = next((way for way in ways if way in edges), None)
        if twice is not None:
            raise RequestError(f"add.edges: {edge[:2]} is named as its own reverse, too; an edge brings its reverse")
        edges |= dict.fromkeys(ways, weight)
    return list(edges), list(edges.values())


def _weights(graph: Any, change: Change) -> list[Edge]:
    """All stored edges whose weight is corrected, the reverse included."""
    asked = change.correct.edge_weights
    if not asked:
        return []
    if not any(graph.spec["weighted"]):
        raise RequestError("correct.edge_weights: no relation has weights; forget an edge, or add one")
    by_pair: dict[tuple[int, int], list[int]] = {}
    for u, v, number in torch.cat([graph.edge_index, graph.edge_type[None]]).t().tolist():
        by_pair.setdefault((u, v), []).append(number)
    found: dict[tuple[int, int], Edge] = {}
    for edge in asked:
        numbers = by_pair.get(edge[:2], [])
        if len(numbers) != 1 or not graph.spec["weighted"][numbers[0]]:
            what = "joined by several edges, of which none can be told" if len(numbers) > 1 else "no edge with a weight"
            raise RequestError(f"correct.edge_weights: {edge[:2]}: {what}")
        back, other = graph.spec["reverse"][numbers[0]], turned(edge)
        ways = [edge, other] if edge[0] != edge[1] and back in by_pair.get(other[:2], []) else [edge]
        if any(way[:2] in found for way in ways):
            raise RequestError(f"correct.edge_weights: {edge[:2]} is named as its own reverse, too; name it once")
        found |= {way[:2]: way for way in ways}
    return list(found.values())

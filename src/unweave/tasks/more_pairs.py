"""What a change brings to a graph whose examples are pairs: new nodes, new pairs, and the examples of these."""

from typing import Any

import torch
from torch import Tensor

from unweave.changes import Change
from unweave.changes.values import Edge
from unweave.errors import RequestError
from unweave.tasks.building import Examples, examples
from unweave.tasks.growth import (
    Growth,
    blank_rows,
    check_corrections,
    check_new,
    check_weighted,
    finite,
    there_already,
    turned,
    weighed,
)
from unweave.tasks.naming import within
from unweave.tasks.pairs import MESSAGE

__all__ = ["pair_growth"]


def pair_growth(graph: Any, change: Change, known: Tensor, *, featured: bool, between: bool) -> Growth:
    """What a change brings: a pair comes with its messages, its example and what is drawn for it.

    Negatives are drawn by the seed and the pair, from the nodes that are there now: no other pair is drawn anew. What
    falls on a deleted node is left out, as it would be had it been drawn before.

    Args:
        graph: The task's plain graph.
        change: The change.
        known: Its pairs, held-out ones too, ``[n, 2]``.
        featured: Whether nodes have features.
        between: Whether a pair leads from a node of the first type to one of the second, and no other way.
    """
    spec, size = graph.spec, graph.node_type.numel()
    types: list[str] = spec["types"]
    kinds = torch.tensor(check_new(change, types), dtype=torch.long)
    real = torch.cat([graph.node_type.cpu(), kinds])
    example = torch.zeros_like(graph.train_mask)
    widths = torch.where(graph.node_type < len(types), graph.x.size(1) if featured else 0, 0)
    check_corrections(change, widths, example, "a pair is true or was drawn; forget it, or add it")
    pairs = _pairs(graph, change, real, between=between)
    there_already(pairs, {(u, v) for u, v in known.tolist()})
    own = torch.tensor([pair[:2] for pair in pairs], dtype=torch.long).reshape(-1, 2)
    pool = (real == (len(types) - 1 if between else 0)).nonzero().flatten()
    new = examples(
        own,
        torch.zeros(own.size(0), dtype=torch.long),
        pool,
        negatives=spec["negatives"],
        binary=spec["binary"],
        seed=spec["seed"],
        blank=_blank(graph),
    )
    count = kinds.numel()
    rows = _rows(graph, change, count, new, featured=featured)
    edges, edge_types = new.edges(size + count)
    messages = own.t() if spec["directed"] else torch.cat([own.t(), own.t().flip(0)], dim=1)
    carried = {"edge_type": torch.cat([torch.full((messages.size(1),), MESSAGE), edge_types])}
    if graph.get("edge_weight") is not None:
        weight = finite([pair.weight for pair in pairs], graph.edge_weight.cpu(), "add.edges")
        weight = weight if spec["directed"] else weight.repeat(2)
        carried["edge_weight"] = torch.cat([weight, weight.new_ones(edges.size(1))])
    device, others = graph.x.device, new.head.numel()
    return Growth(
        rows={name: value.to(device) for name, value in rows.items()},
        edges=torch.cat([messages, edges], dim=1).to(device),
        carried={name: value.to(device) for name, value in carried.items()},
        pairs=pairs,
        weights=weighed(graph, change, graph.edge_type == MESSAGE, both=not spec["directed"]),
        named=range(size, size + count),
        lasting={
            "node_type": torch.cat([kinds, kinds.new_full((others,), len(types))]).to(device),
            "table_row": torch.cat([spec["rows"] + torch.arange(count), kinds.new_zeros(others)]).to(device),
        },
        spec={**spec, "rows": spec["rows"] + count},
    )


def _pairs(graph: Any, change: Change, real: Tensor, *, between: bool) -> list[Edge]:
    """The pairs that come, each in the order of its ends."""
    spec, size = graph.spec, graph.node_type.numel()
    own = [Edge(end, size + i, w) for i, node in enumerate(change.add.nodes) for end, w in node.edges]
    if own and spec["directed"]:
        raise RequestError("add.nodes: a pair differs from its reverse; name those of a new node in add.edges")
    found = []
    for edge in (*change.add.edges, *own):
        if edge.kind is not None:
            raise RequestError(f"add.edges: there is one kind of pairs, got some of {edge.kind!r}; give a plain list")
        within(edge[:2], real.numel(), "add.edges: node")
        u, v = edge[:2]
        kinds = [int(real[end]) for end in (u, v)]
        if len(spec["types"]) in kinds or u == v:
            raise RequestError(f"add.edges: {(u, v)}: a pair has two nodes, other than each other and no examples")
        if between and kinds[0] == kinds[1]:
            raise RequestError(f"add.edges: {(u, v)}: a pair is one of a {' and a '.join(spec['types'])}")
        backwards = kinds[0] > kinds[1] if between else not spec["directed"] and u > v
        found.append(turned(edge) if backwards else edge)
    check_weighted(graph, found, "add.edges")
    return found


def _rows(graph: Any, change: Change, count: int, new: Examples, *, featured: bool) -> dict[str, Tensor]:
    """Features, labels and masks: of the new nodes, then of the new examples."""
    rows = {name: value.cpu() for name, value in blank_rows(graph, count + new.head.numel()).items()}
    width = graph.x.size(1)
    for number, node in enumerate(change.add.nodes):
        where = f"add.nodes[{number}]"
        if node.label is not None:
            raise RequestError(f"{where}: pairs are learnt, so that nodes have no label; leave it out")
        if len(node.features) != (width if featured else 0):
            need = f"{width} numbers, as nodes of the graph have" if featured else "nothing: users and items have none"
            raise RequestError(f"{where}.features must be {need}; got {len(node.features)}")
        rows["x"][number] = finite(node.features, rows["x"], where) if featured else 1.0
    rows["y"][count:] = new.label
    rows["train_mask"][count:] = True
    return rows


def _blank(graph: Any) -> Tensor:
    """Deleted nodes: those without features and edges."""
    alone = torch.ones_like(graph.train_mask)
    alone[graph.edge_index.flatten()] = False
    ids: Tensor = (alone & ~graph.x.flatten(1).any(dim=1)).nonzero().flatten().cpu()
    return ids

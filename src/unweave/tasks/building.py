"""Put a plain graph with pairs for examples together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.errors import DataError
from unweave.tasks.pairs import DRAWN_FOR, HEAD, MESSAGE, TAIL, drawn, slots
from unweave.tasks.task import Task

__all__ = ["Examples", "apart", "assemble", "examples", "goes_both_ways", "refuse_unfit"]

T = TypeVar("T", bound=Task)
PARTS = ("train", "val", "test")


def apart(pairs: Tensor, val: float, test: float, seed: int) -> dict[str, Tensor]:
    """Split pairs at random into those to train with, to validate with and to test with."""
    order = torch.randperm(pairs.size(0), generator=torch.Generator().manual_seed(seed))
    held, tested = round(val * pairs.size(0)), round(test * pairs.size(0))
    parts = torch.split(order, [pairs.size(0) - held - tested, held, tested])
    return {name: pairs[part.sort().values] for name, part in zip(PARTS, parts, strict=True)}


def assemble(
    kind: type[T],
    *,
    x: Tensor,
    types: tuple[str, ...],
    node_type: Tensor,
    messages: Tensor,
    pairs: Mapping[str, Tensor],
    pool: Tensor,
    negatives: int,
    binary: bool,
    directed: bool,
    seed: int,
    edge_weight: Tensor | None = None,
) -> T:
    """The plain graph: nodes, then examples; message edges, then those of the examples.

    Args:
        kind: Class of the result.
        x: Features of the nodes.
        types: Names of their types.
        node_type: The type of each.
        messages: Message edges.
        pairs: Pairs that are true, by part.
        pool: Nodes that negatives are drawn from, sorted.
        negatives: How many for each pair.
        binary: Whether each pair is an example of its own.
        directed: Whether a pair differs from its reverse.
        seed: Of the negatives.
        edge_weight: Weights of the message edges.
    """
    if negatives < 1:
        raise DataError(
            f"each pair is compared with at least one that was drawn: negatives must be above 0, got {negatives}"
        )
    if pool.numel() < 2:
        raise DataError("there is one thing only to draw from, so nothing can be compared; give at least two")
    if not pairs["train"].numel():
        raise DataError("no pair is left to train with")
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}")
    size, device = x.size(0), x.device
    own = torch.cat([pairs[name] for name in PARTS])
    part = torch.cat([torch.full((pairs[name].size(0),), number) for number, name in enumerate(PARTS)])
    own_examples = examples(own, part, pool, negatives=negatives, binary=binary, seed=seed)
    edges, kinds = own_examples.edges(size)
    ids = size + torch.arange(own_examples.head.numel())
    masks = {f"{name}_mask": _padded(own_examples.part == number, size, False) for number, name in enumerate(PARTS)}
    stored = torch.cat([messages.cpu(), edges], dim=1)
    more: dict[str, Any] = {}
    if edge_weight is not None:
        rest = torch.ones(stored.size(1) - messages.size(1), dtype=edge_weight.dtype)
        more["edge_weight"] = torch.cat([edge_weight.cpu(), rest])
    graph = kind(
        x=torch.cat([x.cpu(), x.new_zeros((ids.numel(), x.size(1)), device="cpu")]),
        edge_index=stored,
        edge_type=torch.cat([torch.full((messages.size(1),), MESSAGE), kinds]),
        node_type=torch.cat([node_type, torch.full_like(ids, len(types))]),
        table_row=torch.cat([torch.arange(size), torch.zeros_like(ids)]),
        y=_padded(own_examples.label, size, -1),
        **masks,
        **more,
    )
    graph.spec = {
        "types": list(types),
        "rows": size,
        "candidates": own_examples.tails.size(1),
        "binary": binary,
        "directed": directed,
        "seed": seed,
        "negatives": negatives,
    }
    graph.num_classes = 2 if binary else own_examples.tails.size(1)
    return graph.to(device)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Examples:
    """Pairs made examples.

    Attributes:
        head: The head of each.
        tails: Its candidates, ``[examples, candidates]``; −1 for one that is not there.
        label: Which of them is the true one; of an example of two classes whether it is true.
        part: Its place in :data:`PARTS`.
        for_whom: The example that each was drawn for, by its number, or −1.
    """

    head: Tensor
    tails: Tensor
    label: Tensor
    part: Tensor
    for_whom: Tensor

    def edges(self, first: int) -> tuple[Tensor, Tensor]:
        """The edges of examples whose ids begin with ``first``, and their types."""
        ids = first + torch.arange(self.head.numel())
        drawn_for = (self.for_whom >= 0).nonzero().flatten()
        edges = [torch.stack([self.head, ids]), torch.stack([ids[self.for_whom[drawn_for]], ids[drawn_for]])]
        kinds = [torch.full_like(self.head, HEAD), torch.full_like(drawn_for, DRAWN_FOR)]
        for slot in range(self.tails.size(1)):
            there = (self.tails[:, slot] >= 0).nonzero().flatten()
            edges += [torch.stack([self.tails[there, slot], ids[there]])]
            kinds += [torch.full_like(there, TAIL + slot)]
        return torch.cat(edges, dim=1), torch.cat(kinds)


def examples(
    own: Tensor,
    part: Tensor,
    pool: Tensor,
    *,
    negatives: int,
    binary: bool,
    seed: int,
    blank: Tensor | None = None,
) -> Examples:
    """Make pairs examples, beside those that are drawn for them.

    Args:
        own: The pairs, ``[n, 2]``.
        part: The place of each in :data:`PARTS`.
        pool: Nodes that negatives are drawn from, sorted.
        negatives: How many for each pair.
        binary: Whether each pair is an example of its own.
        seed: Of the negatives.
        blank: Nodes of the pool that are deleted: what would be drawn of them is left out, and nothing else drawn.
    """
    others = drawn(own, seed, negatives, pool)
    if blank is not None:
        others = torch.where(torch.isin(others, blank), -1, others)
    return _binary(own, others, part) if binary else _ranked(own, others, part, seed)


def _ranked(own: Tensor, others: Tensor, part: Tensor, seed: int) -> Examples:
    """One example a pair: its candidates, the true one at a place drawn for it."""
    count = 1 + others.size(1)
    label = slots(own, seed, count)
    tails = torch.empty((own.size(0), count), dtype=torch.long)
    true = torch.zeros_like(tails, dtype=torch.bool).scatter_(1, label[:, None], True)
    tails[true] = own[:, 1]
    tails[~true] = others.flatten()
    return Examples(own[:, 0], tails, label, part, torch.full_like(label, -1))


def _binary(own: Tensor, others: Tensor, part: Tensor) -> Examples:
    """Every pair an example, those drawn after all that are true."""
    count, whose = own.size(0), torch.arange(own.size(0)).repeat_interleave(others.size(1))
    there = (others.flatten() >= 0).nonzero().flatten()
    whose, tails = whose[there], others.flatten()[there]
    return Examples(
        head=torch.cat([own[:, 0], own[whose, 0]]),
        tails=torch.cat([own[:, 1], tails])[:, None],
        label=torch.cat([torch.ones(count, dtype=torch.long), torch.zeros_like(tails)]),
        part=torch.cat([part, part[whose]]),
        for_whom=torch.cat([torch.full((count,), -1), whose]),
    )


def _padded(values: Tensor, before: int, fill: float) -> Tensor:
    """Values of the examples, with those of the nodes before them."""
    return torch.cat([torch.full((before,), fill, dtype=values.dtype), values])


def goes_both_ways(data: Data) -> bool:
    """Whether every edge has its reverse."""
    size, (source, target) = data.x.size(0), data.edge_index
    there, back = (torch.unique(ends[0] * size + ends[1]) for ends in ((source, target), (target, source)))
    return torch.equal(there, back)


def refuse_unfit(data: Data) -> None:
    """A graph of which pairs can be made examples."""
    if not isinstance(data, Data) or isinstance(data, Task):
        raise DataError(f"links are made of a plain torch_geometric.data.Data, got {type(data).__name__}")
    if not isinstance(data.get("x"), Tensor) or not isinstance(data.get("edge_index"), Tensor):
        raise DataError("the graph needs x and edge_index to predict links")
    if data.x.dim() != 2 or not data.x.is_floating_point():
        raise DataError(
            f"x must be a floating-point matrix [nodes, features], got {data.x.dtype} {tuple(data.x.shape)}"
        )
    index, size = data.edge_index, data.x.size(0)
    if index.dtype != torch.long or index.dim() != 2 or index.size(0) != 2:
        raise DataError(f"edge_index must be int64 of shape [2, edges], got {index.dtype} {tuple(index.shape)}")
    if not index.numel():
        raise DataError("the graph has no edges, so there are no links to learn")
    if not 0 <= int(index.min()) <= int(index.max()) < size:
        raise DataError(f"edge_index names nodes outside 0 … {size - 1}")
    if data.get("edge_attr") is not None:
        raise DataError("edges with edge_attr cannot be made examples, as pairs that are drawn have none; delete it")

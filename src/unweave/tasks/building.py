"""Put a plain graph with pairs for examples together."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from unweave.errors import DataError
from unweave.tasks.pairs import DRAWN_FOR, HEAD, MESSAGE, TAIL, drawn, slots
from unweave.tasks.task import Task

__all__ = ["apart", "assemble"]

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
    others = drawn(own, seed, negatives, pool)
    examples = _binary(own, others, part) if binary else _ranked(own, others, part, seed)
    head, tails, label, part, for_whom = examples
    ids = size + torch.arange(head.numel())
    edges, kinds = [messages.cpu()], [torch.full((messages.size(1),), MESSAGE)]
    edges += [torch.stack([head, ids])]
    kinds += [torch.full_like(head, HEAD)]
    drawn_for = (for_whom >= 0).nonzero().flatten()
    edges += [torch.stack([ids[for_whom[drawn_for]], ids[drawn_for]])]
    kinds += [torch.full_like(drawn_for, DRAWN_FOR)]
    for slot in range(tails.size(1)):
        edges += [torch.stack([tails[:, slot], ids])]
        kinds += [torch.full_like(head, TAIL + slot)]
    masks = {f"{name}_mask": _padded(part == number, size, False) for number, name in enumerate(PARTS)}
    stored = torch.cat(edges, dim=1)
    more: dict[str, Any] = {}
    if edge_weight is not None:
        rest = torch.ones(stored.size(1) - messages.size(1), dtype=edge_weight.dtype)
        more["edge_weight"] = torch.cat([edge_weight.cpu(), rest])
    graph = kind(
        x=torch.cat([x.cpu(), x.new_zeros((ids.numel(), x.size(1)), device="cpu")]),
        edge_index=stored,
        edge_type=torch.cat(kinds),
        node_type=torch.cat([node_type, torch.full_like(ids, len(types))]),
        table_row=torch.cat([torch.arange(size), torch.zeros_like(ids)]),
        y=_padded(label, size, -1),
        **masks,
        **more,
    )
    graph.spec = {
        "types": list(types),
        "rows": size,
        "candidates": tails.size(1),
        "binary": binary,
        "directed": directed,
        "seed": seed,
        "negatives": negatives,
    }
    graph.num_classes = 2 if binary else tails.size(1)
    return graph.to(device)  # type: ignore[no-any-return]


def _ranked(own: Tensor, others: Tensor, part: Tensor, seed: int) -> tuple[Tensor, ...]:
    """One example a pair: its candidates, the true one at a place drawn for it."""
    count = 1 + others.size(1)
    label = slots(own, seed, count)
    tails = torch.empty((own.size(0), count), dtype=torch.long)
    true = torch.zeros_like(tails, dtype=torch.bool).scatter_(1, label[:, None], True)
    tails[true] = own[:, 1]
    tails[~true] = others.flatten()
    return own[:, 0], tails, label, part, torch.full_like(label, -1)


def _binary(own: Tensor, others: Tensor, part: Tensor) -> tuple[Tensor, ...]:
    """Every pair an example, those drawn after all that are true."""
    count, each = own.size(0), others.size(1)
    head = torch.cat([own[:, 0], own[:, 0].repeat_interleave(each)])
    tails = torch.cat([own[:, 1], others.flatten()])[:, None]
    label = torch.cat([torch.ones(count, dtype=torch.long), torch.zeros(count * each, dtype=torch.long)])
    for_whom = torch.cat([torch.full((count,), -1), torch.arange(count).repeat_interleave(each)])
    return head, tails, label, torch.cat([part, part.repeat_interleave(each)]), for_whom


def _padded(values: Tensor, before: int, fill: float) -> Tensor:
    """Values of the examples, with those of the nodes before them."""
    return torch.cat([torch.full((before,), fill, dtype=values.dtype), values])

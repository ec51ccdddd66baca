"""Examples that are pairs of nodes, as a part of the plain graph: where they are kept, and how negatives are drawn.

An example is a node of its own. One edge leads to it from its head, and one from every candidate for its tail: the
true one and those it is compared with. Which of them is true is its label. An example of two classes has one candidate
and is itself true or not; of one that is not, a further edge names the true one that it was drawn for.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unweave._core.memo import remembered
from unweave._core.sparse import Pattern

__all__ = ["DRAWN_FOR", "HEAD", "MESSAGE", "TAIL", "Layout", "drawn", "layout", "slots"]

MESSAGE, HEAD, DRAWN_FOR, TAIL = 0, 1, 2, 3
"""Types of edges: messages, head of an example, the example that one was drawn for, candidates from there on."""

DENSE = 16
"""How many times as many scores as are asked for may be computed, where that makes them one matrix product."""

_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True)
class Layout:
    """Where everything is.

    Attributes:
        real: Ids of the nodes that are no examples, sorted.
        place: The position of each node among those, or −1.
        messages: Ends of the message edges, as such positions.
        message_ids: Ids of these edges.
        examples: Ids of the examples, sorted.
        head: The position of each one's head, or −1.
        tails: Those of its candidates, ``[examples, candidates]``, −1 where one is gone.
        for_whom: The example that each was drawn for, by its number, or −1.
        absent: Which candidates are gone, or have no head.
        wanted: Heads and candidates to score, where none is −1.
        heads: The heads that there are, each once.
        candidates: The candidates likewise.
        sparse: Which heads and candidates meet, where these are so few that others would not be computed along.
        entry: Where the score of each pair stands: in the matrix of all heads by all candidates, or in that pattern.
    """

    real: Tensor
    place: Tensor
    messages: Tensor
    message_ids: Tensor
    examples: Tensor
    head: Tensor
    tails: Tensor
    for_whom: Tensor
    absent: Tensor
    wanted: tuple[Tensor, Tensor]
    heads: Tensor
    candidates: Tensor
    sparse: Pattern | None
    entry: Tensor


@remembered
def layout(edge_index: Tensor, edge_type: Tensor, node_type: Tensor, example: int, candidates: int) -> Layout:
    """Read it off a plain graph.

    Args:
        edge_index: Its edges.
        edge_type: Their types.
        node_type: Types of its nodes.
        example: The type of the examples.
        candidates: How many each has.
    """
    device, size = edge_index.device, node_type.numel()
    is_example = node_type == example
    real, examples = (~is_example).nonzero().flatten(), is_example.nonzero().flatten()
    place, number = (torch.full((size,), -1, dtype=torch.long, device=device) for _ in range(2))
    place[real] = torch.arange(real.numel(), device=device)
    number[examples] = torch.arange(examples.numel(), device=device)
    source, target = edge_index

    def told(kind: Tensor, into: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # At the rim of a part of a graph there are edges that stand in for others, to no example.
        chosen = (kind & (number[target] >= 0) & (into[source] >= 0)).nonzero().flatten()
        return into[source[chosen]], number[target[chosen]], chosen

    head, for_whom = (torch.full((examples.numel(),), -1, dtype=torch.long, device=device) for _ in range(2))
    who, which, _ = told(edge_type == HEAD, place)
    head[which] = who
    who, which, _ = told(edge_type == DRAWN_FOR, number)
    for_whom[which] = who
    tails = torch.full((examples.numel(), candidates), -1, dtype=torch.long, device=device)
    who, which, chosen = told(edge_type >= TAIL, place)
    tails[which, edge_type[chosen] - TAIL] = who
    ids = ((edge_type == MESSAGE) & (place[edge_index] >= 0).all(dim=0)).nonzero().flatten()
    wanted = head.clamp(min=0), tails.clamp(min=0)
    (heads, row), (known, column) = (torch.unique(some, return_inverse=True) for some in wanted)
    pairs = row[:, None].expand_as(column).flatten(), column.flatten()
    shape = heads.numel(), known.numel()
    few = shape[0] * shape[1] > DENSE * tails.numel()
    sparse, entry = Pattern.of(*pairs, shape) if few else (None, pairs[0] * shape[1] + pairs[1])
    return Layout(
        real=real,
        place=place,
        messages=place[edge_index[:, ids]],
        message_ids=ids,
        examples=examples,
        head=head,
        tails=tails,
        for_whom=for_whom,
        absent=(tails < 0) | (head < 0)[:, None],
        wanted=wanted,
        heads=heads,
        candidates=known,
        sparse=sparse,
        entry=entry,
    )


def drawn(pairs: Tensor, seed: int, count: int, among: Tensor) -> Tensor:
    """Some nodes for each pair, by nothing but the seed and the pair: whatever else is there, they are the same.

    Args:
        pairs: ``[n, 2]``.
        seed: Of the draw.
        count: How many for each.
        among: The nodes to draw from; the pair's own second node is never drawn.

    Returns:
        ``[n, count]``.
    """
    head, tail = (end.numpy().astype(np.uint64) for end in pairs.cpu().t())
    place = torch.searchsorted(among.cpu(), pairs[:, 1].cpu().contiguous()).numpy().astype(np.uint64)
    others = max(among.numel() - 1, 1)
    columns = []
    for number in range(count):
        mixed = _mixed(_mixed(_mixed(np.uint64(seed) + head) ^ tail) + np.uint64(number))
        chosen = mixed % np.uint64(others)
        columns.append(chosen + (chosen >= place))  # of all others but its own
    found = np.stack(columns, axis=1).astype(np.int64) if count else np.zeros((len(head), 0), np.int64)
    return among.cpu()[torch.from_numpy(found).clamp(max=among.numel() - 1)]


def slots(pairs: Tensor, seed: int, count: int) -> Tensor:
    """Which of its candidates is the true one, for each pair: by the seed and the pair, too."""
    head, tail = (end.numpy().astype(np.uint64) for end in pairs.cpu().t())
    mixed = _mixed(_mixed(np.uint64(seed) ^ np.uint64(_ODD[0]) ^ tail) + head)
    return torch.from_numpy((mixed % np.uint64(count)).astype(np.int64))


def _mixed(number: np.ndarray | np.uint64) -> np.ndarray:
    """A number from which none of its bits can be told (splitmix64)."""
    with np.errstate(over="ignore"):
        z = np.asarray(number, dtype=np.uint64) + np.uint64(_ODD[0])
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_ODD[1])
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_ODD[2])
        found: np.ndarray = z ^ (z >> np.uint64(31))
    return found

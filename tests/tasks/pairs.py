"""Small graphs of pairs, and what they come to when everything is written out."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.tasks import Links, Recommendation

USERS, ITEMS = 12, 9


def interactions(seed: int = 0) -> Tensor:
    """Five or so of each user."""
    chosen = torch.rand(USERS, ITEMS, generator=torch.Generator().manual_seed(seed)) < 0.5
    chosen[:, 0] = True
    return chosen.nonzero()


def recommender(pairs: Tensor | None = None, **options: object) -> Recommendation:
    """A small recommender in double precision; nothing is held out but what is given."""
    how = {"users": USERS, "items": ITEMS, "negatives": 3, "val": 0.0, "test": torch.tensor([[0, 8], [1, 8]])} | options
    own = interactions() if pairs is None else pairs
    test = how["test"]
    if isinstance(test, Tensor):
        own = own[~torch.isin(own[:, 0] * ITEMS + own[:, 1], test[:, 0] * ITEMS + test[:, 1])]
    return doubled(Recommendation.of(own, **how))  # type: ignore[arg-type]


def graph(seed: int = 0, nodes: int = 14) -> Data:
    """An undirected graph with features."""
    draw = torch.Generator().manual_seed(seed)
    there = (torch.rand(nodes, nodes, generator=draw) < 0.3).triu(1)
    edges = there.nonzero().t()
    x = torch.randn(nodes, 4, generator=draw, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1))


def linked(**options: object) -> Links:
    """Its edges as examples."""
    return Links.of(graph(), **options)  # type: ignore[arg-type]


def doubled(task: Recommendation) -> Recommendation:
    """In double precision."""
    task.x = task.x.double()
    return task


def objective(model: nn.Module, task: Links, decay: float = 0.01) -> Objective:
    """What is minimised."""
    return Objective(model, task, cross_entropy, decay_vector(model, decay), call, Meter(torch.device("cpu")))


def by_hand(
    model: nn.Module, task: Recommendation, decay: float, pairs: Tensor, drawn: dict[tuple[int, int], list[int]]
) -> Tensor:
    """The objective of a recommender with dense matrices, one example after the other.

    Args:
        model: A LightGCN.
        task: Only its sizes are used.
        decay: Weight decay.
        pairs: The interactions that are trained on.
        drawn: Items drawn for each.
    """
    table = model.table.weight
    size = table.size(0)
    matrix = torch.zeros(size, size, dtype=table.dtype)
    for user, item in pairs.tolist():
        matrix[user, USERS + item] = matrix[USERS + item, user] = 1
    scale = matrix.sum(dim=1).clamp(min=1).rsqrt() * (matrix.sum(dim=1) > 0)
    smooth = scale[:, None] * matrix * scale
    z = (table + smooth @ table + smooth @ smooth @ table) / 3
    total = torch.zeros((), dtype=table.dtype)
    for user, item in pairs.tolist():
        candidates = torch.tensor([item, *drawn[user, item]]) + USERS
        total = total - F.log_softmax(z[candidates] @ z[user], dim=0)[0]
    return total + decay * pairs.size(0) * table.square().sum() / 2

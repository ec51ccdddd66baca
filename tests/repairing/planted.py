"""Small graphs in which it is known what is wrong."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import unweave as uw

CLASSES = 4


@dataclass(frozen=True)
class Planted:
    """A graph, the nodes whose labels were flipped, and the edges that were drawn by chance."""

    data: Data
    nodes: Tensor
    edges: Tensor
    right: Tensor


def planted(
    *, size: int = 320, flipped: float = 0.15, chance: int = 0, shift: int = 0, noise: float = 1.0, seed: int = 0
) -> Planted:
    """Nodes of four classes whose edges go to the class ``shift`` further on; some labels and edges are wrong."""
    rng = torch.Generator().manual_seed(seed)
    right = torch.arange(size) % CLASSES
    middles = torch.nn.functional.one_hot(right, 8).float() * 2
    x = middles + noise * torch.randn(size, 8, generator=rng)
    ends = []
    for node in range(size):
        like = ((right == (right[node] + shift) % CLASSES) & (torch.arange(size) != node)).nonzero().flatten()
        ends += [(node, int(like[i])) for i in torch.randperm(like.numel(), generator=rng)[:3]]
    real = {tuple(sorted(pair)) for pair in ends}
    wrong: set[tuple[int, ...]] = set()
    while len(wrong) < chance:
        u, v = sorted(torch.randint(size, (2,), generator=rng).tolist())
        if (right[v] - right[u]) % CLASSES not in (shift, -shift % CLASSES) and (u, v) not in real:
            wrong.add((u, v))
    pairs = torch.tensor(sorted(real | wrong))
    part = torch.randperm(size, generator=rng)
    data = Data(x=x, edge_index=to_undirected(pairs.t(), num_nodes=size), y=right.clone())
    for name, some in (("train", part[: size * 6 // 10]), ("val", part[size * 6 // 10 : size * 8 // 10])):
        data[f"{name}_mask"] = torch.zeros(size, dtype=torch.bool).index_fill(0, some, True)
    data.test_mask = ~(data.train_mask | data.val_mask)
    train = data.train_mask.nonzero().flatten()
    nodes = train[torch.randperm(train.numel(), generator=rng)[: round(flipped * train.numel())]]
    data.y[nodes] = (data.y[nodes] + torch.randint(1, CLASSES, (nodes.numel(),), generator=rng)) % CLASSES
    return Planted(data, nodes, torch.tensor(sorted(wrong)).reshape(-1, 2), right)


def trained(found: Planted, model: str = "sgc") -> uw.Run:
    """A model at its minimum."""
    module = {"sgc": uw.models.SGC, "gcn": uw.models.GCN}[model](8, CLASSES)
    return uw.train(module, found.data, seed=0, epochs=60, weight_decay=1e-2, forgettable=True)

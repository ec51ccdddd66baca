"""Small graphs with all that makes a folder hard: a hub, isolated nodes, loops, weights, one way or both."""

import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

import unweave as uw


def graph(
    *, directed: bool = False, weighted: bool = False, loops: bool = False, dtype: torch.dtype = torch.float64
) -> Data:
    """60 nodes, of which 0 is a hub and the last three have no edges, sorted as a folder has them."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, 57, (2, 110), generator=generator)
    pairs = torch.cat([pairs, torch.stack([torch.zeros(40, dtype=torch.long), torch.arange(1, 41)])], dim=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    if loops:
        pairs = torch.cat([pairs, torch.tensor([[3, 8], [3, 8]])], dim=1)
    pairs = pairs if directed else torch.cat([pairs, pairs.flip(0)], dim=1)
    edges = coalesce(pairs, num_nodes=60, sort_by_row=False)
    data = Data(x=torch.randn(60, 5, generator=generator, dtype=dtype), edge_index=edges)
    data.y = torch.randint(0, 3, (60,), generator=generator)
    if weighted:
        low, high = edges.min(dim=0).values, edges.max(dim=0).values
        number = edges[0] * 61 + edges[1] if directed else low * 61 + high
        data.edge_weight = (0.5 + (number % 7) / 4).to(dtype)
    data.num_classes = 3
    return uw.split(data, seed=0)

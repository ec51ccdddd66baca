"""Other losses and edge weights: a multi-label model on a weighted graph forgets labels and edges."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw


class Tagger(nn.Module):
    """Scores for several tags a node."""

    def __init__(self, features: int, tags: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, 16)
        self.conv2 = GCNConv(16, tags)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """One score a tag."""
        h = torch.relu(self.conv1(x, edge_index, edge_weight))
        return self.conv2(h, edge_index, edge_weight)  # type: ignore[no-any-return]


def weighted_graph() -> Data:
    data = uw.load("demo")
    weights = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0))
    # An undirected edge weighs the same both ways: take the larger of its two draws.
    reverse = {(u, v): i for i, (u, v) in enumerate(data.edge_index.t().tolist())}
    back = torch.tensor([reverse[v, u] for u, v in data.edge_index.t().tolist()])
    data.edge_weight = torch.maximum(weights, weights[back])
    tags = torch.zeros(data.num_nodes, 6)
    tags[torch.arange(data.num_nodes), data.y] = 1
    tags[:, 0] = (data.x[:, :20].sum(dim=1) > 3).float()
    data.y = tags
    return data


data = weighted_graph()
model = Tagger(data.num_features, data.y.size(1))
run = uw.train(model, data, loss=uw.losses.binary_cross_entropy, weight_decay=5e-4)
request = uw.draw("edges:0.03,labels:0.02", data, seed=0)
done = uw.unlearn(model, data, request, weight_decay=5e-4, loss=uw.losses.binary_cross_entropy)

print(f"test loss {run.metrics['test_loss']:.3f}")
print(done.receipt)
assert done.receipt.objective["loss"] == "binary_cross_entropy"
assert done.data.edge_weight.numel() == done.data.num_edges

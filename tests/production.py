"""A model as people have it in production: LayerNorm, a residual, AdamW, class weights, label smoothing."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw


class Production(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.inner = GCNConv(8, 16), nn.LayerNorm(16), GCNConv(16, 16)
        self.last = GCNConv(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.first(x, edge_index)))
        return self.last(h + torch.tanh(self.inner(h, edge_index)), edge_index)  # type: ignore[no-any-return]


def production(data: Data) -> uw.Run:
    """Trained for a while and polished; little bends there, as AdamW decays little where gradients were."""
    model, loss = Production(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]), label_smoothing=0.1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        loss(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    done = uw.polish(model, data, weight_decay=optimiser, loss=loss, evaluations=300, examine=False)
    assert done.prepared.at_minimum
    return uw.Run(done.model, data, weight_decay=done.weight_decay, loss=loss, prepared=done.prepared)

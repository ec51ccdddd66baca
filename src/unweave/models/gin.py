"""Graph isomorphism network (Xu et al., ICLR'19)."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv

__all__ = ["GIN"]


class GIN(nn.Module):
    """Two GIN layers, each with a two-layer perceptron of 32 hidden units, ReLU and dropout between them.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int = 32, dropout: float = 0.5) -> None:
        super().__init__()
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "dropout": dropout,
        }
        self.conv1 = GINConv(nn.Sequential(nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, hidden)))
        self.conv2 = GINConv(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out_channels)))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = F.relu(self.conv1(x, edge_index))
        h = F.dropout(h, self.dropout, training=self.training)
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]

"""Graph convolutional network (Kipf and Welling, ICLR'17)."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

__all__ = ["GCN"]


class GCN(nn.Module):
    """Two graph convolutions, 16 hidden units, ReLU and dropout between them.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int = 16, dropout: float = 0.5) -> None:
        super().__init__()
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "dropout": dropout,
        }
        self.conv1 = GCNConv(in_channels, hidden)
        self.conv2 = GCNConv(hidden, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = F.relu(self.conv1(x, edge_index, edge_weight))
        h = F.dropout(h, self.dropout, training=self.training)
        return self.conv2(h, edge_index, edge_weight)  # type: ignore[no-any-return]

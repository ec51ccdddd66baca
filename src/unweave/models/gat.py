"""Graph attention network (Veličković et al., ICLR'18)."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

__all__ = ["GAT"]


class GAT(nn.Module):
    """Two attention layers, 8 heads of 8, ELU and dropout between them.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Units of one head.
        heads: Heads of the first layer; the second has one.
        dropout: Probability, in training only.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, hidden: int = 8, heads: int = 8, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "heads": heads,
            "dropout": dropout,
        }
        self.conv1 = GATConv(in_channels, hidden, heads=heads)
        self.conv2 = GATConv(hidden * heads, out_channels, heads=1)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = F.elu(self.conv1(x, edge_index))
        h = F.dropout(h, self.dropout, training=self.training)
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]

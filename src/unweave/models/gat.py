"""Graph attention network (Veličković et al., ICLR'18)."""

from typing import Optional

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from unweave.errors import ModelError

__all__ = ["GAT", "TemperedGATConv"]


class GAT(nn.Module):
    """Two attention layers, 8 heads of 8, ELU and dropout between them.

    Attention makes a network with many minima: which neighbours a head listens to is settled early, by chance. With a
    temperature, attention must be paid for: for the same weight decay it stays nearer to uniform, and every seed finds
    the same function.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Units of one head.
        heads: Heads of the first layer; the second has one.
        dropout: Probability, in training only.
        temperature: What attention logits are divided by. Other than 1, their leaky ReLU also gives way to a smooth
            function with the same slopes far out.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 8,
        heads: int = 8,
        dropout: float = 0.5,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise ModelError(f"temperature must be positive, got {temperature}")
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "heads": heads,
            "dropout": dropout,
            "temperature": temperature,
        }
        self.conv1 = _convolution(in_channels, hidden, heads, temperature)
        self.conv2 = _convolution(hidden * heads, out_channels, 1, temperature)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = F.elu(self.conv1(x, edge_index))
        h = F.dropout(h, self.dropout, training=self.training)
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]


def _convolution(in_channels: int, out_channels: int, heads: int, temperature: float) -> GATConv:
    if temperature == 1:
        return GATConv(in_channels, out_channels, heads=heads)
    return TemperedGATConv(in_channels, out_channels, heads, temperature)


class TemperedGATConv(GATConv):  # type: ignore[misc]
    """PyG's layer with its attention logits divided by a temperature, and without their kink."""

    def __init__(self, in_channels: int, out_channels: int, heads: int, temperature: float) -> None:
        super().__init__(in_channels, out_channels, heads=heads)
        self.temperature = temperature

    def edge_update(
        self,
        alpha_j: Tensor,
        alpha_i: OptTensor,
        edge_attr: OptTensor,
        index: Tensor,
        ptr: OptTensor,
        dim_size: Optional[int],  # noqa: UP045 - PyG reads these annotations and does not know unions
    ) -> Tensor:
        """Attention of each edge, summing to 1 over the edges into a node."""
        logits = (alpha_j if alpha_i is None else alpha_j + alpha_i) / self.temperature
        logits = self.negative_slope * logits + (1 - self.negative_slope) * F.softplus(logits)
        attention: Tensor = softmax(logits, index, ptr, dim_size)
        return attention

"""The built-in models as PyG has them: what ours must agree with."""

from collections.abc import Callable
from typing import Optional

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, Linear
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from unweave.models.gin import ACTIVATIONS


class GCN(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, *, hidden: int, dropout: float) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(in_channels, hidden), GCNConv(hidden, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = F.dropout(F.relu(self.conv1(x, edge_index, edge_weight)), self.dropout, training=self.training)
        return self.conv2(h, edge_index, edge_weight)  # type: ignore[no-any-return]


class SGC(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, *, steps: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels, bias=False)
        self.propagate = APPNP(K=steps, alpha=0.0)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.propagate(self.linear(x), edge_index, edge_weight)  # type: ignore[no-any-return]


class GIN(nn.Module):
    def __init__(
        self, in_channels: int, out_channels: int, *, hidden: int, dropout: float, activation: str, aggregation: str
    ) -> None:
        super().__init__()
        act = ACTIVATIONS[activation]
        first = nn.Sequential(nn.Linear(in_channels, hidden), act(), nn.Linear(hidden, hidden))
        second = nn.Sequential(nn.Linear(hidden, hidden), act(), nn.Linear(hidden, out_channels))
        self.conv1, self.conv2 = GINConv(first, aggr=aggregation), GINConv(second, aggr=aggregation)
        self.between = nn.Sequential(act(), nn.Dropout(dropout))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.between(self.conv1(x, edge_index)), edge_index)  # type: ignore[no-any-return]


class TemperedGATConv(GATConv):  # type: ignore[misc]
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
        logits = (alpha_j if alpha_i is None else alpha_j + alpha_i) / self.temperature
        logits = self.negative_slope * logits + (1 - self.negative_slope) * F.softplus(logits)
        return softmax(logits, index, ptr, dim_size)  # type: ignore[no-any-return]


class GAT(nn.Module):
    def __init__(
        self, in_channels: int, out_channels: int, *, hidden: int, heads: int, dropout: float, temperature: float
    ) -> None:
        super().__init__()

        def layer(width: int, out: int, heads: int) -> GATConv:
            plain = temperature == 1
            return GATConv(width, out, heads=heads) if plain else TemperedGATConv(width, out, heads, temperature)

        self.conv1, self.conv2 = layer(in_channels, hidden, heads), layer(hidden * heads, out_channels, 1)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(F.elu(self.conv1(x, edge_index)), self.dropout, training=self.training)
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]


PLAIN: dict[str, Callable[..., nn.Module]] = {"gat": GAT, "gcn": GCN, "gin": GIN, "sgc": SGC}

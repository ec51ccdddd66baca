"""The built-in models as PyG has them: what ours must agree with."""

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GATConv, GCNConv, GINConv, GraphConv, Linear, SAGEConv, SimpleConv
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from unweave.models.gin import MODULES as ACTIVATIONS


def entering(x: Tensor, unit: bool) -> Tensor:
    return F.normalize(x, dim=-1) if unit else x


class Stack(nn.Module):
    """Layers one after the other, the hidden ones each with a read-out of its own."""

    def __init__(self, first: nn.Module, last: nn.Module, more: list[tuple[nn.Module, nn.Module]], **how: Any) -> None:
        super().__init__()
        self.conv1, self.conv2 = first, last
        self.deeper = nn.ModuleList(layer for layer, _ in more)
        self.reads = nn.ModuleList(read for _, read in more)
        self.act, self.dropout, self.unit = ACTIVATIONS[how["activation"]](), how["dropout"], how["unit"]
        self.beside, self.mean, self.gain = how["beside"], SimpleConv("mean"), how["direct"]
        self.direct = None

    def straight(self, in_channels: int, out_channels: int, layers: int) -> None:
        """The weights of the direct way, which are drawn last."""
        if self.gain:
            self.direct = nn.Module()
            count = 1 if isinstance(self, GCN) else layers + 1
            self.direct.weights = nn.ModuleList(Linear(in_channels, out_channels, bias=False) for _ in range(count))

    def through(self, x: Tensor, *graph: Tensor | None) -> Tensor:
        x = entering(x, self.unit)
        h = F.dropout(self.act(self.conv1(x, *graph)), self.dropout, training=self.training)
        out = self.conv2(h, *graph)
        for steps, (layer, read) in enumerate(zip(self.deeper, self.reads, strict=True), start=1):
            h = layer(x if self.beside else h, *graph)
            for _ in range(steps if self.beside else 0):
                h = self.mean(h, graph[0], graph[1] if isinstance(self, GCN) else None)
            h = F.dropout(self.act(h), self.dropout, training=self.training)
            out = out + read(h, *graph)
        if self.direct is not None:
            assert isinstance(self.direct.weights, nn.ModuleList)
            for weights in self.direct.weights:
                if isinstance(self, GCN):
                    x = APPNP(K=2 + len(self.reads), alpha=0.0)(x, *graph)
                out = out + self.gain * weights(x)
                x = self.mean(x, graph[0])
        return out  # type: ignore[no-any-return]


def stacked(
    layer: Callable[..., nn.Module], in_channels: int, out_channels: int, hidden: int, layers: int, beside: bool
) -> tuple[nn.Module, nn.Module, list[tuple[nn.Module, nn.Module]]]:
    first, last = layer(in_channels, hidden), layer(hidden, out_channels)
    inner = [layer(in_channels if beside else hidden, hidden) for _ in range(layers - 2)]
    return first, last, list(zip(inner, [layer(hidden, out_channels) for _ in inner], strict=True))


class GCN(Stack):
    def __init__(self, in_channels: int, out_channels: int, *, hidden: int, layers: int, **how: Any) -> None:
        super().__init__(*stacked(GCNConv, in_channels, out_channels, hidden, layers, how["beside"]), **how)
        self.straight(in_channels, out_channels, layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.through(x, edge_index, edge_weight)


class SAGE(Stack):
    def __init__(self, in_channels: int, out_channels: int, *, hidden: int, layers: int, **how: Any) -> None:
        super().__init__(*stacked(SAGEConv, in_channels, out_channels, hidden, layers, how["beside"]), **how)
        self.straight(in_channels, out_channels, layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.through(x, edge_index)


class SIGN(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, *, hidden: int, layers: int, **how: Any) -> None:
        super().__init__()
        self.distances = nn.ModuleList(Linear(in_channels, hidden, bias=False) for _ in range(layers + 1))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.last = Linear(hidden, out_channels)
        self.gain, count = how["direct"], layers + 1 if how["direct"] else 0
        self.direct = nn.ModuleList(Linear(in_channels, out_channels, bias=False) for _ in range(count))
        self.act, self.dropout, self.unit = ACTIVATIONS[how["activation"]](), how["dropout"], how["unit"]
        self.step = SimpleConv("mean")

    def reset_parameters(self) -> None:
        for layer in (*self.distances, self.last, *self.direct):
            layer.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x, hidden, straight = entering(x, self.unit), self.bias, 0.0
        for away, weights in enumerate(self.distances):
            hidden = hidden + weights(x)
            straight = straight + self.gain * self.direct[away](x) if self.direct else straight
            x = self.step(x, edge_index, edge_weight)
        inner = F.dropout(self.act(hidden), self.dropout, training=self.training)
        return self.last(inner) + straight  # type: ignore[no-any-return]


class SGC(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, *, steps: int, unit: bool) -> None:
        super().__init__()
        self.linear, self.unit = Linear(in_channels, out_channels, bias=False), unit
        self.propagate = APPNP(K=steps, alpha=0.0)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.linear(entering(x, self.unit))
        return self.propagate(h, edge_index, edge_weight)  # type: ignore[no-any-return]


class GIN(Stack):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int,
        layers: int,
        aggregation: str,
        perceptron: int,
        **how: Any,
    ) -> None:
        def layer(size: int, width: int) -> nn.Module:
            inner = [nn.Linear(size, hidden), ACTIVATIONS[how["activation"]]()] if perceptron == 2 else []
            return GINConv(nn.Sequential(*inner, nn.Linear(hidden if inner else size, width)), aggr=aggregation)

        super().__init__(*stacked(layer, in_channels, out_channels, hidden, layers, how["beside"]), **how)
        self.straight(in_channels, out_channels, layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.through(x, edge_index)


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


class GAT(Stack):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int,
        heads: int,
        layers: int,
        temperature: float,
        attention: str,
        **how: Any,
    ) -> None:
        def layer(width: int, out: int, heads: int) -> nn.Module:
            if attention == "features":
                return GraphConv(width, out * heads, aggr="add")
            plain = temperature == 1
            return GATConv(width, out, heads=heads) if plain else TemperedGATConv(width, out, heads, temperature)

        wide = hidden * heads
        first, last = layer(in_channels, hidden, heads), layer(wide, out_channels, 1)
        inner = [layer(in_channels if how["beside"] else wide, hidden, heads) for _ in range(layers - 2)]
        reads = [layer(wide, out_channels, 1) for _ in inner]
        super().__init__(first, last, list(zip(inner, reads, strict=True)), **how)
        self.straight(in_channels, out_channels, layers)
        self.alike = attention == "features"

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if not self.alike:
            return self.through(x, edge_index)
        one, other = (F.normalize(x, dim=-1)[end] for end in edge_index)
        weights = softmax(5 * (one * other).sum(dim=-1), edge_index[1], num_nodes=x.size(0))
        return self.through(x, edge_index, weights)


PLAIN: dict[str, Callable[..., nn.Module]] = {
    "gat": GAT,
    "gcn": GCN,
    "gin": GIN,
    "sage": SAGE,
    "sgc": SGC,
    "sign": SIGN,
}

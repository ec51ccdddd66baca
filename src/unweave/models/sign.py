"""One wide layer on features that were propagated beforehand (SIGN, Frasca et al., 2020)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing, SimpleConv

from unweave._core.sparse import matmul
from unweave.errors import ModelError
from unweave.models.activation import activation_of
from unweave.models.direct import gain_of
from unweave.models.structure import adjacency, bare, entering, project, serves

__all__ = ["SIGN", "SparseMeanConv"]


class SparseMeanConv(SimpleConv):  # type: ignore[misc]
    """PyG's mean over the neighbours, on a sparse matrix that is remembered with the graph: D⁻¹A X."""

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self) -> None:
        super().__init__("mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The layer's outputs, of the shape of x."""
        if self.aggr != "mean" or self.combine_root or not serves(self, x, edge_index, edge_weight):
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]
        return matmul(adjacency(edge_index, x.size(0), x.dtype, True, edge_weight), x)


class SIGN(nn.Module):
    """σ(Σₖ Pᵏ X Wₖ + b) V + c with P = D⁻¹A: every distance has its own weights, and there is one hidden layer.

    P is the mean over the neighbours. On WordNet (decay 1e-4, 5 % of the edges) GCN's Â in its place gave an F1 of
    0.818 instead of 0.854, and what another seed closed of the gap was 0.80 instead of 0.97: a mean keeps a node apart
    from its neighbours and does not grow with the degree of a hub.

    Messages are as narrow as may be, and each step of propagation is taken once: of features that are wider than the
    hidden layer X Wₖ is taken first and the sum by Horner's rule, others are sent as they are.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
        activation: One of :data:`~unweave.models.activation.ACTIVATIONS`.
        layers: Steps of propagation, K.
        unit: Take every node's features at length 1.
        direct: γ, how much a way without an activation counts that is added, γ Σₖ Pᵏ X Vₖ, as in
            :class:`~unweave.models.direct.Direct`; 0 for none.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 256,
        dropout: float = 0.5,
        activation: str = "tanh",
        layers: int = 3,
        unit: bool = False,
        direct: float = 0.0,
    ) -> None:
        super().__init__()
        if layers < 1 or hidden < 1:
            raise ModelError(f"a model needs at least 1 step and 1 hidden unit, got {layers} and {hidden}")
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "dropout": dropout,
            "activation": activation,
            "layers": layers,
            "unit": unit,
            "direct": gain_of(direct),
        }
        self.distances = nn.ModuleList(Linear(in_channels, hidden, bias=False) for _ in range(layers + 1))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.last = Linear(hidden, out_channels)
        self.direct = nn.ModuleList(Linear(in_channels, out_channels, bias=False) for _ in range(layers + 1) if direct)
        self.step = SparseMeanConv()
        self.dropout, self.activation, self.unit, self.gain = dropout, activation_of(activation), unit, direct

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for layer in (*self.distances, self.last, *self.direct):
            layer.reset_parameters()
        nn.init.zeros_(self.bias)

    def _own(self, x: Tensor, away: int) -> Tensor:
        """What the hidden layer takes of some rows, and beside it what goes to the outputs directly."""
        own = self._times(x, self.distances[away])
        return torch.cat([own, self.gain * self._times(x, self.direct[away])], dim=1) if self.direct else own

    def _times(self, x: Tensor, weights: nn.Module) -> Tensor:
        assert isinstance(weights, Linear)
        return project(x, weights.weight, given=True) if bare(weights) else weights(x)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        x = entering(x, unit=self.unit)
        if x.size(-1) < self.bias.numel():
            rows = [x]
            for _ in self.distances[1:]:
                rows.append(self.step(rows[-1], edge_index, edge_weight))
            return self.of_rows(*rows)
        h = self._own(x, len(self.distances) - 1)
        for away in reversed(range(len(self.distances) - 1)):
            h = self.step(h, edge_index, edge_weight) + self._own(x, away)
        return self._read(h)

    def of_rows(self, *rows: Tensor) -> Tensor:
        """The same for some nodes, from their rows of X, PX, …, P^K X."""
        h = self._own(rows[0], 0)
        for away, some in enumerate(rows[1:], start=1):
            h = h + self._own(some, away)
        return self._read(h)

    def _read(self, h: Tensor) -> Tensor:
        hidden = self.bias.numel()
        inner = F.dropout(self.activation(h[:, :hidden] + self.bias), self.dropout, training=self.training)
        return self.last(inner) + h[:, hidden:] if self.direct else self.last(inner)  # type: ignore[no-any-return]

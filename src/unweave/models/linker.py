"""Predict links by one wide layer of propagated features: the model that can forget."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear

from unweave.errors import ModelError
from unweave.models.sign import SparseMeanConv
from unweave.models.structure import bare, entering, project

__all__ = ["DECODERS", "Linker"]

DECODERS = ("dot", "mlp")


class Linker(nn.Module):
    """z = Σₖ Pᵏ X Wₖ with P = D⁻¹A; a pair is scored by z_u · z_v + b, or by a perceptron of z_u ∘ z_v.

    An encoder of two layers and a dot product multiply parameters four times, and have many minima. With one layer they
    are multiplied twice, and L2 on W is a nuclear norm on the form that scores a pair: when it is wide there is one
    minimum. Linear encoders are as good at this as deep ones (Salha et al., 2020).

    Args:
        in_channels: Features of a node.
        width: Columns of z.
        layers: Steps of propagation, K.
        decoder: ``dot``, or ``mlp``, which multiplies parameters more often.
        unit: Take every node's features at length 1.
    """

    def __init__(
        self, in_channels: int, width: int = 256, layers: int = 2, decoder: str = "dot", unit: bool = True
    ) -> None:
        super().__init__()
        if min(in_channels, width, layers) < 1 or decoder not in DECODERS:
            raise ModelError(
                f"a linker has at least one feature, column and step, and a decoder of {', '.join(DECODERS)}; got "
                f"{in_channels}, {width}, {layers}, {decoder!r}"
            )
        self.config = {
            "in_channels": in_channels,
            "width": width,
            "layers": layers,
            "decoder": decoder,
            "unit": unit,
        }
        self.distances = nn.ModuleList(Linear(in_channels, width, bias=False) for _ in range(layers + 1))
        self.hidden = Linear(width, 64) if decoder == "mlp" else None
        self.last = Linear(64, 1, bias=False) if decoder == "mlp" else None
        self.bias = nn.Parameter(torch.zeros(()))
        self.step = SparseMeanConv()
        self.unit = unit

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for layer in (*self.distances, self.hidden, self.last):
            if layer is not None:
                layer.reset_parameters()
        nn.init.zeros_(self.bias)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Embeddings, ``[nodes, width]``."""
        x = entering(x, unit=self.unit)
        *nearer, h = (self._own(x, weights) for weights in self.distances)
        for own in reversed(nearer):
            h = self.step(h, edge_index, edge_weight) + own
        return h

    def _own(self, x: Tensor, weights: nn.Module) -> Tensor:
        assert isinstance(weights, Linear)
        return project(x, weights.weight, given=True) if bare(weights) else weights(x)

    def decode(self, z: Tensor, pairs: Tensor) -> Tensor:
        """Scores of pairs ``[2, n]``."""
        both = z.index_select(0, pairs[0]) * z.index_select(0, pairs[1])
        if self.hidden is None or self.last is None:
            return both.sum(dim=1) + self.bias
        return self.last(torch.tanh(self.hidden(both)))[:, 0] + self.bias  # type: ignore[no-any-return]

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The embeddings."""
        return self.encode(x, edge_index, edge_weight)

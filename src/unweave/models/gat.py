"""Graph attention network (Veličković et al., ICLR'18)."""

from typing import Any, Literal, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, MessagePassing
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from unweave._core.sparse import peak, weigh
from unweave.errors import ModelError
from unweave.models.alike import AlikeConv
from unweave.models.stack import Place, Stack
from unweave.models.structure import attention, bare, project, serves

__all__ = ["GAT", "SparseGATConv", "TemperedGATConv"]


class GAT(Stack):
    """Two attention layers or more, 8 heads of 8, ELU and dropout between them.

    Attention makes a network with many minima: which neighbours a head listens to is settled early, by chance. With a
    temperature, attention must be paid for: for the same weight decay it stays nearer to uniform. Attention that comes
    from the features alone has nothing to settle, so that wide networks nearly always end at the same function.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Units of one head.
        heads: Heads of all layers but the last, which has one.
        dropout: Probability, in training only.
        temperature: What attention logits are divided by. Other than 1, their leaky ReLU also gives way to a smooth
            function with the same slopes far out.
        activation: One of :data:`~unweave.models.activation.ACTIVATIONS`.
        layers: Layers; from the third on each has a read-out of its own (:class:`~unweave.models.stack.Stack`).
        unit: Take every node's features at length 1.
        attention: ``learnt``, as in the paper, or ``features``: a node listens to its neighbours by how alike their
            features are to its own (:class:`~unweave.models.alike.AlikeConv`), beside itself.
        beside: Let the layers between start from the features (:class:`~unweave.models.stack.Stack`).
        direct: How much a way from the features to the outputs without an activation counts; 0 for none.
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
        activation: str = "elu",
        layers: int = 2,
        unit: bool = False,
        attention: Literal["learnt", "features"] = "learnt",
        beside: bool = False,
        direct: float = 0.0,
    ) -> None:
        if not 0 < temperature < float("inf"):
            raise ModelError(f"temperature must be positive, got {temperature}")
        if attention not in ("learnt", "features"):
            raise ModelError(f"attention must be 'learnt' or 'features', got {attention!r}")

        def convolution(size: int, width: int, place: Place) -> MessagePassing:
            if attention == "features":
                return AlikeConv(size, width, given=place == "first")
            if place == "last":
                return _convolution(size, width, 1, temperature)
            return _convolution(size, hidden, heads, temperature, given=place == "first")

        super().__init__(
            in_channels,
            out_channels,
            convolution=convolution,
            hidden=hidden * heads,
            layers=layers,
            dropout=dropout,
            activation=activation,
            unit=unit,
            beside=beside,
            direct=direct,
        )
        self.config |= {"hidden": hidden, "heads": heads, "temperature": temperature, "attention": attention}

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        if self.config["attention"] == "learnt":
            return self.through(x, edge_index)
        return self.through(x, edge_index, x)


def _convolution(
    in_channels: int, out_channels: int, heads: int, temperature: float, *, given: bool = False
) -> "SparseGATConv":
    if temperature == 1:
        return SparseGATConv(in_channels, out_channels, heads, given=given)
    return TemperedGATConv(in_channels, out_channels, heads, temperature, given=given)


class SparseGATConv(GATConv):  # type: ignore[misc]
    """PyG's layer on a pattern of attention that is remembered with the graph.

    With S the matrix of exp(logit) of who attends to whom, shifted by each row's largest so that none overflows, the
    outputs of all heads are S H divided by the row sums S 1, which is one product; the attention itself is never made.

    Args:
        in_channels: Columns of x.
        out_channels: Columns of one head.
        heads: Heads, side by side in the result.
        given: Whether x is given with the graph, not computed, so that it pays to look whether it is sparse.
    """

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, in_channels: int, out_channels: int, heads: int, *, given: bool = False) -> None:
        super().__init__(in_channels, out_channels, heads=heads)
        self.given = given

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """The layer's outputs, ``[nodes, heads · out_channels]``, with the attention of each edge where asked for."""
        special = edge_attr is not None or size is not None or return_attention_weights
        if special or self.dropout or not serves(self, x, edge_index) or not bare(self.lin):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        known = attention(edge_index, x.size(0), x.dtype, self.heads)
        h = project(x, self.lin.weight, given=self.given).view(-1, self.heads, self.out_channels)
        to, by = ((h * vector).sum(dim=-1).flatten() for vector in (self.att_src, self.att_dst))
        sums = to.gather(0, known.col) + by.gather(0, known.row)
        largest = self._logits(peak(known.pattern, sums.detach()))  # logits grow with the sums
        weights = (self._logits(sums) - largest.gather(0, known.row)).exp()
        weights = weights if known.counts is None else weights * known.counts
        h = h.reshape(-1, self.out_channels)
        h = weigh(known.pattern, weights, torch.cat([h, torch.ones_like(h[:, :1])], dim=1))
        return (h[:, :-1] / h[:, -1:]).reshape(x.size(0), -1) + self.bias

    def _logits(self, sums: Tensor) -> Tensor:
        """Attention logits from the sums of what the two ends of an edge contribute."""
        return F.leaky_relu(sums, self.negative_slope)


class TemperedGATConv(SparseGATConv):
    """The layer with its attention logits divided by a temperature, and without their kink."""

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(
        self, in_channels: int, out_channels: int, heads: int, temperature: float, *, given: bool = False
    ) -> None:
        super().__init__(in_channels, out_channels, heads, given=given)
        self.temperature = temperature

    def _logits(self, sums: Tensor) -> Tensor:
        sums = sums / self.temperature
        logits: Tensor = self.negative_slope * sums + (1 - self.negative_slope) * F.softplus(sums)
        return logits

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
        logits = self._logits(alpha_j if alpha_i is None else alpha_j + alpha_i)
        weights: Tensor = softmax(logits, index, ptr, dim_size)
        return weights

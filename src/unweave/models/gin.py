"""Graph isomorphism network (Xu et al., ICLR'19)."""

from typing import Literal

from torch import Tensor, nn
from torch_geometric.nn import GINConv, MessagePassing

from unweave.errors import ModelError
from unweave.models.activation import activation_of
from unweave.models.stack import Place, Stack
from unweave.models.structure import adjacency, bare, serves, spread

__all__ = ["GIN", "SparseGINConv"]

MODULES: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class GIN(Stack):
    """Two GIN layers or more, each with a perceptron of 32 hidden units, an activation and dropout between them.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
        activation: ``relu`` as in the paper, or a smooth one: ``elu``, ``silu``, ``tanh``.
        aggregation: ``sum`` as in the paper, or ``mean``, which keeps nodes of many neighbours on the scale of the
            others.
        layers: Layers; from the third on each has a read-out of its own (:class:`~unweave.models.stack.Stack`).
        unit: Take every node's features at length 1.
        perceptron: Linear layers of a perceptron: 2 as in the paper, or 1, which leaves two layers in all and with
            enough hidden units one minimum.
        beside: Let the layers between start from the features (:class:`~unweave.models.stack.Stack`).
        direct: How much a way from the features to the outputs without an activation counts; 0 for none.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 32,
        dropout: float = 0.5,
        activation: str = "relu",
        aggregation: Literal["sum", "mean"] = "sum",
        layers: int = 2,
        unit: bool = False,
        perceptron: int = 2,
        beside: bool = False,
        direct: float = 0.0,
    ) -> None:
        if aggregation not in ("sum", "mean") or perceptron not in (1, 2):
            raise ModelError(
                f"aggregation must be sum or mean and perceptron 1 or 2, got {aggregation!r} and {perceptron!r}"
            )

        activation_of(activation)

        def convolution(size: int, width: int, place: Place) -> MessagePassing:
            inner = [nn.Linear(size, hidden), MODULES[activation]()] if perceptron == 2 else []
            whole = nn.Sequential(*inner, nn.Linear(hidden if inner else size, width))
            return SparseGINConv(whole, aggregation, given=place == "first")

        super().__init__(
            in_channels,
            out_channels,
            convolution=convolution,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            activation=activation,
            unit=unit,
            beside=beside,
            direct=direct,
        )
        self.config |= {"aggregation": aggregation, "perceptron": perceptron}

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        return self.through(x, edge_index)


class SparseGINConv(GINConv):  # type: ignore[misc]
    """PyG's layer on a sparse matrix that is remembered with the graph.

    The perceptron's first layer is linear and commutes with sum and mean, ((1 + ε) I + A) X Wᵀ + b, so messages are as
    wide as its inputs or its outputs, whichever is narrower.

    Args:
        perceptron: What follows the aggregation, a linear layer first.
        aggregation: ``sum`` or ``mean``.
        given: Whether x is given with the graph, not computed, so that it pays to look whether it is sparse.
    """

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, perceptron: nn.Sequential, aggregation: str, *, given: bool = False) -> None:
        super().__init__(perceptron, aggr=aggregation)
        self.mean = aggregation == "mean"
        self.given = given

    def forward(self, x: Tensor, edge_index: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """The layer's outputs, ``[nodes, out_channels]``."""
        first, *others = self.nn
        if size is not None or not serves(self, x, edge_index) or not (bare(self.nn) and bare(first)):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        matrix = adjacency(edge_index, x.size(0), x.dtype, self.mean)
        h = spread(matrix, x, first.weight, given=self.given, own=1 + self.eps) + first.bias
        for layer in others:
            h = layer(h)
        return h  # type: ignore[no-any-return]

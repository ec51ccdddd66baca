"""Graph isomorphism network (Xu et al., ICLR'19)."""

from typing import Literal

from torch import Tensor, nn
from torch_geometric.nn import GINConv, MessagePassing

from unweave._core.sparse import matmul
from unweave.errors import ModelError
from unweave.models.structure import adjacency, bare, project, serves

__all__ = ["GIN", "SparseGINConv"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class GIN(nn.Module):
    """Two GIN layers, each with a two-layer perceptron of 32 hidden units, an activation and dropout between them.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
        activation: ``relu`` as in the paper, or a smooth one: ``elu``, ``silu``, ``tanh``.
        aggregation: ``sum`` as in the paper, or ``mean``, which keeps nodes of many neighbours on the scale of the
            others.
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
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS or aggregation not in ("sum", "mean"):
            raise ModelError(
                f"activation must be one of {', '.join(ACTIVATIONS)} and aggregation sum or mean, "
                f"got {activation!r} and {aggregation!r}"
            )
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "dropout": dropout,
            "activation": activation,
            "aggregation": aggregation,
        }
        act = ACTIVATIONS[activation]
        first = nn.Sequential(nn.Linear(in_channels, hidden), act(), nn.Linear(hidden, hidden))
        second = nn.Sequential(nn.Linear(hidden, hidden), act(), nn.Linear(hidden, out_channels))
        self.conv1 = SparseGINConv(first, aggregation, given=True)
        self.conv2 = SparseGINConv(second, aggregation)
        self.between = nn.Sequential(act(), nn.Dropout(dropout))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = self.between(self.conv1(x, edge_index))
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]


class SparseGINConv(GINConv):  # type: ignore[misc]
    """PyG's layer on a sparse matrix that is remembered with the graph.

    The perceptron's first layer is linear and commutes with sum and mean, so it comes before them,
    ((1 + ε) I + A) (X Wᵀ) + b, and messages are as wide as its outputs instead of its inputs.

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
        h = project(x, first.weight, given=self.given)
        h = matmul(matrix, h) + (1 + self.eps) * h + first.bias
        for layer in others:
            h = layer(h)
        return h  # type: ignore[no-any-return]

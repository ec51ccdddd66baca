"""Graph isomorphism network (Xu et al., ICLR'19)."""

from typing import Literal

from torch import Tensor, nn
from torch_geometric.nn import GINConv

from unweave.errors import ModelError

__all__ = ["GIN"]

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
        self.conv1 = GINConv(first, aggr=aggregation)
        self.conv2 = GINConv(second, aggr=aggregation)
        self.between = nn.Sequential(act(), nn.Dropout(dropout))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        h = self.between(self.conv1(x, edge_index))
        return self.conv2(h, edge_index)  # type: ignore[no-any-return]

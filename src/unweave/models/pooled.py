"""A model of whole graphs: random features of every node, pooled, and one layer that is trained."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear, global_add_pool, global_mean_pool

from unweave._core.memo import remembered
from unweave._core.sparse import eagerly
from unweave.errors import ModelError
from unweave.models.activation import activation_of
from unweave.models.sign import SparseMeanConv
from unweave.models.structure import bare, constant, entering, serves

__all__ = ["PooledSIGN"]

DRAWN = 0
"""Seed of the hidden layer: the same for every model, whatever it is trained on."""


class PooledSIGN(nn.Module):
    """Σᵢ σ(Σₖ Pᵏ X Rₖ + r)ᵢ V + c over the nodes i of a graph, with P = D⁻¹A: :class:`SIGN`'s hidden units, pooled.

    R and r are drawn once and not trained, so that they tell nothing of the data, and what is trained has one minimum:
    with trained ones seeds of MUTAG agreed to 0.87, and ``gif`` and retraining ended at objectives of 51.5 and 51.0.
    A model of few graphs can afford it; it is as good there (``benchmarks/results/tasks_graphs``).

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        activation: One of :data:`~unweave.models.activation.ACTIVATIONS`.
        layers: Steps of propagation, K.
        unit: Take every node's features at length 1.
        pooling: ``sum`` over the nodes of a graph, or ``mean``.
    """

    weights: Tensor
    bias: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 256,
        activation: str = "tanh",
        layers: int = 3,
        unit: bool = False,
        pooling: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__()
        if pooling not in ("sum", "mean") or layers < 1 or hidden < 1:
            raise ModelError(
                "pooling must be sum or mean, with at least 1 step and 1 hidden unit; "
                f"got {pooling!r}, {layers}, {hidden}"
            )
        self.config = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "activation": activation,
            "layers": layers,
            "unit": unit,
            "pooling": pooling,
        }
        draw = torch.Generator().manual_seed(DRAWN)
        with torch.device("cpu"):
            self.register_buffer("weights", torch.randn(layers + 1, in_channels, hidden, generator=draw))
            self.register_buffer("bias", torch.randn(hidden, generator=draw))
        self.last = Linear(hidden, out_channels)
        self.step = SparseMeanConv()
        self.activation, self.unit, self.pooling = activation_of(activation), unit, pooling

    def reset_parameters(self) -> None:
        """Draw the weights of the last layer anew."""
        self.last.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Logits, ``[graphs, classes]``."""
        if batch is None:
            batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        return self.last(self.pooled(x, edge_index, batch, edge_weight))  # type: ignore[no-any-return]

    def pooled(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_weight: Tensor | None) -> Tensor:
        """The hidden units of every graph, ``[graphs, hidden]``; nothing of them is trained, so they are kept.

        On the CPU alone, where they are most of what a pass takes.
        """
        given = (x, edge_index, batch, edge_weight, self.weights, self.bias)
        fixed = all(value is None or constant(value) for value in given) and x.device.type == "cpu"
        plain = bare(self.step) and self.step.aggr == "mean" and not self.step.combine_root
        if not (fixed and plain and serves(self.step, x, edge_index, edge_weight)):
            return _pooled(self.step, *given, self.activation, self.unit, self.pooling)
        return _pooled_once(*given, self.activation, self.unit, self.pooling)


def _pooled(
    step: SparseMeanConv,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor,
    edge_weight: Tensor | None,
    weights: Tensor,
    bias: Tensor,
    activation: Callable[[Tensor], Tensor],
    unit: bool,
    pooling: str,
) -> Tensor:
    x = entering(x, unit=unit)
    *nearer, h = (x @ own for own in weights)
    for own in reversed(nearer):
        h = step(h, edge_index, edge_weight) + own
    pool = global_add_pool if pooling == "sum" else global_mean_pool
    return pool(activation(h + bias), batch)  # type: ignore[no-any-return]


@remembered
def _pooled_once(*given: Any) -> Tensor:
    """The same with the layer as it is built, once for a graph and a model."""
    with eagerly():
        return _pooled(SparseMeanConv(), *given)

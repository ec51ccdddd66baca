"""Graph convolutional network (Kipf and Welling, ICLR'17)."""

from functools import partial

from torch import Tensor
from torch_geometric.nn import GCNConv, MessagePassing

from unweave.models.sgc import SparseAPPNP
from unweave.models.stack import Stack
from unweave.models.structure import bare, normalised, serves, spread

__all__ = ["GCN", "SparseGCNConv"]


class SparseGCNConv(GCNConv):  # type: ignore[misc]
    """PyG's layer on sparse matrices that are remembered with the graph: Â X Wᵀ + b.

    Args:
        in_channels: Columns of x.
        out_channels: Columns of the result.
        given: Whether x is given with the graph, not computed, so that it pays to look whether it is sparse.
    """

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, in_channels: int, out_channels: int, *, given: bool = False) -> None:
        super().__init__(in_channels, out_channels)
        self.given = given

    @property
    def as_built(self) -> bool:
        """Whether nobody has set the layer to anything else than it was built with."""
        return bool(self.normalize and self.add_self_loops and not self.improved) and self.bias is not None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The layer's outputs, ``[nodes, out_channels]``."""
        if not (self.as_built and serves(self, x, edge_index, edge_weight) and bare(self.lin)):
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]
        matrix = normalised(edge_index, edge_weight, x.size(0), x.dtype)
        return spread(matrix, x, self.lin.weight, given=self.given) + self.bias  # type: ignore[no-any-return]


class GCN(Stack):
    """Two graph convolutions or more, 16 hidden units, ReLU and dropout between them.

    The arguments are those of :class:`~unweave.models.stack.Stack`.
    """

    layer, roots, step = SparseGCNConv, False, partial(SparseAPPNP, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        return self.through(x, edge_index, edge_weight)

    def _weighed(self, *graph: Tensor | None) -> tuple[Tensor | None, ...]:
        return graph

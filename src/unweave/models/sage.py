"""GraphSAGE with mean aggregation (Hamilton et al., NeurIPS'17), trained on the whole graph."""

from torch import Tensor
from torch_geometric.nn import MessagePassing, SAGEConv

from unweave.models.stack import Stack
from unweave.models.structure import adjacency, bare, project, serves, spread

__all__ = ["SAGE", "SparseSAGEConv"]


class SparseSAGEConv(SAGEConv):  # type: ignore[misc]
    """PyG's layer on a sparse matrix that is remembered with the graph: D⁻¹A X W₁ᵀ + b + X W₂ᵀ.

    Args:
        in_channels: Columns of x.
        out_channels: Columns of the result.
        given: Whether x is given with the graph, not computed, so that it pays to look whether it is sparse.
    """

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, in_channels: int, out_channels: int, *, given: bool = False) -> None:
        super().__init__(in_channels, out_channels)
        self.given = given

    def forward(self, x: Tensor, edge_index: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """The layer's outputs, ``[nodes, out_channels]``."""
        if size is not None or not serves(self, x, edge_index) or not (bare(self.lin_l) and bare(self.lin_r)):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        matrix = adjacency(edge_index, x.size(0), x.dtype, True)
        around = spread(matrix, x, self.lin_l.weight, given=self.given) + self.lin_l.bias
        return around + project(x, self.lin_r.weight, given=self.given)  # type: ignore[no-any-return]


class SAGE(Stack):
    """Layers of a node's own features beside the mean of its neighbours', an activation and dropout between them.

    The arguments are those of :class:`~unweave.models.stack.Stack`.
    """

    layer = SparseSAGEConv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        return self.through(x, edge_index)

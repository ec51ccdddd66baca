"""LightGCN (He et al., SIGIR'20): a table of embeddings, smoothed along the graph."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import LGConv, MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from unweave._core.memo import look, remembered_lightly
from unweave._core.sparse import Matrix, eagerly, matmul
from unweave.errors import ModelError
from unweave.models.structure import serves

__all__ = ["LightGCN", "SparseLGConv"]


class SparseLGConv(LGConv):  # type: ignore[misc]
    """PyG's layer on a sparse matrix that is remembered with the graph: D^-½ A D^-½ X."""

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer
    given = True

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The layer's outputs, as many columns as ``x`` has."""
        if not (self.normalize and serves(self, x, edge_index, edge_weight)):
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]
        return matmul(_smoothing(edge_index, edge_weight, x.size(0), x.dtype), x)


class LightGCN(nn.Module):
    """The mean of a table's rows and of what 1, 2, … steps of smoothing make of them; scores are dot products.

    Args:
        nodes: Rows of the table: users and items.
        width: Columns. Few have many minima, many nearly one.
        layers: Steps.
    """

    def __init__(self, nodes: int, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        if min(nodes, width, layers) < 1:
            raise ModelError(f"a LightGCN has at least one row, column and layer, got {nodes}, {width}, {layers}")
        self.config = {"nodes": nodes, "width": width, "layers": layers}
        self.num_nodes = nodes
        self.table = nn.Embedding(nodes, width)
        self.convs = nn.ModuleList(SparseLGConv() for _ in range(layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.table.weight, std=0.1)

    def encode(self, rows: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Embeddings of the nodes that have these rows of the table, ``[nodes, width]``."""
        z = self.table.weight.index_select(0, rows)
        total = z
        for conv in self.convs:
            z = conv(z, edge_index, edge_weight)
            total = total + z
        return total / (len(self.convs) + 1)

    def forward(self, rows: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The embeddings."""
        return self.encode(rows, edge_index, edge_weight)


def _smoothing(edge_index: Tensor, edge_weight: Tensor | None, nodes: int, dtype: torch.dtype) -> Matrix:
    look(edge_index)
    return _normalised(edge_index, edge_weight, nodes, dtype)


@remembered_lightly
def _normalised(edge_index: Tensor, edge_weight: Tensor | None, nodes: int, dtype: torch.dtype) -> Matrix:
    """D^-½ A D^-½, without loops."""
    with eagerly():
        (source, target), values = gcn_norm(edge_index, edge_weight, nodes, add_self_loops=False, dtype=dtype)
        return Matrix.of(target, source, values, (nodes, nodes))

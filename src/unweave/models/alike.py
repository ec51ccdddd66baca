"""Attention that comes from the features of a graph alone: nothing in it is trained."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GraphConv, MessagePassing
from torch_geometric.utils import softmax

from unweave._core.memo import remembered
from unweave._core.sparse import Matrix, eagerly
from unweave.models.structure import bare, constant, project, refuse_unknown, serves, spread

__all__ = ["AlikeConv", "likeness"]

SHARPNESS = 5.0
"""What the cosine of two nodes' features is multiplied by before the softmax over a node's neighbours."""

CHUNK = 2**18
"""Edges whose features are looked at together."""


class AlikeConv(GraphConv):  # type: ignore[misc]
    """PyG's layer with a weight for every edge, softmax over a node's neighbours of 5 cos(x_i, x_j), beside a root.

    Args:
        in_channels: Columns of its inputs.
        out_channels: Columns of the result.
        given: Whether its inputs are given with the graph, not computed, so that it pays to look whether they are
            sparse.
    """

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, in_channels: int, out_channels: int, *, given: bool = False) -> None:
        super().__init__(in_channels, out_channels, aggr="add")
        self.given = given

    def forward(self, h: Tensor, edge_index: Tensor, x: Tensor) -> Tensor:
        """The layer's outputs, ``[nodes, out_channels]``, by the likeness of ``x``."""
        alone = bare(self.lin_rel) and bare(self.lin_root) and constant(x)
        if not (alone and serves(self, h, edge_index)):
            return super().forward(h, edge_index, likeness(x, edge_index).to(h.dtype))  # type: ignore[no-any-return]
        around = spread(attention(x, edge_index), h, self.lin_rel.weight, given=self.given)
        return around + self.lin_rel.bias + project(h, self.lin_root.weight, given=self.given)  # type: ignore[no-any-return]


def likeness(x: Tensor, edge_index: Tensor) -> Tensor:
    """The weight of every edge, summing to 1 over the edges into a node."""
    source, target = edge_index
    unit = F.normalize(x, dim=-1)
    parts = zip(source.split(CHUNK), target.split(CHUNK), strict=True)
    cosines = [(unit[one] * unit[other]).sum(dim=-1) for one, other in parts]
    logits = SHARPNESS * torch.cat(cosines) if cosines else x.new_zeros(0)
    return softmax(logits, target, num_nodes=x.size(0))  # type: ignore[no-any-return]


@remembered
def attention(x: Tensor, edge_index: Tensor) -> Matrix:
    """The same as a matrix."""
    with eagerly():
        refuse_unknown(edge_index, x.size(0))
        source, target = edge_index
        return Matrix.of(target, source, likeness(x, edge_index), (x.size(0), x.size(0)))

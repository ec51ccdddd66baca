"""Simple graph convolution (Wu et al., ICML'19)."""

from torch import Tensor, nn
from torch_geometric.nn import APPNP, Linear, MessagePassing

from unweave._core.sparse import matmul
from unweave.models.structure import bare, entering, normalised, project, serves

__all__ = ["SGC", "SparseAPPNP"]


class SGC(nn.Module):
    """Â²XW with one weight matrix and no bias, so that its training problem is convex.

    XW is taken first: propagation is linear, so the result is the same, and it runs over the classes
    instead of over all features. ``APPNP`` without teleport is that propagation.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        steps: Propagation steps.
        unit: Take every node's features at length 1.
    """

    def __init__(self, in_channels: int, out_channels: int, *, steps: int = 2, unit: bool = False) -> None:
        super().__init__()
        self.config = {"in_channels": in_channels, "out_channels": out_channels, "steps": steps, "unit": unit}
        self.linear = Linear(in_channels, out_channels, bias=False)
        self.propagate = SparseAPPNP(steps)
        self.unit = unit

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        x = entering(x, unit=self.unit)
        h = project(x, self.linear.weight, given=True) if bare(self.linear) else self.linear(x)
        return self.propagate(h, edge_index, edge_weight)  # type: ignore[no-any-return]

    def of_rows(self, rows: Tensor) -> Tensor:
        """The same for some nodes, from their rows of Âᴷ X."""
        return self.linear(rows)  # type: ignore[no-any-return]


class SparseAPPNP(APPNP):  # type: ignore[misc]
    """PyG's layer without teleport, on a sparse matrix that is remembered with the graph: Âᴷ X."""

    propagate = MessagePassing.propagate  # explainers need it as it is, not as compiled for another layer

    def __init__(self, steps: int) -> None:
        super().__init__(K=steps, alpha=0.0)

    @property
    def as_built(self) -> bool:
        """Whether nobody has set the layer to anything else than it was built with, but for its steps."""
        return bool(self.normalize and self.add_self_loops and not self.alpha and not self.dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The layer's outputs, of the shape of x."""
        if not (self.as_built and serves(self, x, edge_index, edge_weight)):
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]
        matrix = normalised(edge_index, edge_weight, x.size(0), x.dtype)
        for _ in range(self.K):
            x = matmul(matrix, x)
        return x

"""Simple graph convolution (Wu et al., ICML'19)."""

from torch import Tensor, nn
from torch_geometric.nn import APPNP, Linear

__all__ = ["SGC"]


class SGC(nn.Module):
    """Â²XW with one weight matrix and no bias, so that its training problem is convex.

    XW is taken first: propagation is linear, so the result is the same, and it runs over the classes
    instead of over all features. ``APPNP`` without teleport is that propagation.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        steps: Propagation steps.
    """

    def __init__(self, in_channels: int, out_channels: int, *, steps: int = 2) -> None:
        super().__init__()
        self.config = {"in_channels": in_channels, "out_channels": out_channels, "steps": steps}
        self.linear = Linear(in_channels, out_channels, bias=False)
        self.propagate = APPNP(K=steps, alpha=0.0)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, ``[nodes, classes]``."""
        return self.propagate(self.linear(x), edge_index, edge_weight)  # type: ignore[no-any-return]

"""A way from the features to the outputs that multiplies parameters once, beside the layers of a wide model."""

import math
from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing

from unweave.errors import ModelError
from unweave.models.structure import bare, project

__all__ = ["Direct", "gain_of"]


def gain_of(direct: float) -> float:
    """γ, once it is one."""
    if isinstance(direct, bool) or not isinstance(direct, int | float) or not 0 <= direct < math.inf:
        raise ModelError(f"direct must be a number of at least 0, got {direct!r}")
    return float(direct)


class Direct(nn.Module):
    """γ Σₖ Pᵏ X Vₖ, without an activation and without a bias.

    What multiplies parameters once has one minimum, and a minimisation finds it soon. Weight decay of V costs
    1/2γ² of the square of what V does, that of two factors the sum of its singular values: up to singular values of 2γ²
    it is this way that the linear part of a model takes, and units are left to what is not linear.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        distances: The k.
        gain: γ.
        step: Makes one step of propagation, P.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        distances: Iterable[int],
        gain: float,
        step: Callable[[], MessagePassing],
    ) -> None:
        super().__init__()
        self.distances, self.gain = tuple(distances), gain
        self.weights = nn.ModuleList(Linear(in_channels, out_channels, bias=False) for _ in self.distances)
        self.steps = nn.ModuleList(step() for _ in range(max(self.distances)))

    def forward(self, x: Tensor, *graph: Tensor | None) -> Tensor:
        """What it adds to the logits, ``[nodes, classes]``; ``graph`` is what a step is given beside its inputs."""
        own = dict(zip(self.distances, self.weights, strict=True))
        h = self._own(x, own[max(own)])
        for away in reversed(range(max(own))):  # Horner's rule
            h = self.steps[away](h, *graph)
            h = h + self._own(x, own[away]) if away in own else h
        return self.gain * h

    def _own(self, x: Tensor, weights: nn.Module) -> Tensor:
        assert isinstance(weights, Linear)
        return project(x, weights.weight, given=True) if bare(weights) else weights(x)

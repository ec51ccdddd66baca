"""The local problem of a request: what an influence step solves, written once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.graph.edit import mask_of
from unweave.objective.objective import Point

__all__ = ["LocalProblem"]


@dataclass(frozen=True)
class LocalProblem:
    """Q(θ) + ½δ‖θ − θ0‖² with Q(θ) = L(θ) − ⟨g, θ⟩, told as what it changes by from θ0.

    For a request L is the objective on the remaining graph and g (a share of) the gradient that training left at θ0, so
    that what was removed is all that pulls: ∇Q(θ0) = −v. Where training ended at a minimum g is nothing, and Q is L.

    Attributes:
        start: θ0.
        losses: The loss of each training node there.
        mu: The weight decay of each parameter in L.
        slope: g.
        damping: δ.
        counted: Of the training nodes those whose loss counts; all where none is given.
    """

    start: Tensor
    losses: Tensor
    mu: Tensor
    slope: Tensor
    damping: float = 0.0
    counted: Tensor | None = None

    def change(self, point: Point) -> float:
        """Q(θ) − Q(θ0), summed node by node in double, so that small requests survive rounding."""
        theta, counted = point.theta.detach(), self.counted
        slope = self.mu * (theta + self.start) / 2 - self.slope
        if counted is None:
            lost = point.loss_change(self.losses)
        else:
            lost = float((point.losses.detach().double()[counted] - self.losses.double()[counted]).sum())
        return lost + float(torch.sum((theta - self.start) * slope, dtype=torch.float64))

    def resolved(self, point: Point, pull: Tensor) -> tuple[float, bool]:
        """The same, and whether it is too small for the precision of the losses; then the slopes at both ends tell it.

        Args:
            point: θ.
            pull: −∇Q(θ0).
        """
        change = self.change(point)
        if abs(change) > torch.finfo(self.losses.dtype).eps * float(self.losses.abs().sum(dtype=torch.float64)):
            return change, False
        return float((self.gradient(point) - pull) @ (point.theta.detach() - self.start)) / 2, True

    def gradient(self, point: Point) -> Tensor:
        """∇Q at a point of L."""
        if self.counted is None:
            return point.gradient() - self.slope
        mask = mask_of(point.objective.nodes[self.counted], point.outputs.size(0))
        return point.loss_gradient(mask) + self.mu * point.theta.detach() - self.slope

    def at(self, point: Point) -> tuple[float, Tensor]:
        """The change of the damped problem and its gradient, for a minimisation."""
        x = point.theta.detach() - self.start
        return self.change(point) + self.damping * float(x @ x) / 2, self.gradient(point) + self.damping * x

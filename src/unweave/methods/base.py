"""The contract of a method: given a problem, return new parameters."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from unweave.fitting import Recipe
from unweave.graph import Region, Removal
from unweave.meter import Meter
from unweave.objective import Objective, Point
from unweave.solvers import SolveReport

__all__ = ["Method", "Outcome", "Problem"]


class Problem:
    """All that a method may use: the two objectives, where training ended, and what went.

    Attributes:
        original: L0, the objective on the graph the model was trained on.
        remaining: L', the objective on the remaining graph.
        theta: θ0, the trained parameters as one vector.
        at_original: L0 evaluated at θ0.
        at_remaining: L' evaluated at θ0.
        removal: The request carried out on the graph.
        region: The nodes whose prediction can change.
        seed: For methods that use chance.
        meter: Counts passes and seconds.
    """

    def __init__(
        self,
        original: Objective,
        remaining: Objective,
        theta: Tensor,
        removal: Removal,
        region: Region,
        seed: int,
        meter: Meter,
    ) -> None:
        self.original = original
        self.remaining = remaining
        self.theta = theta
        self.removal = removal
        self.region = region
        self.seed = seed
        self.meter = meter
        self.at_original: Point = original.at(theta)
        self.at_remaining: Point = remaining.at(theta)

    @cached_property
    def forgotten_gradient(self) -> Tensor:
        """v = ∇ΔL(θ0), the gradient of the forgotten loss ΔL = L0 − L'.

        Outside the region every term of the loss cancels, so only the region is summed; a node that
        lost its label counts although its prediction stays.
        """
        mask = self.region.mask.clone()
        mask[self.removal.labels] = True
        loss = self.at_original.loss_gradient(mask) - self.at_remaining.loss_gradient(mask)
        return loss + (self.original.mu - self.remaining.mu) * self.theta

    @cached_property
    def remaining_gradient(self) -> Tensor:
        """∇L'(θ0)."""
        return self.at_remaining.gradient()

    def local_gradient(self, point: Point) -> Tensor:
        """∇Q at a point of L', with Q(θ) = L'(θ) − ⟨∇L0(θ0), θ⟩: what the influence step sends to zero."""
        return point.gradient() - self.remaining_gradient - self.forgotten_gradient

    def local_change(self, point: Point, gradient: Tensor) -> float:
        """Q(θ) − Q(θ0), from the slopes at both ends of the step: values would drown small requests in rounding.

        Args:
            point: L' at θ.
            gradient: ∇Q(θ), from :meth:`local_gradient`.
        """
        step = point.theta.detach() - self.theta
        return float((gradient - self.forgotten_gradient) @ step) / 2


@dataclass(frozen=True)
class Outcome:
    """What a method returns.

    Attributes:
        theta: The new parameters.
        solve: How a linear system was solved, where one was.
        details: Settings and counts worth keeping in the receipt, JSON values only.
        buffers: Buffers of the new model (BatchNorm statistics), where they changed.
        warnings: What the user should know.
    """

    theta: Tensor
    solve: SolveReport | None = None
    details: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method(ABC):
    """A way to forget. Options are the fields of the (frozen) dataclass.

    A subclass names itself and implements :meth:`forget`; validation, timing and the receipt are done
    once for all by :func:`unweave.unlearn`. ``unweave.testing.MethodContract`` tests what every method owes.
    """

    name: ClassVar[str]

    @abstractmethod
    def forget(self, problem: Problem) -> Outcome:
        """Return parameters that no longer depend on what was removed, as nearly as the method can."""

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Method":
        """Build the method for a model trained by ``recipe``; options given win."""
        return cls(**options)

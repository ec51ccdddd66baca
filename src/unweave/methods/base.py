"""The contract of a method: given a problem, return new parameters."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave.curvature.solvers import SolveReport
from unweave.errors import DivergenceError
from unweave.graph.removal import Removal
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, Objective, Point, call
from unweave.training.adam import Recipe
from unweave.training.checkpoints import Checkpoint

__all__ = ["ASK", "Expected", "Method", "Outcome", "Problem"]

ASK = "is the model trained on this graph, with this loss and weight_decay? If so use method='finetune' or 'retrain'"
"""What to look at when nothing lowers the objective."""


ROWS = 2**16
"""Nodes whose probabilities are compared at a time."""


class Problem:
    """All that a method may use: the two objectives, where training ended, and what went.

    Attributes:
        original: L0, the objective on the graph the model was trained on.
        remaining: L', the objective on the remaining graph.
        theta: θ0, the trained parameters as one vector.
        removal: The request carried out on the graph.
        seed: For methods that use chance.
        meter: Counts passes and seconds.
        known: L0(θ0) and ∇L0(θ0), where they were computed before.
    """

    def __init__(
        self,
        original: Objective,
        remaining: Objective,
        theta: Tensor,
        removal: Removal,
        seed: int,
        meter: Meter,
        known: tuple[float, Tensor] | None = None,
    ) -> None:
        self.original = original
        self.remaining = remaining
        self.theta = theta
        self.removal = removal
        self.seed = seed
        self.meter = meter
        if known is not None:
            self.original_value, self.original_gradient = known

    @cached_property
    def at_original(self) -> Point:
        """L0 evaluated at θ0, with the graph that its derivatives need."""
        return self.original.at(self.theta)

    @cached_property
    def at_remaining(self) -> Point:
        """L' evaluated at θ0, with the graph that its derivatives need."""
        return self.remaining.at(self.theta)

    def release(self, *, gradients: bool) -> None:
        """Settle what every receipt needs and let go of both graphs of derivatives; they come back on demand."""
        _ = self.original_value, self.remaining_value, self._remaining_losses, self._remaining_outputs
        _ = self.forgotten_gradient if gradients else None
        for name in ("at_original", "at_remaining"):
            self.__dict__.pop(name, None)

    @cached_property
    def digest(self) -> str:
        """Digest of θ0."""
        return tensor_digest(self.original.model.named_parameters())

    @cached_property
    def original_value(self) -> float:
        """L0(θ0)."""
        return self.at_original.value

    @cached_property
    def remaining_value(self) -> float:
        """L'(θ0)."""
        return self.at_remaining.value

    @cached_property
    def original_gradient(self) -> Tensor:
        """∇L0(θ0): zero where training ended at a minimum."""
        return self.at_original.gradient()

    @cached_property
    def remaining_gradient(self) -> Tensor:
        """∇L'(θ0)."""
        return self.at_remaining.gradient()

    @cached_property
    def forgotten_gradient(self) -> Tensor:
        """v = ∇ΔL(θ0), the gradient of the forgotten loss ΔL = L0 − L'.

        Outside the influenced region every term cancels. All training nodes are summed all the same: a backward
        pass costs the same, and a model that mixes nodes in a way its layers do not tell is served as exactly.
        """
        for gradient, graph in ((self.original_gradient, "its"), (self.remaining_gradient, "the remaining")):
            if not bool(torch.isfinite(gradient.sum())):
                raise DivergenceError(
                    f"the gradient of the objective on {graph} graph is not finite at the trained parameters; look for "
                    "a division by zero, a logarithm or a square root of zero in the model or the loss"
                )
        v: Tensor = self.original_gradient - self.remaining_gradient
        rounding = 10 * torch.finfo(v.dtype).eps * float(self.original_gradient.norm())
        return v if float(v.norm()) > rounding else torch.zeros_like(v)

    @cached_property
    def _original_losses(self) -> Tensor:
        return self.at_original.losses.detach()

    @cached_property
    def _original_outputs(self) -> Tensor:
        outputs: Tensor = self.at_original.outputs.detach()
        return outputs

    @cached_property
    def _remaining_losses(self) -> Tensor:
        return self.at_remaining.losses.detach()

    @cached_property
    def _remaining_outputs(self) -> Tensor:
        outputs: Tensor = self.at_remaining.outputs.detach()
        return outputs

    def local_gradient(self, point: Point, kept: float = 1.0) -> Tensor:
        """∇Q at a point of L', with Q(θ) = L'(θ) − kept·⟨∇L0(θ0), θ⟩: what an influence step sends to zero."""
        gradient: Tensor = point.gradient() - kept * self.original_gradient
        return gradient

    def local_change(self, point: Point, kept: float = 1.0) -> float:
        """Q(θ) − Q(θ0) at a point of L', summed node by node in double, so that small requests survive rounding."""
        theta = point.theta.detach()
        losses = (point.losses.detach().double() - self._remaining_losses.double()).sum()
        slope = self.remaining.mu * (theta + self.theta) / 2 - kept * self.original_gradient
        return float(losses + torch.sum((theta - self.theta) * slope, dtype=torch.float64))

    def change_without(self, touched: Tensor, theta: Tensor) -> tuple[float, float | None]:
        """What θ does to the old graph's objective without the loss of some nodes, and to the outputs there.

        The objective is Σ ℓ over the other training nodes on G, with the weight decay of L', less ⟨∇L0(θ0), θ⟩: the
        local problem of a method that treats the touched nodes as deleted and knows nothing of their neighbours.
        """
        point, rest = self.original.at(theta), ~touched[self.original.nodes]
        start, end = self.theta.double(), theta.double()
        losses = (point.losses.detach().double() - self._original_losses.double())[rest].sum()
        decay = (self.remaining.mu.double() * (end - start) * (end + start)).sum() / 2
        change = float(losses + decay - self.original_gradient.double() @ (end - start))
        known = self.original.loss is cross_entropy
        return change, _divergence(self._original_outputs, point.outputs) if known else None

    def function_change(self, point: Point) -> float | None:
        """Mean over the remaining nodes of KL(outputs at θ0 ‖ outputs at the point); for class probabilities only."""
        if self.remaining.loss is not cross_entropy:
            return None
        kept = torch.ones(self._remaining_outputs.size(0), dtype=torch.bool, device=self.theta.device)
        kept[self.removal.nodes] = False
        return _divergence(self._remaining_outputs[kept], point.outputs[kept])


def _divergence(before: Tensor, after: Tensor) -> float:
    """Mean KL(before ‖ after) of outputs that are logits."""
    total = 0.0
    for some in zip(torch.split(before.detach(), ROWS), torch.split(after.detach(), ROWS), strict=True):
        p, q = (F.log_softmax(outputs.double(), dim=-1) for outputs in some)
        total += float((p.exp() * (p - q)).sum())
    return total / before[..., 0].numel()


@dataclass(frozen=True)
class Outcome:
    """What a method returns.

    Attributes:
        theta: The new parameters.
        solve: How a linear system was solved, where one was.
        details: Settings and counts worth keeping in the receipt, JSON values only.
        buffers: Buffers of the new model, where the method trained them; otherwise running statistics are refreshed
            on the remaining graph.
        refresh: Whether that refresh is wanted.
        point: L' evaluated at these parameters, where the method has done so already.
        checked: Whether the method has checked its answer itself. The receipt warns where Q(θ) = L'(θ) − ⟨∇L0(θ0), θ⟩
            and its gradient grew all the same, and for the unchecked answer of a linear solve where one of them did.
        nearness: How near the answer is to retraining, in words, for a method that is not judged by Q.
        warnings: What the user should know.
        checkpoints: States of training that go with the new parameters; ``None`` for a method that knows nothing of
            training and leaves them as they are.
        anew: Whether the parameters were trained from the start, so that nothing of them goes back to what was removed.
        certificate: What the method has proved about its answer, as receipts have it.
        bent: Of a search for a minimum of L', the smallest curvature met along its steps and the gradient norm left.
        ladder: What ``auto`` tried and what it knows of the answer, for the verdict.
    """

    theta: Tensor
    solve: SolveReport | None = None
    details: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] | None = None
    refresh: bool = True
    point: Point | None = None
    checked: bool = False
    nearness: str | None = None
    warnings: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] | None = None
    anew: bool = False
    certificate: dict[str, Any] | None = None
    bent: tuple[float | None, float] | None = None
    ladder: dict[str, Any] | None = None


@dataclass(frozen=True)
class Expected:
    """What a method would do, and what that would cost.

    Attributes:
        how: What it would do, in a few words.
        least: Passes over the graph it takes at least, from L0 and L' evaluated at θ0 with their gradients.
        most: At most; ``None`` where that is not known.
        polishes: Whether a polish comes on top, whose length is not known.
        settled: Whether it may have evaluated its answer already, so that this is not done again for the receipt.
        checkpoints: The states of training that there would be, as in :class:`Outcome`.
        anew: Whether it would train from the start.
    """

    how: str = ""
    least: float = 0
    most: float | None = None
    polishes: bool = False
    settled: bool = False
    checkpoints: tuple[Checkpoint, ...] | None = None
    anew: bool = False


@dataclass(frozen=True)
class Method(ABC):
    """A way to forget. Options are the fields of the (frozen) dataclass.

    A subclass names itself and implements :meth:`forget`; validation, timing and the receipt are done
    once for all by :func:`unweave.unlearn`. ``unweave.testing.MethodContract`` tests what every method owes.

    Attributes:
        name: What it is called.
        local: Whether its answer is judged by the local problem Q(θ) = L'(θ) − ⟨∇L0(θ0), θ⟩. Otherwise no gradient is
            taken for the receipt, and the outcome says in words how near it is.
        retrains: Whether it trains from scratch, so that the recipe of the first training matters.
        bounded: Whether it works in bounded memory: it then evaluates objectives and curvature
            (:func:`unweave.curvature.products.products`) and never calls the model on the graph itself.
    """

    name: ClassVar[str]
    local: ClassVar[bool] = True
    retrains: ClassVar[bool] = False
    bounded: ClassVar[bool] = False

    @abstractmethod
    def forget(self, problem: Problem) -> Outcome:
        """Return parameters that no longer depend on what was removed, as nearly as the method can."""

    def expect(self, problem: Problem) -> Expected:
        """What :meth:`forget` would do with a problem, and its cost; what that would refuse, this refuses as well.

        By default nothing is known but that the problem could be posed.
        """
        return Expected()

    def setup(
        self, model: nn.Module, data: Data, recipe: Recipe, loss: Loss = cross_entropy, forward: Forward = call
    ) -> nn.Module:
        """The model that is deployed where this method is to be used; by default the model itself, as trained.

        Args:
            model: The trained module; it stays as it is.
            data: The graph it was trained on.
            recipe: How it was trained.
            loss: Per-node loss it was trained with.
            forward: How to call it.
        """
        return model

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Method":
        """Build the method for a model trained by ``recipe``; options given win."""
        return cls(**options)

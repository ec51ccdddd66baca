"""The contract of a method: given a problem, return new parameters."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.curvature.local import LocalProblem
from unweave.curvature.solvers import SolveReport
from unweave.methods.problem import Problem
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, Point, call
from unweave.training.checkpoints import Checkpoint
from unweave.training.recipe import Recipe

__all__ = ["Expected", "Method", "Outcome"]


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
        checked: Whether the method has checked its answer itself. The receipt warns where the local problem that it
            solved, or its gradient, grew all the same: for the finished model, with the running statistics it has.
        solved: That problem, where it is not the plain one, Q(θ) = L'(θ) − ⟨∇L0(θ0), θ⟩: at a minimum L', perhaps less
            a gradient that is kept.
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
    solved: LocalProblem | None = None
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
        rules: Groups of :class:`~unweave._core.tuning.Tuning` that decide about it; its receipts have their numbers.
        gone: Options that it once had, each with where they went.
        changes: Whether it also answers data that is added or corrected: all it uses of what was asked are the two
            objectives and the new graph.
        bounded: Whether it works in bounded memory: it then evaluates objectives and curvature
            (:func:`unweave.curvature.products.products`) and never calls the model on the graph itself.
    """

    name: ClassVar[str]
    local: ClassVar[bool] = True
    bounded: ClassVar[bool] = False
    changes: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ()
    gone: ClassVar[Mapping[str, str]] = {}

    @property
    def spread(self) -> bool:
        """Whether several ranks can share its work: what works in bounded memory can be."""
        return self.bounded

    def check(self) -> None:  # noqa: B027 (most need nothing)
        """Refuse, before any work, where the method was not told what it needs: how to train, above all."""

    @abstractmethod
    def forget(self, problem: Problem) -> Outcome:
        """Return parameters that no longer depend on what was removed, as nearly as the method can."""

    @property
    def passes(self) -> float | None:
        """Passes over the graph that it takes as a rule, beside posing the problem, as far as its options tell."""
        return None

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

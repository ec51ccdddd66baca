"""The problem that a request makes of a trained model: all that a method may use of it."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave.curvature.local import LocalProblem
from unweave.errors import DivergenceError, MethodError
from unweave.graph.edit import mask_of
from unweave.graph.removal import Removal
from unweave.objective.objective import Held, Objective, Point

__all__ = ["ASK", "Problem"]

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
        places: Where the parameters that the model had lie in θ, where it got rows for new nodes.
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
        places: Tensor | None = None,
    ) -> None:
        self.original = original
        self.remaining = remaining
        self.theta = theta
        self.removal = removal
        self.seed = seed
        self.meter = meter
        self.places = places
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
        _ = self.original_value, self.remaining_value, self.remaining_losses, self._remaining
        _ = self.forgotten_gradient if gradients else None
        for name in ("at_original", "at_remaining"):
            self.__dict__.pop(name, None)

    @property
    def flat(self) -> bool:
        """Whether examples are pairs, whose curvature a few eigenpairs do not cover."""
        task = self.remaining.task
        return task is not None and task.flat

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
    def original_losses(self) -> Tensor:
        """The loss of each training node on the old graph, at θ0."""
        return self.at_original.losses.detach()

    @cached_property
    def _original(self) -> Held:
        """Outputs on the old graph at θ0."""
        with torch.no_grad():
            point = self.__dict__.get("at_original") or self.original.at(self.theta)
            return point.held()

    @cached_property
    def remaining_losses(self) -> Tensor:
        """The loss of each training node that remains, on the remaining graph at θ0."""
        return self.at_remaining.losses.detach()

    @cached_property
    def _remaining(self) -> Held:
        """Outputs on the remaining graph at θ0."""
        return self.at_remaining.held()

    def local(self, kept: float = 1.0, damping: float = 0.0) -> LocalProblem:
        """Q(θ) + ½δ‖θ − θ0‖² with Q(θ) = L'(θ) − kept·⟨∇L0(θ0), θ⟩: what an influence step solves."""
        return LocalProblem(
            self.theta, self.remaining_losses, self.remaining.mu, kept * self.original_gradient, damping
        )

    @property
    def share(self) -> float:
        """n'/n, the share of the training nodes that remain, or that of their weights."""
        return self.remaining.mass / self.original.mass

    @cached_property
    def request_change(self) -> float:
        """Mean over the remaining nodes of KL(outputs on the old graph ‖ outputs on the remaining one), at θ0."""
        return _divergence(self._original, self._remaining, self._kept)

    @cached_property
    def feigned(self) -> float:
        """The mean KL that rounding of the outputs may feign."""
        outputs = self._remaining.outputs
        with ranks.together("the largest output"):
            own = torch.maximum(outputs.max(), -outputs.min()) if outputs.numel() else outputs.new_zeros(())
        largest = float(ranks.rows(own.reshape(1), [1] * ranks.size()).max())
        return 100 * (torch.finfo(outputs.dtype).eps * largest) ** 2

    @cached_property
    def _kept(self) -> Tensor:
        """Which nodes remain."""
        kept = torch.ones(self._remaining.size, dtype=torch.bool, device=self.theta.device)
        kept[self.removal.nodes] = False
        return kept if self.remaining.seen is None else kept & self.remaining.seen

    def function_change(self, point: Point) -> float | None:
        """Mean over the remaining nodes of KL(outputs at θ0 ‖ outputs at the point); for class probabilities only."""
        if not self.remaining.loss.classes:
            return None
        return _divergence(self._remaining, point.held(), self._kept)

    def training_change(self, point: Point) -> float | None:
        """The same mean over the training nodes alone, of the objective that the point belongs to.

        It is what the curvature of that objective predicts: for class probabilities the Gauss-Newton matrix of the
        training nodes is their Fisher information. Nodes that were not trained on may move much farther, the more so
        the better the training nodes are fitted.
        """
        if not point.objective.loss.classes:
            return None
        before = self._original if point.objective is self.original else self._remaining
        return _divergence(before, point.held(), mask_of(point.objective.nodes, before.size))


def _divergence(before: Held, after: Held, wanted: Tensor) -> float:
    """Mean KL(before ‖ after) of the nodes in a mask, whose outputs are logits; a rank looks at those that it has."""
    total = 0.0
    with ranks.together("a divergence"):
        if not torch.equal(before.nodes, after.nodes):  # what is left is cut in the same places unless one went empty
            raise MethodError(
                "the request takes every training node that one of the ranks has; start fewer (--nproc-per-node)"
            )
        mine = wanted[before.nodes].nonzero().flatten()
        for some in torch.split(mine, ROWS):
            p, q = (F.log_softmax(held.outputs.detach()[some].double(), dim=-1) for held in (before, after))
            total += float((p.exp() * (p - q)).sum())
    summed = ranks.total(torch.tensor(total, dtype=torch.float64, device=wanted.device))
    return float(summed) / (int(wanted.sum()) * before.outputs[:1, ..., 0].numel())

"""Models that are written out, as functions of a flat vector: outputs, losses and gradient without autograd.

On a GPU a look is recorded once for a graph and for those that are left of it, while it lives: a request that takes
edges leaves a matrix with fewer entries, so the next look is a replay with another matrix.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Size, Tensor

from unweave._core.cuda_graphs import Function, Recording, record
from unweave._core.sparse import Matrix
from unweave.errors import ModelError
from unweave.models.sweep import Sweep, Way
from unweave.objective.losses import Loss, with_slope
from unweave.objective.parameters import split

__all__ = ["Sweeper", "Swept"]


SPARE = 1.25
"""Times the entries that are needed up to which a recording with more of them serves."""


class Swept:
    """A model evaluated at one θ without autograd, seen from its training nodes and as a function of a flat vector.

    Attributes:
        all: Model outputs of all nodes.
        outputs: Those of the training nodes.
    """

    def __init__(self, sweep: Sweep, shapes: Mapping[str, Size], nodes: Tensor) -> None:
        self._sweep, self._shapes, self._nodes = sweep, shapes, nodes
        self.all = sweep.outputs
        self.outputs = self.all.index_select(0, nodes)

    def push(self, v: Tensor) -> Tensor:
        """J v, with J the Jacobian of the training nodes' outputs."""
        return self._sweep.push(split(self._shapes, v)).index_select(0, self._nodes)

    def pull(self, u: Tensor) -> Tensor:
        """Jᵀ u."""
        everywhere = torch.zeros_like(self.all).index_copy_(0, self._nodes, u)
        found = self._sweep.pull(everywhere)
        return torch.cat([found[name].reshape(-1) for name in self._shapes])

    def push_all(self, v: Tensor) -> Tensor:
        """J v of several v, ``[many, θ]``: ``[nodes, many, outputs]``."""
        pieces = torch.split(v, [prod(shape) for shape in self._shapes.values()], dim=1)
        named = {
            name: piece.reshape(-1, *shape) for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        return self._sweep.push_all(named).index_select(0, self._nodes)

    def pull_all(self, u: Tensor) -> Tensor:
        """Jᵀ u of several u, ``[nodes, many, outputs]``: ``[many, θ]``."""
        everywhere = u.new_zeros(self.all.size(0), *u.shape[1:]).index_copy_(0, self._nodes, u)
        found = self._sweep.pull_all(everywhere)
        return torch.cat([found[name].flatten(1) for name in self._shapes], dim=1)


@dataclass(frozen=True)
class Sweeper:
    """A written-out model on a graph, with the training nodes and their loss.

    Attributes:
        way: How the model is evaluated.
        shapes: Of its parameters, by name.
        nodes: The training nodes.
        targets: Their labels.
        loss: Per-node loss.
    """

    way: Way
    shapes: Mapping[str, Size]
    nodes: Tensor
    targets: Tensor
    loss: Loss

    def at(self, theta: Tensor) -> Swept:
        """Evaluate the model at θ."""
        with torch.no_grad():
            return Swept(self.way(split(self.shapes, theta.detach())), self.shapes, self.nodes)

    def look(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Outputs of all nodes, losses of the training nodes and the gradient of their sum."""
        with torch.no_grad():
            swept = self.at(theta)
            losses, slope = with_slope(self.loss, swept.outputs, self.targets)
            if losses.shape != self.nodes.shape:
                raise ModelError("the loss must give one number for each node")
            return swept.all, losses, swept.pull(slope)

    def record(self, theta: Tensor) -> Recording:
        """A look recorded for this graph and for what is left of it; where that cannot be, as it is."""
        staged = Sweeper(self.way.staged(), self.shapes, self.nodes, self.targets, self.loss)
        found = record(staged.look, theta)
        if found.whether != "yes":
            return found
        self.way.matrix.pattern.recording = recording = _Recording(staged, found.function, self.way.matrix)
        return found._replace(function=recording.on(self.way.matrix))

    def borrowed(self) -> Function | None:
        """A look that was recorded for this graph or one that it is left of, with everything else the same."""
        for known in self.way.matrix.pattern.recorded():
            if isinstance(known, _Recording) and known.serves(self):
                return known.on(self.way.matrix)
        return None


@dataclass
class _Recording:
    """A look that was recorded on a matrix of its own, which becomes that of whichever graph is asked for."""

    staged: Sweeper
    replay: Function
    loaded: Matrix

    def serves(self, other: Sweeper) -> bool:
        mine = self.staged
        there, needed = (sweeper.way.matrix.pattern.col.numel() for sweeper in (mine, other))
        return (
            needed <= there <= SPARE * needed
            and mine.way.like(other.way)
            and mine.shapes == other.shapes
            and mine.nodes is other.nodes
            and mine.targets is other.targets
            and mine.loss == other.loss
        )

    def on(self, matrix: Matrix) -> Function:
        """The look on one of the graphs."""

        def look(theta: Tensor) -> tuple[Tensor, ...]:
            if self.loaded is not matrix:
                self.staged.way.matrix.load(matrix)
                self.loaded = matrix
            return self.replay(theta)

        return look

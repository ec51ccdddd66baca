"""Dimensions of an embedding that a graph has a use for, and that weight decay had set to zero.

Where pairs are scored by dot products of the rows of Z = Φ W, the loss is a function of M = W Wᵀ, and L2 on W a nuclear
norm on M: it leaves W with a few dimensions. Along a dimension q that is not in use, W q = 0, every gradient vanishes,
so none tells that one more would help. The curvature does. For W + v qᵀ it is vᵀ A v with A = 2 ∇_M ℓ + μ, whatever q
is. An eigenvector of A with a negative eigenvalue is a dimension to be born.

No product is needed to see A. Training leaves traces T of the dimensions that were the last to vanish, which are those
nearest to being of use, and the gradient along them is A T: the one that every request computes anyway has it. Where
they are so small that rounding is all they tell, which makes A uneven, one gradient at W + ε Σⱼ vⱼ qⱼᵀ has ε A vⱼ for
all of their directions at once, and moves the outputs by ε² alone. That A is the same for every q, and symmetric, is a
property of dot products and not of any model. So it is looked for, and else nothing is born.

Along what is born the objective is −½ b t² + c t⁴, where the bend b is known and one value tells c. It ends where its
curvature is 2 b: far below all that was prepared, when the dimension was not in use, so that a restart is told of it,
of the largest b for all of them, as small ones are not known so well.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.local import LocalProblem
from unweave.curvature.solvers import LowRank
from unweave.objective.objective import Objective

__all__ = ["PASSES", "Born", "born"]

PASSES = 4
"""Passes that it takes at most, where something may be born: a gradient and two values. Elsewhere it takes none."""


@dataclass(frozen=True)
class Born:
    """Where dimensions are born.

    Attributes:
        theta: The parameters with them.
        bends: The curvature along each where it is zero, below 0.
        along: The directions in θ that they are born along, one a column, of length 1.
    """

    theta: Tensor
    bends: tuple[float, ...]
    along: Tensor

    def solve(self, curvature: LowRank, g: Tensor) -> Tensor:
        """The inverse of a curvature that knows nothing of them, and of theirs, times a vector."""
        own = 1 / (-2 * min(self.bends)) - 1 / curvature.rest
        return curvature.solve(g) + self.along @ (own * (self.along.t() @ g))


def born(objective: Objective, local: LocalProblem, gradient: Tensor, axes: Mapping[str, int]) -> Born | None:
    """The dimensions that an objective has a use for; ``None`` where there are none, or no dot products.

    Args:
        objective: L, on the graph that remains.
        local: How it changes from a point, where it is to be nearly stationary for what was there before.
        gradient: ∇L there.
        axes: Which axis of a parameter counts the dimensions, by name of the parameter.
    """
    if not axes:
        return None
    theta, place = local.start, _Dimensions(objective, axes)
    held = place.of(theta)
    sizes, turned = torch.linalg.eigh(held @ held.t())
    empty, largest = sizes <= TUNING.minimum.empty**2 * sizes[-1], float(sizes[-1])
    if not 1 < int(empty.sum()) < held.size(0) or held.size(1) <= int((~empty).sum()):
        return None
    spare = turned[:, empty]
    traces = _traces(held, spare, turned[:, ~empty])
    directions, bends = _told(traces, spare, place.of(gradient))
    if not bends.numel() or float(torch.linalg.eigvalsh((bends + bends.t()) / 2)[0]) > 0:
        return None
    if not _even(bends):
        directions = torch.linalg.qr(traces.vectors).Q
        count = directions.size(1)
        length = (TUNING.minimum.probe * largest / count) ** 0.5
        probe = place.back(length * spare[:, :count] @ directions.t(), theta)
        probed = (objective.look(theta + probe).gradient() - gradient) / length
        inside = place.of(probed).t() @ spare[:, :count]
        bends, aside = directions.t() @ inside, float(probed.double().norm()) ** 2 - float(inside.square().sum())
        if aside > TUNING.minimum.factored**2 * float(inside.square().sum()) or not _even(bends):
            return None
    values, mixing = torch.linalg.eigh((bends + bends.t()) / 2)
    fall = -values[values < -TUNING.minimum.born * float(values.abs().max())]
    if not fall.numel():
        return None
    each = zip(spare.t(), (directions @ mixing[:, : fall.numel()]).t(), strict=False)
    along = torch.stack([place.back(torch.outer(*pair), theta) for pair in each], dim=1)
    step = along @ fall.sqrt().to(along)
    there = _sized(objective, local, step, float(fall.square().sum()), largest / float(fall.sum()))
    return None if there is None else Born(there, tuple((-fall).tolist()), along)


@dataclass(frozen=True)
class _Traces:
    """What is left of the dimensions that are not in use, the largest first.

    Attributes:
        vectors: Beside what is in use, one a column.
        turned: The dimensions that they are of, among those to spare.
        lengths: How long they are.
    """

    vectors: Tensor
    turned: Tensor
    lengths: Tensor


def _traces(held: Tensor, spare: Tensor, used: Tensor) -> _Traces:
    span = torch.linalg.qr(held.t() @ used).Q
    traces = held.t() @ spare
    traces = traces - span @ (span.t() @ traces)
    squares, turned = torch.linalg.eigh(traces.t() @ traces)
    order = squares.argsort(descending=True)[: held.size(1) - used.size(1)]
    return _Traces(traces @ turned[:, order], turned[:, order], squares[order].clamp(min=0).sqrt())


def _told(traces: _Traces, spare: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Directions of the clear ones, and A along them, as the gradient has it: A T."""
    clear = traces.lengths > TUNING.minimum.trace * traces.lengths[0]
    directions = traces.vectors[:, clear] / traces.lengths[clear]
    return directions, directions.t() @ (gradient.t() @ spare @ traces.turned[:, clear]) / traces.lengths[clear]


def _even(matrix: Tensor) -> bool:
    """Whether a matrix is symmetric, as A is where pairs are scored by dot products."""
    return float((matrix - matrix.t()).norm()) <= TUNING.minimum.factored * float(matrix.norm())


def _sized(objective: Objective, local: LocalProblem, step: Tensor, bend: float, largest: float) -> Tensor | None:
    """Go along a step as far as it pays: L falls by ½ bend t² at first, and rises with t⁴, which a trial tells."""
    t = (TUNING.minimum.tried * largest) ** 0.5
    for _ in range(2):
        with torch.no_grad():
            rise = local.change(objective.at(local.start + t * step)) + bend * t * t / 2
        if rise > 0:
            size: float = (bend * t**4 / (4 * rise)) ** 0.5
            return local.start + size * step
        t *= 2
    return None


class _Dimensions:
    """The entries of θ by the dimension that they belong to, ``[dimensions, entries]``, in double.

    Args:
        objective: With the model.
        axes: Which axis of a parameter counts the dimensions, by name.
    """

    def __init__(self, objective: Objective, axes: Mapping[str, int]) -> None:
        self._objective, self._axes = objective, axes

    def of(self, theta: Tensor) -> Tensor:
        pieces = self._objective.split(theta)
        rows = [pieces[name].movedim(axis, 0) for name, axis in self._axes.items()]
        return torch.cat([row.reshape(row.size(0), -1) for row in rows], dim=1).double()

    def back(self, rows: Tensor, like: Tensor) -> Tensor:
        """The vector that has these entries, and zero elsewhere."""
        theta, at = torch.zeros_like(like), 0
        for name, axis in self._axes.items():
            piece = self._objective.split(theta)[name].movedim(axis, 0)
            count = piece.numel() // piece.size(0)
            piece.copy_(rows[:, at : at + count].reshape(piece.shape))
            at += count
        return theta

"""Dimensions of an embedding that a graph has a use for, and that weight decay had set to zero.

Where pairs are scored by dot products of the rows of Z = Φ W, the loss is a function of M = W Wᵀ, and L2 on W a nuclear
norm on M: it leaves W with a few dimensions. Along a dimension q that is not in use, W q = 0, every gradient vanishes,
so none tells that one more would help. The curvature does. For W + v qᵀ it is vᵀ A v with A = 2 ∇_M ℓ + μ, whatever q
is: one gradient at W + ε Σⱼ vⱼ qⱼᵀ has ε A vⱼ for all dimensions to spare at once, and moves the outputs by ε² alone.
Those that were the last to vanish in training, and are still there as traces, are the vⱼ: these are nearest to being of
use. An eigenvector of A with a negative eigenvalue is a dimension to be born. The gradient where training ended has A
times the traces, so that it takes a look only where their own curvature is not above zero.

That A is the same for every q is a property of dot products and not of any model. So it is looked for: A is symmetric,
and what else the gradient has is small, or nothing is born.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.local import LocalProblem
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
    """

    theta: Tensor
    bends: tuple[float, ...]


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
    directions = _lasting(held, spare, turned[:, ~empty], place.of(gradient))
    if directions is None:
        return None
    count = directions.size(1)
    spare, length = spare[:, :count], (TUNING.minimum.probe * largest / count) ** 0.5
    probed = objective.look(theta + place.back(length * spare @ directions.t(), theta)).gradient() - gradient
    inside = place.of(probed).t() @ spare / length
    bends, all_of_it = directions.t() @ inside, float(inside.square().sum())
    aside = float(probed.double().norm() / length) ** 2 - all_of_it
    uneven = float((bends - bends.t()).square().sum())
    values, mixing = torch.linalg.eigh((bends + bends.t()) / 2)
    fall = values[values < -TUNING.minimum.born * float(values.abs().max())]
    if max(aside, uneven) > TUNING.minimum.factored**2 * all_of_it or not fall.numel():
        return None
    sized = directions @ mixing[:, : fall.numel()] * (-fall).sqrt()
    step = place.back(spare[:, : fall.numel()] @ sized.t(), theta)
    return _sized(objective, local, step, float(fall.square().sum()), largest / float(-fall.sum()), fall.tolist())


def _lasting(held: Tensor, spare: Tensor, used: Tensor, gradient: Tensor) -> Tensor | None:
    """What was last to vanish of the dimensions to spare, one direction for each; ``None`` where it will not be born.

    Args:
        held: W, ``[dimensions, entries]``.
        spare: The dimensions that are not in use.
        used: Those that are.
        gradient: Of W.
    """
    span = torch.linalg.qr(held.t() @ used).Q
    traces = held.t() @ spare
    traces = traces - span @ (span.t() @ traces)
    squares, right = torch.linalg.eigh(traces.t() @ traces)
    order = squares.argsort(descending=True)[: held.size(1) - used.size(1)]
    clear = order[squares[order] > TUNING.minimum.trace**2 * float(squares[-1])]
    clearly = traces @ right[:, clear] / squares[clear].sqrt()
    bends = clearly.t() @ (gradient.t() @ spare @ right[:, clear]) / squares[clear].sqrt()
    if not clear.numel() or float(torch.linalg.eigvalsh((bends + bends.t()) / 2)[0]) > 0:
        return None
    lasting: Tensor = torch.linalg.qr(traces @ right[:, order]).Q
    return lasting


def _sized(
    objective: Objective, local: LocalProblem, step: Tensor, bend: float, largest: float, bends: list[float]
) -> Born | None:
    """Go along a step as far as it pays: L falls by ½ bend t² at first, and rises with t⁴, which a trial tells."""
    t = (TUNING.minimum.tried * largest) ** 0.5
    for _ in range(2):
        with torch.no_grad():
            rise = local.change(objective.at(local.start + t * step)) + bend * t * t / 2
        if rise > 0:
            return Born(local.start + (bend * t**4 / (4 * rise)) ** 0.5 * step, tuple(bends))
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

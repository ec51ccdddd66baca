"""How much each training node holds its own output where it is: what a linear step does not know of a removal.

A removal that takes away what a training node u was predicted by changes its output from z to z', and its slope
∂ℓ/∂z from r to r(z'). One linear step counts r(z') in full. The model that is trained without the item does not: as
soon as it moves, u's loss falls, and more so the more freely u moves its own output. With J the Jacobian of u's
output and H₋ the curvature without u, the new minimum has

    z'' = z' + J' H₋⁻¹ (Jᵀ r − J'ᵀ r(z''))

so r(z'') is what pulls, and what pulls is felt through H₋, not H. A removal may take all that u was seen by, and then
J' has little to do with J: both count. Here nodes are taken each by itself; how they answer to each other is counted in
:mod:`unweave.inspection.closer`. With W the curvature of u's loss,
T = (W⁻¹ − J H⁻¹ Jᵀ)⁻¹ and H₋⁻¹ = H⁻¹ + H⁻¹ Jᵀ T J H⁻¹, all follows from T and from products of J and J' with H⁻¹.

J H⁻¹ Jᵀ is the covariance of J x where x = H⁻¹ g and g has the covariance H: a few such x serve all nodes. With
g = Jᵀ W^½ ε + M^½ ε' they also give 1 − S, the covariance of ε − W^½ J x, which is always positive, and
T = W^½ (1 − S)⁻¹ W^½. J' x is the difference of two outputs, of the few nodes that are moved far.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.curvature.products import GaussNewton
from unweave.inspection.bends import bends
from unweave.inspection.solves import Solves
from unweave.objective.losses import Loss, with_slope
from unweave.objective.objective import Objective

__all__ = ["Leverage", "eye", "find_leverage", "settled"]

SMALL = 1e-9
"""Added to 1 − S where it is known exactly: a node that alone decides its output has none."""

ROWS = 1 << 15
"""Rows whose blocks are worked on side by side."""

EXACT, TURNS, HALVINGS = 1e-3, 30, 12
"""Of the equation for z'': the share of its way to which it is solved, Newton steps, and how often one is halved."""


@dataclass(frozen=True)
class Leverage:
    """How training nodes move their outputs.

    Attributes:
        directions: Some x, ``[samples, parameters]``, whose squares add up to about H⁻¹.
        pushed: J x of every training node, ``[nodes, samples, outputs]``, in double precision.
        inner: T, ``[nodes, outputs, outputs]``.
        exact: Whether the squares add up to H⁻¹ itself, and x are no samples.
    """

    directions: Tensor
    pushed: Tensor
    inner: Tensor
    exact: bool

    @cached_property
    def spread(self) -> Tensor:
        """J H⁻¹ Jᵀ of every training node."""
        return self.pushed.mT @ self.pushed


def find_leverage(
    objective: Objective,
    theta: Tensor,
    prepared: Prepared,
    damping: float,
    samples: int,
    at_once: int,
    *,
    exact: bool,
) -> Leverage:
    """How every training node moves its own output.

    From random samples, or exactly where the model has no more parameters than these would take products. The fewer
    samples, the smaller a share of its output a node decides by itself: what they leave unsure of S is S √(2 / samples)
    of what the node pulls with.

    Args:
        objective: L0.
        theta: θ0.
        prepared: Of this model.
        damping: What is added to the curvature.
        samples: How many, at most.
        at_once: Samples to work on side by side.
        exact: Whether it may be exact, which takes an x for each parameter.
    """
    solves, tuning = Solves(objective, theta, prepared, damping), TUNING.inspection
    root = solves.root
    generator, count = torch.Generator().manual_seed(0), min(tuning.fewest, samples)
    found: list[tuple[Tensor, Tensor]] = []
    rest, done = root.new_zeros(root.shape, dtype=torch.float64), 0
    share = rest.new_zeros(rest.size(0))
    while done < count:
        many = min(at_once, count - done)
        noise, x, own = _samples(solves, theta, many, generator)
        found.append((x, own.double()))
        felt = (own @ root).double()
        left = noise.double() - felt
        rest += left.mT @ left
        share, done = share + felt.square().sum(dim=(1, 2)), done + many
        if done == tuning.fewest:
            enough = 2 * float((share / done).square().mean()) / tuning.precision**2
            count = min(samples, max(done, ceil(enough)))
            if exact and theta.numel() <= count * tuning.small:
                return _exact(solves.operator, theta, root.double(), damping)
    directions, pushed = (torch.cat(each, dim) / count**0.5 for dim, each in enumerate(zip(*found, strict=True)))
    root, width = root.double(), root.size(-1)
    rest /= count
    mean = rest.diagonal(dim1=1, dim2=2).mean(dim=1)
    rest = (count * rest + width * mean[:, None, None] * eye(root)) / (count + width)
    rest *= (count + width + 1) / count  # the inverse of a matrix from few samples is too large by as much
    return Leverage(directions, pushed, root @ torch.linalg.solve(rest, root.mT), exact=False)


def _samples(solves: Solves, theta: Tensor, many: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """ε, x and J x of some samples; x is ``[many, θ]``, others by node first."""
    root = solves.root
    noise, more = root.new_empty(root.size(0), many, root.size(1)), theta.new_empty(many, theta.numel())
    for number in range(many):  # one after the other, so that it does not matter how many are drawn at once
        for at in (noise[:, number], more[number]):
            at.copy_(torch.randn(at.shape, generator=generator, dtype=at.dtype))
    solves.operator.objective.meter.passes += many
    return noise, *solves.solve(solves.pull(noise) + solves.ridge.sqrt() * more)


def _exact(operator: GaussNewton, theta: Tensor, root: Tensor, damping: float) -> Leverage:
    directions = _columns(operator, theta, damping)
    pushed = torch.stack([operator.push(x).reshape(root.shape[:2]) for x in directions], dim=1).double()
    rest = eye(root) * (1 + SMALL) - root.mT @ (pushed.mT @ pushed) @ root
    return Leverage(directions, pushed, root @ torch.linalg.solve(rest, root.mT), exact=True)


def _columns(operator: GaussNewton, theta: Tensor, damping: float) -> Tensor:
    """Vectors whose squares add up to H⁻¹, where H is not zero."""
    unit = torch.eye(theta.numel(), dtype=theta.dtype, device=theta.device)
    whole = torch.stack([operator(column) for column in unit]).double()
    values, vectors = torch.linalg.eigh((whole + whole.mT) / 2 + damping * unit)
    kept = values > torch.finfo(theta.dtype).eps * theta.numel() * values[-1]
    found: Tensor = (vectors[:, kept] / values[kept].sqrt()).to(theta.dtype).T
    return found


def eye(like: Tensor) -> Tensor:
    """The identity for some blocks."""
    return torch.eye(like.size(-1), dtype=torch.float64, device=like.device)


def settled(loss: Loss, after: Tensor, targets: Tensor, pull: Tensor, blocks: Tensor) -> Tensor:
    """r(z'') of some rows, with z'' = z' + a − B r(z''): the slope that is left once the model has moved.

    Args:
        loss: ℓ.
        after: z', ``[rows, …]``.
        targets: Labels.
        pull: a, flat.
        blocks: B.
    """
    done = [pull[:0]]
    for first in range(0, pull.size(0), ROWS):
        part = (tensor[first : first + ROWS] for tensor in (after, targets, pull, blocks))
        done.append(_settled(loss, *part))
    return torch.cat(done)


def _settled(loss: Loss, after: Tensor, targets: Tensor, pull: Tensor, blocks: Tensor) -> Tensor:
    shape, flat = after.shape[1:], after.reshape(pull.shape)

    def miss(rows: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """How far z is from solving the equation, and r(z)."""
        found = with_slope(loss, z.reshape(-1, *shape), targets[rows])[1].reshape(z.shape)
        return z - flat[rows] - pull[rows] + (blocks[rows] @ found[:, :, None])[:, :, 0], found

    rows = torch.arange(flat.size(0), device=flat.device)
    z = flat.clone()
    apart, result = miss(rows, z)
    way = apart.norm(dim=-1)
    for _ in range(TURNS):
        left = apart.norm(dim=-1) > EXACT * way[rows]
        rows, apart = rows[left], apart[left]
        if not rows.numel():
            break
        here = z[rows]
        bent = blocks[rows] @ bends(loss, here.reshape(-1, *shape), targets[rows])
        step = torch.linalg.solve(eye(bent) + bent, apart)
        size, length = apart.norm(dim=-1), torch.ones_like(apart[:, :1])
        for _ in range(HALVINGS):
            there = here - length * step
            apart, found = miss(rows, there)
            worse = (apart.norm(dim=-1) > size)[:, None]
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        z[rows], result[rows] = there, found
    return result

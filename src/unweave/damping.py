"""How much an influence step must be damped: what spectrum and training allow, and what a rehearsal then asks for."""

import torch
from torch import Tensor

from unweave.blocks import products
from unweave.drawing import draw
from unweave.errors import RequestError
from unweave.objective import Objective
from unweave.solvers import LowRank, Operator

__all__ = ["DAMPING_TRIES", "KEPT", "RAISE", "least_damping", "rehearsed_damping"]

DAMPING_SHARE = 0.003
"""Of the fifth largest curvature eigenvalue: the least damping. The largest may be an outlier, a hundred times the
second (PubMed)."""

EARLY_STOP = 4.0
"""Times the ridge at which training stopped, see :func:`least_damping`."""

KEPT = 0.25
"""Share of the promised change of the objective that a step must keep."""

RAISE = 10**0.5
DAMPING_TRIES = 14

REHEARSAL = "edges:0.05"
PRODUCTS = 6


def least_damping(values: Tensor, theta: Tensor, slope: Tensor) -> float:
    """The least damping that the spectrum and the way training stopped allow.

    Training that was stopped early has not followed the flat directions to their end, and neither will retraining.
    Gradient descent stopped at time t is, roughly, ridge regression with a ridge of 1/t: θ0 would be a minimum of
    L0 + ½ρ‖θ‖² for the ρ that makes ∇L0(θ0) + ρ θ0 smallest. At a minimum of L0 that ridge is zero.

    Args:
        values: The largest eigenvalues of the curvature, largest first.
        theta: θ0.
        slope: ∇L0(θ0).
    """
    ridge = -float(slope @ theta) / max(float(theta @ theta), 1e-30)
    fifth = float(values[min(4, values.numel() - 1)])
    return max(DAMPING_SHARE * fifth, EARLY_STOP * ridge, 1e-6 * float(values[0]), 1e-12)


def rehearsed_damping(objective: Objective, theta: Tensor, slope: Tensor, curvature: LowRank) -> float:
    """The least damping with which an influence step for a request drawn at random does what it promised.

    Dampings differ from model to model but hardly from request to request, so one rehearsal serves them all. Where
    no request can be drawn the least that spectrum and training allow is taken.

    Args:
        objective: L0.
        theta: θ0.
        slope: ∇L0(θ0).
        curvature: The top of its curvature there.
    """
    damping = least_damping(curvature.values, theta, slope)
    try:
        remaining = objective.without(draw(REHEARSAL, objective.data))
    except RequestError:  # no edges, or none of them drawn
        return damping
    point = remaining.at(theta)
    before, v = point.value, slope - point.gradient()
    if not bool(v.any()):
        return damping
    basis, images = _subspace(products("gauss-newton", point), v, curvature, damping)
    del point
    for _ in range(DAMPING_TRIES):
        inside = torch.linalg.solve(
            (basis.T @ images + damping * torch.eye(basis.size(1), dtype=basis.dtype, device=basis.device)).double(),
            (basis.T @ v).double(),
        )
        x = basis @ inside.to(basis)
        promised = -(float(v @ x) + damping * float(x @ x)) / 2
        after = remaining.look(theta + x)
        kept = after.value - before - float(slope @ x) <= KEPT * promised
        if kept and float((after.gradient() - slope).norm()) <= float(v.norm()):
            break
        damping *= RAISE
    return damping


def _subspace(operator: Operator, v: Tensor, curvature: LowRank, damping: float) -> tuple[Tensor, Tensor]:
    """Orthonormal directions in which (H + damping·I) x = v is nearly solved, and H times each.

    They are those of conjugate gradients preconditioned with curvature already known; a handful is enough.
    """
    basis, images = v.new_zeros(v.numel(), 0), v.new_zeros(v.numel(), 0)
    residual = v
    for _ in range(min(PRODUCTS, v.numel())):
        direction = curvature.solve(residual, damping)
        for _ in range(2):
            direction = direction - basis @ (basis.T @ direction)
        size = float(direction.norm())
        if size <= 1e-6 * float(v.norm()) / float(curvature.values[0]):
            break
        direction = direction / size
        basis = torch.cat([basis, direction[:, None]], dim=1)
        images = torch.cat([images, operator(direction)[:, None]], dim=1)
        shifted = basis.T @ images + damping * torch.eye(basis.size(1), dtype=v.dtype, device=v.device)
        inside = torch.linalg.solve(shifted.double(), (basis.T @ v).double()).to(v)
        residual = v - images @ inside - damping * (basis @ inside)
    return basis, images

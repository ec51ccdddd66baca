"""How much an influence step must be damped: what spectrum and training allow, and what a rehearsal then asks for."""

from dataclasses import dataclass, replace

from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.local import LocalProblem
from unweave.curvature.solvers import LowRank, minimise
from unweave.errors import RequestError
from unweave.graph.draw import draw
from unweave.objective.objective import Objective, Point

__all__ = ["Damping", "least_damping", "rehearsed_damping"]


@dataclass(frozen=True)
class Damping:
    """What a rehearsal found.

    Attributes:
        value: δ.
        raised: How many times the least that spectrum and training allow.
        left: Share of the gradient of the local problem that was left with it; 0 where nothing could be rehearsed.
    """

    value: float
    raised: float = 1.0
    left: float = 0.0


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
    typical = float(values[min(TUNING.damping.place, values.numel()) - 1])
    return max(TUNING.damping.share * typical, TUNING.damping.early_stop * ridge, 1e-6 * float(values[0]), 1e-12)


def rehearsed_damping(objective: Objective, theta: Tensor, slope: Tensor, curvature: LowRank) -> Damping:
    """The least damping with which a request drawn at random is carried out well, as far as its own gradient tells.

    Dampings differ from model to model but hardly from request to request, so one rehearsal serves them all. Where no
    damping does well the one that does best is taken, and where no request can be drawn the least that is allowed.

    Args:
        objective: L0.
        theta: θ0.
        slope: ∇L0(θ0).
        curvature: The top of its curvature there.
    """
    least = least_damping(curvature.values, theta, slope)
    try:
        kind = objective.kinds[0]
        there = objective.stored_edges if kind == "edges" else objective.nodes.numel()
        share = min(TUNING.damping.rehearsed_share, TUNING.damping.rehearsed_edges / max(there, 1))
        remaining = objective.without(draw(f"{kind}:{share}", objective.data))
    except RequestError:  # no edges, or none of them drawn
        return Damping(least)
    point = remaining.look(theta)
    usual = LocalProblem(theta, point.losses.detach(), remaining.mu, slope)
    if not bool(usual.gradient(point).any()):
        return Damping(least)
    found = []
    for raised in (TUNING.damping.raised_by**power for power in range(TUNING.damping.rehearsals)):
        left = _left(remaining, point, replace(usual, damping=least * raised), curvature)
        found.append(Damping(least * raised, raised, left))
        if left <= TUNING.damping.left:
            break
    return min(found, key=lambda damping: damping.left)


def _left(remaining: Objective, start: Point, local: LocalProblem, curvature: LowRank) -> float:
    """What share of the gradient of a local problem is left after a few steps that damp it."""
    height, pull = start.value - float(local.slope @ local.start), local.gradient(start)

    def evaluate(theta: Tensor) -> tuple[float, Tensor]:
        change, gradient = local.at(remaining.look(theta))
        return height + change, gradient

    end, _ = minimise(
        evaluate,
        local.start,
        height,
        pull,
        lambda g: curvature.solve(g, local.damping),
        evaluations=TUNING.step.damped_steps,
        tolerance=0.0,
    )
    return float(local.gradient(remaining.look(end)).norm()) / float(pull.norm())

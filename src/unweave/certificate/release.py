"""Release a model so that nobody can tell, beyond (ε, δ), whether it forgot or was retrained.

A model that :func:`unweave.certificate.bound.examine` found linear is released in three steps:

1. Gaussian objective perturbation (Guo et al., ICML'20; Chien et al., ICLR'23): minimise L'(θ) + ⟨b, θ⟩ with fresh
   b ~ N(0, σ²I) by Newton's method in double precision, until the residual ‖∇L'(θ̂) + b‖ is measured to be within τ.
2. Then ‖θ̂ − θ*‖ ≤ τ/μ for the exact minimiser θ* with the same b, whatever the search started from; two such answers
   are within 2τ/μ of each other.
3. Publish θ̂ + z with fresh z ~ N(0, (σ/μ)²I).

With σ = 2τ/s, where s is the shift in standard deviations that is (ε, δ) for Gaussian noise
(:mod:`unweave.certificate.gaussian`), step 3 is a Gaussian mechanism for every b and every start, and so is the
average over b.
Step 3 is what makes this a theorem (approximate minima perturbation; Iyengar et al., S&P'19): b alone hides a residual
that does not depend on b, but that of a solver does, and one that rounded to a grid within τ would give itself away.

τ, μ and both noises are functions of the remaining graph, (ε, δ) and the precision of numbers, so that retraining has
the same; nothing of an earlier release is needed for the next, and no secret is kept.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from unweave._core import ranks
from unweave._core.tuning import TUNING
from unweave.certificate.bound import Linear, bound_of, bounded, examine
from unweave.certificate.gaussian import check_promise, ratio_of
from unweave.curvature.products import GaussNewton, products
from unweave.curvature.solvers import Local, NewtonReport, Operator, newton
from unweave.errors import ModelError, SolverError
from unweave.objective.objective import Objective, Point
from unweave.objective.parameters import flatten
from unweave.objective.parts.blocks import BlockPoint

__all__ = ["Release", "certifiable", "release"]

NOT_COVERED = (
    "the model is what is published; receipts, a prepared state, timing and the requests themselves are not covered",
    "numbers are taken as real numbers; what the last bits of floating-point noise tell is not covered",
)


@dataclass(frozen=True)
class Release:
    """A model to publish.

    Attributes:
        theta: Its parameters, in the precision of the model.
        by: ``"refined"`` or ``"retrained"``.
        report: How the search went.
        certificate: What is certified, as receipts have it.
        figures: Residual, tolerance and noise, as numbers.
    """

    theta: Tensor
    by: str
    report: NewtonReport
    certificate: dict[str, Any]
    figures: dict[str, float]


def release(
    found: Linear,
    start: Tensor | None,
    promise: tuple[float, float],
    *,
    dtype: torch.dtype,
    tolerance: float = TUNING.release.tolerance,
    steps: int = TUNING.release.refine,
    noise_seed: int | None = None,
) -> Release:
    """Minimise, perturb and certify.

    Args:
        found: The model on the remaining graph.
        start: Where to refine from; ``None`` retrains from zero.
        promise: (ε, δ).
        dtype: Precision of the parameters to publish.
        tolerance: τ as a share of ‖∇L'(0)‖. A larger one is sooner reached and needs more noise.
        steps: Newton steps that refining may take.
        noise_seed: Draw the noise from a seed instead of the system's entropy. For experiments: nothing is hidden from
            who knows it, and the certificate says so.

    Raises:
        SolverError: The residual stays above τ; nothing is published then.
    """
    epsilon, delta = check_promise(*promise)
    zero = torch.zeros_like(found.objective.mu)
    normal = _normal(noise_seed, zero)
    _, slope = found.objective.evaluate(zero)
    budget, ratio = tolerance * float(slope.norm()), ratio_of(epsilon, delta)
    in_objective = 2 * budget / ratio
    at_release = in_objective / found.mu
    b = in_objective * normal()
    tries = ([("refined", start, steps)] if start is not None else []) + [("retrained", zero, TUNING.release.retrain)]
    for (
        way,
        origin,
        most,
    ) in tries:  # with one b: another for the second try would favour those that make the first fail
        theta, report = newton(_tilted(found, b), origin.double(), tolerance=TUNING.release.nearly * budget, steps=most)
        by, residual = way, bound_of(found, theta, b)
        if residual.gradient_norm + residual.rounding <= budget:
            break
    else:
        raise SolverError(
            f"the residual stays at {residual.gradient_norm:.3g}, above the tolerance {budget:.3g}; nothing was "
            f"published. Allow a larger tolerance than {tolerance:.2g}, or train with more weight_decay"
        )
    published = (theta + at_release * normal()).to(dtype)
    figures = {
        "epsilon": epsilon,
        "delta": delta,
        "residual": residual.gradient_norm + residual.rounding,
        "tolerance": budget,
        "objective_noise": in_objective,
        "release_noise": at_release,
    }
    told = _tell(found, published, figures, by, noise_seed)
    return Release(published, by, report, told, figures)


def _tilted(found: Linear, b: Tensor) -> Callable[[Tensor], Local]:
    """L' + ⟨b, ·⟩ at a point."""

    def at(theta: Tensor) -> Local:
        with torch.enable_grad():
            point: Point = found.objective.at(theta)
            gradient = point.gradient() + b

        def curvature() -> Operator:
            with torch.enable_grad():
                return (
                    GaussNewton(point, check=False)
                    if not isinstance(point, BlockPoint)
                    else products("gauss-newton", point)
                )

        return point.value + float(b @ theta), gradient, curvature

    return at


def _tell(
    found: Linear, published: Tensor, figures: dict[str, float], by: str, noise_seed: int | None
) -> dict[str, Any]:
    """The certificate in words and figures, with the distance to the minimiser without noise."""
    plain = bounded(found, bound_of(found, published), float(published.norm()))
    if noise_seed is not None:
        seeded = f"nothing is hidden from who knows the noise, which came from seed {noise_seed}"
        return plain | figures | {"statement": f"no removal certified: {seeded}; {plain['statement']}"}
    epsilon, delta = figures["epsilon"], figures["delta"]
    return {
        **plain,
        **figures,
        "kind": "removal",
        "by": by,
        "statement": f"({epsilon:g}, {delta:g})-certified removal, {by}: no test tells this model from one retrained "
        f"on the remaining graph better than that allows. Residual {figures['residual']:.2g} within "
        f"{figures['tolerance']:.2g}, hidden by noise of {figures['release_noise']:.2g} a parameter",
        "checked": [*plain["checked"], "the residual was measured in double precision on the remaining graph"],
        "not_covered": list(NOT_COVERED),
    }


def _normal(seed: int | None, like: Tensor) -> Callable[[], Tensor]:
    """Draws of standard normal vectors, from the system's entropy unless there is a seed."""
    generator = None if seed is None else np.random.default_rng(seed)

    def draw() -> Tensor:
        size = like.numel()
        if generator is not None:
            values: NDArray[np.float64] = generator.standard_normal(size)
        else:
            bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> 11
            values = ndtri((bits + 0.5) / 2.0**53)
        with ranks.together("noise"):
            pass
        return ranks.same(torch.from_numpy(values).to(like))

    return draw


def certifiable(objective: Objective) -> Linear:
    """The model of an objective, found to be one that can be certified.

    Raises:
        ModelError: It cannot, and why.
    """
    found = examine(objective, flatten(objective.model))
    if isinstance(found, str):
        raise ModelError(
            f"this model cannot be certified: {found}. Certificates need outputs linear in the trained parameters "
            "(SGC, one graph convolution, a frozen encoder with a linear head), a convex loss, and weight_decay above "
            "0 on every parameter; use such a model, or leave certify (--certify) out"
        )
    return found

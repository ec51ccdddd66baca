"""Certified removal for models that are linear in their parameters (Guo et al., ICML'20; Chien et al., ICLR'23)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from unweave._core.tuning import TUNING
from unweave.certificate.gaussian import check_promise
from unweave.certificate.release import certifiable, release
from unweave.errors import MethodError
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.training.recipe import Recipe

__all__ = ["Certified"]


@register
@dataclass(frozen=True)
class Certified(Method):
    """Minimise the perturbed objective on the remaining graph until the residual is inside the noise; publish that.

    It starts from the trained parameters and retrains from zero only where that does not get there. See
    :mod:`unweave.certificate.release` for what is claimed. The earlier model need not have been certified.

    Attributes:
        epsilon: ε.
        delta: δ.
        tolerance: Residual allowed, as a share of the gradient at zero parameters. The noise is in proportion to it.
        steps: Newton steps from the trained parameters, before retraining.
        noise_seed: Seed of the noise, for experiments. Nothing is certified then, as a seed can be known.
    """

    name: ClassVar[str] = "certified"
    local: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ("newton", "release")
    epsilon: float | None = None
    delta: float | None = None
    tolerance: float = TUNING.release.tolerance
    steps: int = TUNING.release.refine
    noise_seed: int | None = None

    @property
    def spread(self) -> bool:
        """Ranks share its work, each with one block that is kept."""
        return True

    def __post_init__(self) -> None:
        check_promise(self.epsilon, self.delta)
        if not (0 < self.tolerance < 1 and self.steps >= 1):
            raise MethodError(
                f"tolerance must lie between 0 and 1 and steps be at least 1, got {self.tolerance} and {self.steps}"
            )

    def forget(self, problem: Problem) -> Outcome:
        """Refine, or retrain, and add noise."""
        assert self.epsilon is not None
        assert self.delta is not None
        done = release(
            certifiable(problem.remaining),
            problem.theta,
            (self.epsilon, self.delta),
            dtype=problem.theta.dtype,
            tolerance=self.tolerance,
            steps=self.steps,
            noise_seed=self.noise_seed,
        )
        origin = "the trained parameters" if done.by == "refined" else "zero"
        details = {"from": origin, "steps": done.report.steps, "products": done.report.products}
        return Outcome(
            done.theta,
            details=details,
            nearness=f"as near to retraining as the certificate says: parameters within "
            f"{done.certificate['distance']:.3g} of the minimiser on the remaining graph",
            certificate=done.certificate,
        )

    def expect(self, problem: Problem) -> Expected:
        """Newton steps on the perturbed objective, as many as it takes."""
        certifiable(problem.remaining)
        return Expected("refine with fresh noise until the residual is within its budget, else retrain so")

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Certified":
        """Keep what the training promised; options given win."""
        epsilon, delta = recipe.certify or (None, None)
        return cls(**{"epsilon": epsilon, "delta": delta, **options})

"""A method of your own: register it, compare it with the others, and run the shipped contract tests on it."""

from dataclasses import dataclass
from typing import ClassVar

import unweave as uw
from unweave.methods import Method, Outcome, Problem
from unweave.testing import MethodContract


@uw.methods.register
@dataclass(frozen=True)
class GradientStep(Method):
    """One step down the gradient of what is left: θ̂ = θ0 + rate · v / ‖v‖."""

    name: ClassVar[str] = "gradient-step"
    rate: float = 0.1

    def forget(self, problem: Problem) -> Outcome:
        """Take the step."""
        v = problem.forgotten_gradient
        return Outcome(problem.theta + self.rate * v / v.norm(), details={"rate": self.rate})


class TestGradientStep(MethodContract):
    """In your test suite pytest finds this class and runs the whole contract."""

    method = "gradient-step"


result = uw.compare("demo", "gcn", "edges:0.05", methods=["gradient-step", "gif"], seeds=2)
for row in result.rows:
    print(f"{row['method']:<22} gap closed {row['gap_closed_mean']:+.2f}   F1 {row['f1_mean']:.3f}")
assert result.row("gradient-step")["failures"] == 0

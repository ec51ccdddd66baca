"""Solve H x = v with products only. Each solver takes (operator, v) and returns (x, report)."""

from unweave.solvers.base import Operator, SolveReport
from unweave.solvers.cg import conjugate_gradients
from unweave.solvers.lanczos import LowRank, largest_eigenvalue, low_rank
from unweave.solvers.neumann import neumann
from unweave.solvers.quasi_newton import MinimiseReport, minimise

__all__ = [
    "LowRank",
    "MinimiseReport",
    "Operator",
    "SolveReport",
    "conjugate_gradients",
    "largest_eigenvalue",
    "low_rank",
    "minimise",
    "neumann",
]

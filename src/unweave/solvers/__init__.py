"""Solve H x = v with products only. Each solver takes (operator, v) and returns (x, report)."""

from unweave.solvers.base import Operator, SolveReport
from unweave.solvers.cg import conjugate_gradients
from unweave.solvers.lanczos import Krylov, LowRank, krylov, largest_eigenvalue, low_rank, random_like
from unweave.solvers.neumann import neumann
from unweave.solvers.newton import Local, NewtonReport, newton
from unweave.solvers.quasi_newton import MinimiseReport, minimise

__all__ = [
    "Krylov",
    "Local",
    "LowRank",
    "MinimiseReport",
    "NewtonReport",
    "Operator",
    "SolveReport",
    "conjugate_gradients",
    "krylov",
    "largest_eigenvalue",
    "low_rank",
    "minimise",
    "neumann",
    "newton",
    "random_like",
]

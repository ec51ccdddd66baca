"""Solve H x = v with products only. Each solver takes (operator, v) and returns (x, report)."""

from unweave.curvature.solvers.base import Operator, SolveReport
from unweave.curvature.solvers.cg import conjugate_gradients
from unweave.curvature.solvers.lanczos import Krylov, LowRank, krylov, largest_eigenvalue, low_rank, random_like
from unweave.curvature.solvers.neumann import neumann
from unweave.curvature.solvers.newton import Local, NewtonReport, newton
from unweave.curvature.solvers.quasi_newton import Memory, MinimiseReport, minimise, still_to_fall

__all__ = [
    "Krylov",
    "Local",
    "LowRank",
    "Memory",
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
    "still_to_fall",
]

"""Solve H x = v with products only. Each solver takes (operator, v) and returns (x, report)."""

from unweave.solvers.base import Operator, SolveReport
from unweave.solvers.cg import conjugate_gradients
from unweave.solvers.lanczos import largest_eigenvalue
from unweave.solvers.neumann import neumann

__all__ = ["Operator", "SolveReport", "conjugate_gradients", "largest_eigenvalue", "neumann"]

"""The largest eigenvalue of a symmetric matrix from a few Lanczos steps (Golub and Van Loan, chapter 10)."""

import torch
from torch import Tensor

from unweave.errors import DivergenceError
from unweave.solvers.base import Operator

__all__ = ["largest_eigenvalue"]


def largest_eigenvalue(operator: Operator, like: Tensor, *, steps: int = 8) -> float:
    """Largest Ritz value after ``steps`` products: a lower bound, usually within a few percent.

    Args:
        operator: Product with the matrix.
        like: A vector whose size, type and device the matrix acts on.
        steps: Products to spend.
    """
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(like.numel(), generator=generator, dtype=torch.float64).to(like)
    q = q / q.norm()
    basis: list[Tensor] = []
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(steps, like.numel())):
        basis.append(q)
        w = operator(q)
        if not torch.isfinite(w).all():
            raise DivergenceError(
                "a curvature product was not finite; the model's outputs or derivatives overflow at these parameters"
            )
        diagonal.append(float(q @ w))
        for b in basis:  # full re-orthogonalisation: few steps, and ghosts would raise the estimate's cost
            w = w - (b @ w) * b
        norm = float(w.norm())
        if norm <= 1e-6 * max(abs(d) for d in diagonal):
            break
        off.append(norm)
        q = w / norm
    size = len(diagonal)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for i in range(size - 1):
        tridiagonal[i, i + 1] = tridiagonal[i + 1, i] = off[i]
    return float(torch.linalg.eigvalsh(tridiagonal)[-1])

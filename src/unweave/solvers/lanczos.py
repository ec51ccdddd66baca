"""The top of a symmetric matrix's spectrum from products (Lanczos; Golub and Van Loan, chapter 10)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.errors import DivergenceError
from unweave.solvers.base import Operator

__all__ = ["LowRank", "largest_eigenvalue", "low_rank"]


REST = 2.0


@dataclass(frozen=True)
class LowRank:
    """A matrix known by its largest eigenvalues: V diag(λ) Vᵀ on their span, twice the smallest of them elsewhere.

    The scale of the rest is deliberately not a share of the largest eigenvalue, which may be an outlier a
    hundred times above the second. Twice the smallest was measured against once and four times (forgettable GCN
    and SGC on Cora, CiteSeer and PubMed): once is rejected by the line search half of the time, four times is slow.

    Attributes:
        values: The eigenvalues λ, largest first, all positive.
        vectors: Their eigenvectors V, one a column.
    """

    values: Tensor
    vectors: Tensor

    def solve(self, g: Tensor) -> Tensor:
        """The inverse times a vector."""
        inside = self.vectors.T @ g
        rest = g - self.vectors @ inside
        return self.vectors @ (inside / self.values) + rest / (REST * self.values[-1])


def low_rank(operator: Operator, like: Tensor, *, rank: int = 32) -> LowRank:
    """The ``rank`` largest eigenpairs, from ``rank + 8`` products; fewer where the matrix has fewer that are positive.

    Args:
        operator: Product with a positive semi-definite matrix.
        like: A vector whose size, type and device the matrix acts on.
        rank: Eigenpairs to keep.
    """
    tridiagonal, basis = _lanczos(operator, like, rank + 8)
    values, mixing = torch.linalg.eigh(tridiagonal)
    keep = torch.arange(values.numel() - 1, -1, -1)[:rank]
    keep = keep[values[keep] > 1e-6 * values[-1]]
    if not keep.numel():
        raise DivergenceError("the curvature has no positive eigenvalue; train with weight_decay above 0")
    return LowRank(values[keep].to(like), basis @ mixing[:, keep].to(like))


def largest_eigenvalue(operator: Operator, like: Tensor, *, steps: int = 8) -> float:
    """Largest Ritz value after ``steps`` products: a lower bound, usually within a few percent.

    Args:
        operator: Product with the matrix.
        like: A vector whose size, type and device the matrix acts on.
        steps: Products to spend.
    """
    tridiagonal, _ = _lanczos(operator, like, steps)
    return float(torch.linalg.eigvalsh(tridiagonal)[-1])


def _lanczos(operator: Operator, like: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The projection on a Krylov space, tridiagonal and in float64, and the orthonormal basis of that space."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(like.numel(), generator=generator, dtype=torch.float64).to(like)
    basis = torch.zeros(like.numel(), min(steps, like.numel()), dtype=like.dtype, device=like.device)
    diagonal: list[float] = []
    off: list[float] = []
    q = q / q.norm()
    for step in range(basis.size(1)):
        basis[:, step] = q
        w = operator(q)
        if not torch.isfinite(w).all():
            raise DivergenceError(
                "a curvature product was not finite; the model's outputs or derivatives overflow at these parameters"
            )
        diagonal.append(float(q @ w))
        used = basis[:, : step + 1]
        for _ in range(2):  # orthogonal to all that came before, or copies of the largest eigenvalue would appear
            w = w - used @ (used.T @ w)
        norm = float(w.norm())
        if norm <= 1e-6 * max(abs(d) for d in diagonal):
            break
        off.append(norm)
        q = w / norm
    size = len(diagonal)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for i in range(size - 1):
        tridiagonal[i, i + 1] = tridiagonal[i + 1, i] = off[i]
    return tridiagonal, basis[:, :size]

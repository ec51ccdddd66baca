"""The top of a symmetric matrix's spectrum from products (Lanczos; Golub and Van Loan, chapter 10)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.solvers.base import Operator
from unweave.errors import DivergenceError

__all__ = ["Krylov", "LowRank", "krylov", "largest_eigenvalue", "low_rank", "random_like"]


@dataclass(frozen=True)
class LowRank:
    """A matrix known by its largest eigenvalues: V diag(λ) Vᵀ on their span, twice the smallest of them elsewhere.

    Attributes:
        values: The eigenvalues λ, largest first, all positive.
        vectors: Their eigenvectors V, one a column.
    """

    values: Tensor
    vectors: Tensor

    def __post_init__(self) -> None:
        # One layout, whatever they come from: products of another one round differently, and a run that was stored and
        # opened would go on a little beside one that was not.
        object.__setattr__(self, "vectors", self.vectors.t().contiguous().t())

    @property
    def rest(self) -> Tensor:
        """What it is elsewhere."""
        return TUNING.spectrum.rest * self.values[-1]

    def solve(self, g: Tensor, damping: float = 0.0) -> Tensor:
        """The inverse, with ``damping`` added to every eigenvalue, times a vector."""
        inside, rest = self.vectors.T @ g, self.rest + damping
        return self.vectors @ (inside / (self.values + damping) - inside / rest) + g / rest

    def solve_all(self, rows: Tensor, damping: float = 0.0) -> Tensor:
        """The same of several vectors, one a row."""
        inside, rest = rows @ self.vectors, self.rest + damping
        return (inside / (self.values + damping) - inside / rest) @ self.vectors.T + rows / rest


@dataclass(frozen=True)
class Krylov:
    """A symmetric matrix H on the space of v, Hv, H²v, …: one set of products solves (H + δI) x = v for every δ.

    Attributes:
        tridiagonal: H on that space, in float64.
        basis: Its orthonormal basis, one vector a column.
        beyond: How strongly H leads out of the space.
    """

    tridiagonal: Tensor
    basis: Tensor
    beyond: float

    @property
    def products(self) -> int:
        """Products spent."""
        return self.basis.size(1)

    @cached_property
    def values(self) -> Tensor:
        """Ritz values, largest first."""
        values: Tensor = torch.linalg.eigvalsh(self.tridiagonal)
        return values.flip(0)

    def solve(self, v: Tensor, damping: float) -> tuple[Tensor, float]:
        """Solve (H + damping·I) x = v, where v is what the space started from.

        Returns:
            The best x within the space, and its relative residual as the recursion has it.
        """
        size = float(v.norm())
        right = torch.zeros(self.products, dtype=torch.float64)
        right[0] = size
        shifted = self.tridiagonal + damping * torch.eye(self.products, dtype=torch.float64)
        inside = torch.linalg.solve(shifted, right)
        return self.basis @ inside.to(self.basis), self.beyond * abs(float(inside[-1])) / size

    def low_rank(self, rank: int | None = None) -> LowRank:
        """The top of the spectrum, as far as the space knows it."""
        values, mixing = torch.linalg.eigh(self.tridiagonal)
        keep = torch.arange(values.numel() - 1, -1, -1)[: rank or TUNING.spectrum.rank]
        keep = keep[values[keep] > 1e-6 * values[-1]]
        if not keep.numel():
            raise DivergenceError("the curvature has no positive eigenvalue; train with weight_decay above 0")
        vectors = mixing[:, keep].to(self.basis).T @ self.basis.T  # rows, as they are read row by row
        return LowRank(values[keep].to(self.basis), vectors.T)


def low_rank(operator: Operator, like: Tensor, *, rank: int | None = None) -> LowRank:
    """The largest eigenpairs, from a few more products; fewer where the matrix has fewer that are positive.

    Args:
        operator: Product with a positive semi-definite matrix.
        like: A vector whose size, type and device the matrix acts on.
        rank: Eigenpairs to keep; as many as :mod:`unweave._core.tuning` says by default.
    """
    rank = rank or TUNING.spectrum.rank
    return krylov(operator, random_like(like), products=rank + TUNING.spectrum.spare).low_rank(rank)


def largest_eigenvalue(operator: Operator, like: Tensor, *, steps: int = 8) -> float:
    """Largest Ritz value after ``steps`` products: a lower bound, usually within a few percent.

    Args:
        operator: Product with the matrix.
        like: A vector whose size, type and device the matrix acts on.
        steps: Products to spend.
    """
    return float(krylov(operator, random_like(like), products=steps).values[0])


def krylov(
    operator: Operator, v: Tensor, *, products: int, enough: Callable[[Krylov], bool] = lambda space: False
) -> Krylov:
    """Build the space of a matrix and a vector, until it is enough or ``products`` are spent.

    Args:
        operator: Product with a symmetric matrix.
        v: The vector it starts from, not zero.
        products: At most so many.
        enough: Asked after every fifth product.
    """
    basis = v.new_zeros(min(products, v.numel()), v.numel())
    diagonal: list[float] = []
    off: list[float] = []
    q = v / v.norm()
    for step in range(basis.size(0)):
        basis[step] = q
        w = operator(q)
        if not torch.isfinite(w).all():
            raise DivergenceError(
                "a curvature product was not finite; the model's outputs or derivatives overflow at these parameters"
            )
        diagonal.append(float(q @ w))
        used = basis[: step + 1]
        w = w - diagonal[-1] * q - (off[-1] * basis[step - 1] if step else 0.0)
        before = float(w.norm())
        # Orthogonal to all that came before, or copies of the largest eigenvalue would appear; twice where it matters.
        w = w - (used @ w) @ used
        if float(w.norm()) < TUNING.spectrum.again * before:
            w = w - (used @ w) @ used
        off.append(float(w.norm()))
        if off[-1] <= 1e-6 * max(abs(d) for d in diagonal):
            break
        if (step + 1) % TUNING.spectrum.look == 0 and enough(_space(diagonal, off, used.T)):
            break
        q = w / off[-1]
    return _space(diagonal, off, basis[: len(diagonal)].T)


def _space(diagonal: list[float], off: list[float], basis: Tensor) -> Krylov:
    across = torch.tensor(off[:-1], dtype=torch.float64)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    return Krylov(tridiagonal + torch.diag(across, 1) + torch.diag(across, -1), basis, off[-1])


def random_like(like: Tensor) -> Tensor:
    """A random vector, the same every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(like.numel(), generator=generator, dtype=torch.float64).to(like)

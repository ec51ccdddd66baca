"""Sparse products of our own, differentiable to any order in forward and in reverse mode, by ``torch.func`` too.

    matmul(A, X)  = A X             A constant
    weigh(v, X)   = S(v) X          S(v) has the values v where a pattern of entries (i, j) has them
    dots(L, R)_ij = ⟨L_i, R_j⟩      for the entries of a pattern

Each is linear in every argument, and the derivatives of one are others: that of A X is Aᵀ, that of S(v) X by X is
S(v)ᵀ, by v it is dots, and those of dots are S and Sᵀ. torch's sparse layouts stay inside, where no transform of
``torch.func`` meets them. Nothing waits for the device once a matrix has been transposed, at its first derivative.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.autograd import Function

from unweave._core.compat import outside_transforms

__all__ = ["Matrix", "Pattern", "dots", "eagerly", "matmul", "multiply", "peak", "weigh"]

# torch's plain CSR product is threaded where it is MKL's or cuSPARSE's; elsewhere its reducing one is.
THREADED = torch.backends.mkl.is_available() and sys.platform != "win32"  # type: ignore[no-untyped-call]

with warnings.catch_warnings():  # said once in a process: let it be now, and nothing else be hidden
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")  # torch 2.11
    torch.sparse_csr_tensor([0, 0], [], [], (1, 1), dtype=torch.float, check_invariants=False)


@contextmanager
def eagerly() -> Iterator[None]:
    """Compute plain tensors that outlive the call, whatever mode or transform the caller is in."""
    with torch.inference_mode(False), torch.no_grad(), outside_transforms():
        yield


class Pattern:
    """Where the entries of a sparse matrix are: compressed rows, columns in order and none twice.

    Attributes:
        crow: Where each row begins, int32 where that is enough, and one more for the end.
        col: Column of each entry, of the same type.
        shape: Rows and columns.
        recording: A place for what was recorded on matrices of this pattern.
    """

    def __init__(self, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        small = max(col.numel(), *shape) < 2**31
        self.crow, self.col = (t.to(torch.int32 if small else torch.int64) for t in (crow, col))
        self.shape = shape
        self._other: tuple[Pattern, Tensor] | None = None
        self._places: tuple[Tensor, Tensor] | None = None
        self._made_of: ref[Pattern] | None = None
        self.recording: object = None

    @classmethod
    def of(cls, row: Tensor, col: Tensor, shape: tuple[int, int]) -> tuple["Pattern", Tensor]:
        """A pattern from pairs in any order, and which entry each pair became."""
        keys, entry = torch.unique(row * shape[1] + col, return_inverse=True)
        rows = torch.div(keys, max(shape[1], 1), rounding_mode="floor")
        return cls(_starts(rows, shape[0]), keys - rows * shape[1], shape), entry

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Row and column of each entry, int64, found once."""
        if self._places is None:
            with eagerly():
                self._places = self.rows(), self.col.long()
        return self._places

    def rows(self) -> Tensor:
        """Row of each entry, int64."""
        counts = self.crow.diff()
        return torch.repeat_interleave(torch.arange(self.shape[0], device=counts.device), counts)

    def transposed(self) -> tuple["Pattern", Tensor]:
        """The transpose, found once, and which entry of this one each of its entries is."""
        if self._other is None:
            with eagerly():
                self._other = self._transpose()
        return self._other

    def _transpose(self) -> tuple["Pattern", Tensor]:
        shape = self.shape[1], self.shape[0]
        if self.col.is_cuda or not self.col.numel():
            order = torch.argsort(self.col, stable=True)
            return Pattern(_starts(self.col[order].long(), shape[0]), self.rows()[order], shape), order
        numbers = np.arange(self.col.numel())  # counted instead of sorted: several times as fast
        found = csr_matrix((numbers, self.col.numpy(), self.crow.numpy()), shape=self.shape).tocsc()
        crow, col, order = (torch.from_numpy(part) for part in (found.indptr, found.indices, found.data))
        return Pattern(crow, col, shape), order

    def only(self, keep: Tensor) -> tuple["Pattern", Tensor]:
        """The pattern of some entries, given as a mask, without a trace of the others; and which each has become."""
        number = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        some = Pattern(number[self.crow.long()], self.col[keep], self.shape)
        some._made_of = ref(self)
        return some, number

    def recorded(self) -> Iterator[object]:
        """What was recorded on matrices of this pattern, and of those with more entries that it was made of."""
        made_of: Pattern | None = self
        while made_of is not None:
            yield made_of.recording
            made_of = made_of._made_of() if made_of._made_of is not None else None

    def filled(self, values: Tensor) -> Tensor:
        """The matrix in torch's layout."""
        return torch.sparse_csr_tensor(self.crow, self.col, values, self.shape, check_invariants=False)


class Matrix:
    """A constant sparse matrix, and its transpose once that is asked for.

    Args:
        pattern: Where its entries are; the attribute too.
        values: What they are.
    """

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.shape = pattern.shape
        self.pattern = pattern
        self._sides = [pattern.filled(values)]

    @classmethod
    def of(cls, row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> "Matrix":
        """A matrix from entries in any order; those of one place are added."""
        pattern, entry = Pattern.of(row, col, shape)
        return cls(pattern, values.new_zeros(pattern.col.numel()).index_add_(0, entry, values))

    @classmethod
    def dense(cls, dense: Tensor) -> "Matrix":
        """The entries of a dense matrix that are not zero."""
        row, col = dense.nonzero(as_tuple=True)
        shape = dense.size(0), dense.size(1)
        return cls(Pattern(_starts(row, shape[0]), col, shape), dense[row, col])

    def side(self, flipped: bool) -> Tensor:
        """The matrix or its transpose in torch's layout."""
        if flipped and len(self._sides) == 1:
            with eagerly():
                pattern, order = self.pattern.transposed()
                self._sides.append(pattern.filled(self._sides[0].values()[order]))
        return self._sides[flipped]

    def first(self, rows: int, columns: int) -> "Matrix":
        """The first rows, whose entries are all in the first columns; of the same memory."""
        crow, entries = self.pattern.crow[: rows + 1], int(self.pattern.crow[rows])
        pattern = Pattern(crow, self.pattern.col[:entries], (rows, columns))
        return Matrix(pattern, self._sides[0].values()[:entries])

    def copy(self) -> "Matrix":
        """The same matrix in memory of its own, with its transpose."""
        twin = Matrix(Pattern(self.pattern.crow, self.pattern.col, self.shape), self._sides[0].values())
        twin._sides = [self.side(flipped).clone() for flipped in (False, True)]
        return twin

    def load(self, other: "Matrix") -> None:
        """Become another matrix of the same shape with as many entries or fewer, in place; what is left over is zero.

        This is for a copy that others replay products of: nothing of what it was before stays in it.
        """
        for mine, its in zip(self._sides, (other.side(False), other.side(True)), strict=True):
            count = its.values().numel()
            mine.crow_indices().copy_(its.crow_indices())[-1] = mine.values().numel()  # the rest is in the last row
            for ours, theirs in ((mine.col_indices(), its.col_indices()), (mine.values(), its.values())):
                ours[:count].copy_(theirs)
                ours[count:].zero_()


def matmul(matrix: Matrix, dense: Tensor, flipped: bool = False) -> Tensor:
    """A X, or Aᵀ X where ``flipped``."""
    return _Matmul.apply(matrix, flipped, dense)  # type: ignore[no-any-return, no-untyped-call]


def multiply(matrix: Matrix, dense: Tensor, flipped: bool = False) -> Tensor:
    """A X, or Aᵀ X where ``flipped``, of numbers alone: nothing that can be differentiated."""
    return _multiply(matrix.side(flipped), dense)


def weigh(pattern: Pattern, values: Tensor, dense: Tensor, flipped: bool = False) -> Tensor:
    """S(v) X, or S(v)ᵀ X where ``flipped``."""
    return _Weigh.apply(pattern, flipped, values, dense)  # type: ignore[no-any-return, no-untyped-call]


def dots(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """⟨L_i, R_j⟩ of every entry (i, j)."""
    return _Dots.apply(pattern, left, right)  # type: ignore[no-any-return, no-untyped-call]


def peak(pattern: Pattern, values: Tensor) -> Tensor:
    """The largest value of each row, as a constant; −∞ for a row without entries."""
    return _Peak.apply(pattern, values)  # type: ignore[no-any-return, no-untyped-call]


def _starts(rows: Tensor, count: int) -> Tensor:
    """Where each row begins, from the rows of the entries in order."""
    return torch.nn.functional.pad(torch.bincount(rows, minlength=count).cumsum(0), (1, 0))


def _multiply(csr: Tensor, dense: Tensor) -> Tensor:
    if not csr.values().numel() or not dense.numel():
        return dense.new_zeros(csr.size(0), dense.size(1))
    dense = dense.contiguous()
    return csr @ dense if csr.is_cuda or THREADED else torch.sparse.mm(csr, dense, "sum")


def _each(function: Callable[..., Tensor], info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    """A vmap rule that takes the batch one by one."""
    picks = (
        [arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims, strict=True)]
        for i in range(info.batch_size)
    )
    return torch.stack([function(*pick) for pick in picks]), 0


def _total(*terms: Tensor | None) -> Tensor | None:
    """The sum of those that are there."""
    there = [term for term in terms if term is not None]
    return sum(there[1:], there[0]) if there else None


class _Matmul(Function):
    @staticmethod
    def forward(matrix: Matrix, flipped: bool, dense: Tensor) -> Tensor:
        return _multiply(matrix.side(flipped), dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, ctx.flipped, _ = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, matmul(ctx.matrix, grad, not ctx.flipped)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return matmul(ctx.matrix, tangents[2], ctx.flipped)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], matrix: Matrix, flipped: bool, dense: Tensor) -> tuple[Tensor, int]:
        wide = dense.movedim(in_dims[2], -1)
        product = matmul(matrix, wide.reshape(wide.size(0), -1), flipped)
        return product.view(product.size(0), *wide.shape[1:]), 2


class _Weigh(Function):
    @staticmethod
    def forward(pattern: Pattern, flipped: bool, values: Tensor, dense: Tensor) -> Tensor:
        if flipped:
            pattern, order = pattern.transposed()
            values = values.index_select(0, order)
        return _multiply(pattern.filled(values.detach()), dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pattern, ctx.flipped, values, dense = inputs
        ctx.save_for_backward(values, dense)
        ctx.save_for_forward(values, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, dense = ctx.saved_tensors
        ends = (dense, grad) if ctx.flipped else (grad, dense)
        return (
            None,
            None,
            dots(ctx.pattern, *ends) if ctx.needs_input_grad[2] else None,
            weigh(ctx.pattern, values, grad, not ctx.flipped) if ctx.needs_input_grad[3] else None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        values, dense = ctx.saved_tensors
        return _total(
            None if tangents[2] is None else weigh(ctx.pattern, tangents[2], dense, ctx.flipped),
            None if tangents[3] is None else weigh(ctx.pattern, values, tangents[3], ctx.flipped),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], pattern: Pattern, flipped: bool, *args: Tensor) -> tuple[Tensor, int]:
        return _each(lambda v, x: weigh(pattern, v, x, flipped), info, in_dims[2:], *args)


class _Dots(Function):
    @staticmethod
    def forward(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
        if not pattern.col.numel() or not left.size(1):
            return left.new_zeros(pattern.col.numel())
        where = pattern.filled(left.new_zeros(pattern.col.numel()))
        found: Tensor = torch.sparse.sampled_addmm(where, left.contiguous(), right.contiguous().t(), beta=0.0)
        return found.values()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pattern, left, right = inputs
        ctx.save_for_backward(left, right)
        ctx.save_for_forward(left, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        return (
            None,
            weigh(ctx.pattern, grad, right) if ctx.needs_input_grad[1] else None,
            weigh(ctx.pattern, grad, left, flipped=True) if ctx.needs_input_grad[2] else None,
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor | None:
        left, right = ctx.saved_tensors
        return _total(
            None if tangents[1] is None else dots(ctx.pattern, tangents[1], right),
            None if tangents[2] is None else dots(ctx.pattern, left, tangents[2]),
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], pattern: Pattern, *args: Tensor) -> tuple[Tensor, int]:
        return _each(lambda left, right: dots(pattern, left, right), info, in_dims[1:], *args)


class _Peak(Function):
    @staticmethod
    def forward(pattern: Pattern, values: Tensor) -> Tensor:
        return torch.segment_reduce(values, "max", offsets=pattern.crow.long(), unsafe=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        return None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], pattern: Pattern, values: Tensor) -> tuple[Tensor, int]:
        return _each(lambda v: peak(pattern, v), info, in_dims[1:], values)


class _Bound(NamedTuple):
    """Arguments as torch wants them bound, in a form that is made at once."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def apply_defaults(self) -> None:
        """There are none."""


class _AsGiven(inspect.Signature):
    """Of a function that is always called with all of its arguments, by position."""

    def bind(self, *args: Any, **kwargs: Any) -> _Bound:  # type: ignore[override]
        return _Bound(args, kwargs)


for _function in (_Matmul, _Weigh, _Dots, _Peak):
    # torch looks the signature up in every call and binds to it, which takes longer than a small product.
    _signature = _AsGiven(list(inspect.signature(_function.forward).parameters.values()))
    setattr(_function.forward, "__signature__", _signature)  # noqa: B010

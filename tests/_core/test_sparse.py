"""Sparse products and all their derivatives against dense float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jvp, vjp, vmap

from unweave._core import sparse
from unweave._core.sparse import Matrix, Pattern, dots, matmul, peak, weigh

SHAPES = {"square": (6, 6), "tall": (7, 3), "wide": (3, 8), "no columns": (4, 0), "no rows": (0, 4), "one": (1, 1)}
Kernel = pytest.mark.parametrize("threaded", [True, False], ids=["plain", "reducing"])


@pytest.fixture(autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of machines with MKL, or that of others."""
    threaded = request.node.callspec.params.get("threaded") if hasattr(request.node, "callspec") else None
    if threaded is not None:
        monkeypatch.setattr(sparse, "THREADED", threaded and sparse.THREADED)


def random(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def sparse_one(rows: int, columns: int, share: float = 0.4) -> Tensor:
    """A dense matrix with zeros, among them a whole row and a whole column."""
    generator = torch.Generator().manual_seed(3)
    dense = random(rows, columns) * (torch.rand(rows, columns, generator=generator) < share)
    if rows > 2:
        dense[1] = 0
        dense[:, -1:] = 0
    return dense


def pattern_of(dense: Tensor) -> Pattern:
    row, col = dense.nonzero(as_tuple=True)
    return Pattern.of(row, col, (dense.size(0), dense.size(1)))[0]


@Kernel
@pytest.mark.parametrize("share", [0.4, 0.0, 1.0])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_dense_matrices(
    threaded: bool, shape: tuple[int, int], share: float, dtype: torch.dtype
) -> None:
    dense = sparse_one(*shape, share).to(dtype)
    matrix, pattern = Matrix.dense(dense), pattern_of(dense)
    values = dense[dense != 0]
    for width in (0, 1, 5):
        right, left = random(shape[1], width).to(dtype), random(shape[0], width).to(dtype)
        torch.testing.assert_close(matmul(matrix, right), dense @ right)
        torch.testing.assert_close(matmul(matrix, left, flipped=True), dense.T @ left)
        torch.testing.assert_close(matmul(matrix, right.T.contiguous().T), dense @ right)
        torch.testing.assert_close(weigh(pattern, values, right), dense @ right)
        torch.testing.assert_close(weigh(pattern, values, left, flipped=True), dense.T @ left)
        torch.testing.assert_close(dots(pattern, left, right), (left @ right.T)[dense != 0])
    filled = dense.masked_fill(dense == 0, float("-inf"))
    if shape[1]:
        torch.testing.assert_close(peak(pattern, values), filled.amax(dim=1))


@Kernel
def test_derivatives_of_first_and_second_order(threaded: bool) -> None:
    dense = sparse_one(6, 4)
    matrix, pattern = Matrix.dense(dense), pattern_of(dense)
    values = random(pattern.col.numel(), seed=1, grad=True)
    left, right = random(6, 3, seed=2, grad=True), random(4, 3, seed=3, grad=True)
    functions: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
        (lambda x: matmul(matrix, x), (right,)),
        (lambda x: matmul(matrix, x, flipped=True), (left,)),
        (lambda v, x: weigh(pattern, v, x), (values, right)),
        (lambda v, x: weigh(pattern, v, x, flipped=True), (values, left)),
        (lambda a, b: dots(pattern, a, b), (left, right)),
    ]
    for function, inputs in functions:
        assert gradcheck(function, inputs, check_forward_ad=True)
        assert gradgradcheck(lambda *given, f=function: f(*given).sin(), inputs, check_fwd_over_rev=True)


def test_transforms_agree_with_dense_matrices() -> None:
    dense = sparse_one(6, 4)
    x, tangent, cotangent = random(4, 2, seed=4), random(4, 2, seed=5), random(6, 2, seed=6)
    matrix = Matrix.dense(dense)  # its transpose is first asked for inside a transform
    pattern, entries = pattern_of(dense), dense != 0

    def ours(x: Tensor) -> Tensor:
        return matmul(matrix, x).tanh()

    def theirs(x: Tensor) -> Tensor:
        return (dense @ x).tanh()

    def ours_weighed(x: Tensor) -> Tensor:
        values = dots(pattern, torch.cat([x, x[:2]]), x)
        return weigh(pattern, (values - peak(pattern, values)[pattern.rows()]).exp(), x)

    def theirs_weighed(x: Tensor) -> Tensor:
        values = (torch.cat([x, x[:2]]) @ x.T).masked_fill(~entries, float("-inf"))
        largest = values.detach().amax(dim=1, keepdim=True).clamp(min=-1e9)
        return (values - largest).exp() @ x

    for a, b in ((ours, theirs), (ours_weighed, theirs_weighed)):
        torch.testing.assert_close(
            hessian(lambda x, f=a: f(x).square().sum())(x), hessian(lambda x, f=b: f(x).square().sum())(x)
        )
        torch.testing.assert_close(jvp(a, (x,), (tangent,)), jvp(b, (x,), (tangent,)))
        torch.testing.assert_close(vjp(a, x)[1](cotangent), vjp(b, x)[1](cotangent))
        batch = torch.stack([x, tangent])
        torch.testing.assert_close(vmap(a)(batch), vmap(b)(batch))
        torch.testing.assert_close(vmap(a, in_dims=2)(batch.movedim(0, 2)), vmap(b)(batch))
    torch.testing.assert_close(matmul(matrix, cotangent, flipped=True), dense.T @ cotangent)


def test_entries_of_one_place_are_added() -> None:
    row, col = torch.tensor([2, 0, 2, 2]), torch.tensor([1, 3, 1, 0])
    matrix = Matrix.of(row, col, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 4))
    expected = torch.tensor([[0.0, 0, 0, 2], [0, 0, 0, 0], [4, 4, 0, 0]])
    torch.testing.assert_close(matmul(matrix, torch.eye(4)), expected)
    torch.testing.assert_close(matmul(matrix, torch.eye(3), flipped=True), expected.T)


def test_what_is_made_in_inference_mode_serves_training() -> None:
    dense = sparse_one(6, 4)
    with torch.inference_mode():
        matrix = Matrix.dense(dense.clone())
        matmul(matrix, torch.eye(6, dtype=torch.float64), flipped=True)
    x = random(4, 2, grad=True)
    (slope,) = torch.autograd.grad(matmul(matrix, x).sum(), x)
    torch.testing.assert_close(slope, dense.sum(dim=0)[:, None].expand(-1, 2))

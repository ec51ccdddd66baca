"""Products, gradients and solves against a dense float64 reference, over the whole case table."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.func import grad, hessian, jacrev

from tests.cases import CASES, TABLE, Built, Case, dense_loss, dense_outputs, table
from unweave.curvature.preparation import prepare
from unweave.curvature.products import GaussNewton, Hessian
from unweave.curvature.solvers import conjugate_gradients, neumann
from unweave.errors import BudgetError, ModelError
from unweave.objective.objective import Objective
from unweave.testing import small_graph

SMALL = [case for case in CASES if case.request == "mixed"]


def dense_gauss_newton(objective: Objective, theta: Tensor) -> Tensor:
    outputs = dense_outputs(objective)
    z = outputs(theta)
    jacobian = jacrev(outputs)(theta).reshape(z.numel(), -1)
    y = objective.data.y[objective.data.train_mask]
    bend = hessian(lambda flat: objective.loss(flat.view_as(z), y).sum())(z.reshape(-1))
    return jacobian.T @ bend @ jacobian + torch.diag(objective.mu)


def basis(theta: Tensor) -> list[Tensor]:
    return list(torch.eye(theta.numel(), dtype=theta.dtype))


@pytest.mark.parametrize("case", TABLE)
def test_gradients_and_products_match_the_dense_reference(case: Case) -> None:
    built = case.build()
    assert built.theta.numel() <= 60
    for objective in (built.before, built.after):
        point = objective.at(built.theta)
        torch.testing.assert_close(point.gradient(), grad(dense_loss(objective))(built.theta))
        v = torch.randn(built.theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        dense = hessian(dense_loss(objective))(built.theta)
        torch.testing.assert_close(Hessian(point)(v), dense @ v)
        torch.testing.assert_close(GaussNewton(point)(v), dense_gauss_newton(objective, built.theta) @ v)


@pytest.mark.parametrize("case", table(SMALL))
def test_several_products_are_each_of_them(case: Case) -> None:
    built = case.build()
    operator = GaussNewton(built.after.at(built.theta))
    v = torch.randn(3, built.theta.numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pushed = operator.push_all(v)
    torch.testing.assert_close(pushed, torch.stack([operator.push(one) for one in v], dim=1))
    torch.testing.assert_close(operator.pull_all(pushed), torch.stack([operator.pull(one) for one in pushed.unbind(1)]))


@pytest.mark.parametrize("case", table(SMALL))
def test_whole_matrices_are_symmetric_and_gauss_newton_is_positive(case: Case) -> None:
    built = case.build()
    point = built.after.at(built.theta)
    for operator in (Hessian(point), GaussNewton(point)):
        matrix = torch.stack([operator(e) for e in basis(built.theta)])
        torch.testing.assert_close(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix)[0] >= built.after.mu[0] * (1 - 1e-9)


@pytest.mark.parametrize("case", table(SMALL))
def test_solvers_match_a_dense_solve(case: Case) -> None:
    built = case.build()
    operator = GaussNewton(built.after.at(built.theta))
    v = built.before.at(built.theta).gradient() - built.after.at(built.theta).gradient()
    dense = dense_gauss_newton(built.after, built.theta)
    size = built.theta.numel()

    x, report = conjugate_gradients(operator, v, damping=0.3, tolerance=1e-12, iterations=500)
    expected = torch.linalg.solve(dense + 0.3 * torch.eye(size, dtype=torch.float64), v)
    torch.testing.assert_close(x, expected, rtol=1e-8, atol=1e-10)
    assert report.converged
    assert report.relative_residual <= 1e-12

    top = float(torch.linalg.eigvalsh(dense)[-1])
    shift = 0.2 * top
    x, report = neumann(lambda u: operator(u) + shift * u, v, scale=0.7 * top, iterations=150)
    expected = torch.linalg.solve(dense + shift * torch.eye(size, dtype=torch.float64), v)
    torch.testing.assert_close(x, expected, rtol=1e-8, atol=1e-10)
    assert report.relative_residual < 1e-9


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SMALL), st.integers(0, 2**31), st.floats(-3, 3), st.floats(-3, 3))
def test_products_are_linear_and_symmetric(case: Case, seed: int, a: float, b: float) -> None:
    built = case.build()
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, built.theta.numel(), dtype=torch.float64, generator=generator)
    point = built.after.at(built.theta)
    for operator in (Hessian(point), GaussNewton(point)):
        torch.testing.assert_close(operator(a * u + b * v), a * operator(u) + b * operator(v), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(u @ operator(v), v @ operator(u), rtol=1e-8, atol=1e-8)


def test_gauss_newton_is_the_hessian_of_a_linear_model() -> None:
    built = Case("sgc", "cross-entropy", "mixed", False).build()
    point = built.after.at(built.theta)
    for e in basis(built.theta):
        torch.testing.assert_close(GaussNewton(point)(e), Hessian(point)(e))


def test_float32_agrees_with_float64() -> None:
    built = Case("gcn", "cross-entropy", "mixed", False).build()
    reference = GaussNewton(built.after.at(built.theta))(built.theta)
    built.model.float()
    data = built.after.data.clone()
    data.x = data.x.float()
    single = Objective(
        built.model, data, built.after.loss, built.after.decay.float(), built.after.forward, built.after.meter
    )
    product = GaussNewton(single.at(built.theta.float()))(built.theta.float())
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), reference, rtol=1e-4, atol=1e-4)


def test_memory_does_not_grow_with_products() -> None:
    """The graph of derivatives is retained, not extended: a product has no history of its own."""
    built: Built = Case("gcn", "cross-entropy", "edges", False).build()
    operator = Hessian(built.after.at(built.theta))
    assert not operator(built.theta).requires_grad


class OnceOnly(torch.autograd.Function):
    """A function with a backward pass that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: object, g: Tensor) -> Tensor:
        return g.clone()


def test_a_model_that_cannot_be_differentiated_twice_is_refused() -> None:
    case = Case("gcn", "cross-entropy", "edges", False)
    built = case.build()

    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = built.model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return OnceOnly.apply(self.net(x, edge_index))  # type: ignore[no-any-return]

    objective = Objective(
        Once(), built.data, built.before.loss, built.before.decay, built.before.forward, built.before.meter
    )
    point = objective.at(built.theta)
    with pytest.raises(ModelError, match="cannot be differentiated twice"):
        Hessian(point)(built.theta)
    with pytest.raises(ModelError, match="cannot be differentiated twice"):
        GaussNewton(point)(built.theta)


class Endless(torch.autograd.Function):
    """Needs more memory than there is for its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad + torch.empty(2**55, dtype=torch.uint8).sum()


def test_memory_that_runs_out_is_told_as_such_and_not_as_a_fault_of_the_model() -> None:
    built = Case("gcn", "cross-entropy", "edges", False).build()
    before = built.before

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = built.model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return Endless.apply(self.net(x, edge_index))  # type: ignore[no-any-return]

    point = Objective(Large(), built.data, before.loss, before.decay, before.forward, before.meter).at(built.theta)
    for work in (lambda: GaussNewton(point), point.gradient):
        with pytest.raises(BudgetError, match=r"memory ran out .*--memory-mib"):
            work()


def test_attention_is_differentiated_twice() -> None:
    """The kernel that torch takes for it on its own has no second derivative."""

    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.out = nn.MultiheadAttention(8, 2), nn.Linear(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.out(self.attention(x, x, x, need_weights=False)[0])  # type: ignore[no-any-return]

    data = small_graph()
    found = prepare(Attentive(), data, weight_decay=1e-2)
    assert found.curvature.values[0] > 0

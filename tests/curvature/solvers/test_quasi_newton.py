"""Quasi-Newton minimisation: exact on parabolas, safe where steps overshoot, faster with curvature in hand."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tests.curvature.solvers.test_cg import V, matrix
from unweave._core.tuning import tuned
from unweave.curvature.solvers import LowRank, low_rank, minimise, still_to_fall
from unweave.curvature.solvers.quasi_newton import Memory


def parabola(h: Tensor, target: Tensor):  # type: ignore[no-untyped-def]
    def evaluate(x: Tensor) -> tuple[float, Tensor]:
        d = x - target
        return float(d @ h @ d) / 2, h @ d

    return evaluate


def test_one_step_suffices_with_the_true_inverse() -> None:
    h = matrix([1, 2, 3, 50, 100])
    evaluate = parabola(h, V)
    x = torch.zeros_like(V)
    x, report = minimise(evaluate, x, *evaluate(x), lambda g: torch.linalg.solve(h, g), evaluations=5, tolerance=1e-9)
    torch.testing.assert_close(x, V)
    assert (report.evaluations, report.steps, report.converged) == (1, 1, True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=5, max_size=5), st.integers(0, 1000))
def test_it_finds_the_minimum_without_curvature_too(spectrum: list[float], seed: int) -> None:
    evaluate = parabola(matrix(spectrum, seed), V)
    x = torch.zeros_like(V)
    x, report = minimise(evaluate, x, *evaluate(x), lambda g: g / 100, evaluations=300, tolerance=1e-8)
    assert report.converged
    torch.testing.assert_close(x, V, rtol=1e-4, atol=1e-5)


def test_overshooting_steps_are_shortened_and_the_function_never_rises() -> None:
    """log cosh has curvature that falls away from the minimum: full Newton steps from afar diverge."""
    heights: list[float] = []

    def evaluate(x: Tensor) -> tuple[float, Tensor]:
        value = float(torch.log(torch.cosh(x)).sum())
        return value, torch.tanh(x)

    x = torch.full((3,), 3.0, dtype=torch.float64)
    heights.append(evaluate(x)[0])
    bold = 1 / float(1 - torch.tanh(x[0]) ** 2)
    x, report = minimise(evaluate, x, *evaluate(x), lambda g: g * bold, evaluations=60, tolerance=1e-8)
    assert report.converged
    assert report.evaluations > report.steps, "some steps had to be shortened"
    assert report.value < heights[0]


def test_it_gives_up_where_nothing_falls() -> None:
    def liar(x: Tensor) -> tuple[float, Tensor]:
        return float(x @ x), -x  # the gradient points the wrong way

    x = torch.ones(3, dtype=torch.float64)
    _, report = minimise(liar, x, *liar(x), lambda g: g, evaluations=100, tolerance=1e-8)
    assert report.steps == 0
    assert not report.converged


def test_values_that_are_not_finite_are_never_accepted() -> None:
    def cliff(x: Tensor) -> tuple[float, Tensor]:
        if float(x.abs().max()) > 1.5:
            return math.nan, x * math.nan
        return float(x @ x) / 2, x

    x = torch.ones(2, dtype=torch.float64)
    x, report = minimise(cliff, x, *cliff(x), lambda g: 10 * g, evaluations=30, tolerance=1e-10)
    assert report.converged
    assert torch.isfinite(x).all()


def test_low_rank_model_is_exact_on_the_eigenvectors_it_keeps() -> None:
    spectrum = [*torch.linspace(0.5, 1, 60).tolist(), 10, 20, 30, 400]
    h = matrix(spectrum)
    model = low_rank(lambda u: h @ u, torch.zeros(64, dtype=torch.float64), rank=4)
    torch.testing.assert_close(model.values, torch.tensor([400.0, 30, 20, 10], dtype=torch.float64), rtol=1e-3, atol=0)
    top = model.vectors[:, 0]
    torch.testing.assert_close(model.solve(h @ top), top, rtol=1e-2, atol=1e-3)
    assert torch.linalg.eigvalsh(torch.stack([model.solve(e) for e in torch.eye(64, dtype=torch.float64)]))[0] > 0


def test_low_rank_of_a_small_matrix_keeps_what_there_is() -> None:
    model = low_rank(lambda u: matrix([0, 0, 1, 2, 3]) @ u, V, rank=32)
    assert isinstance(model, LowRank)
    assert model.values.tolist() == pytest.approx([3, 2, 1], rel=1e-3)


def test_plain_lbfgs_needs_no_curvature_and_more_evaluations() -> None:
    h = matrix([1, 2, 3, 50, 100])
    evaluate = parabola(h, V)
    x = torch.zeros_like(V)
    found, report = minimise(evaluate, x, *evaluate(x), None, evaluations=100, tolerance=1e-8)
    assert report.converged
    torch.testing.assert_close(found, V, rtol=1e-4, atol=1e-5)
    assert report.evaluations > 3
    assert report.smallest_curvature is not None
    assert 1 - 1e-6 <= report.smallest_curvature <= 100


def test_it_stops_below_the_lowest_value_it_was_given() -> None:
    evaluate = parabola(matrix([1, 2, 3, 50, 100]), V)
    x = torch.zeros_like(V)
    start = evaluate(x)[0]
    _, report = minimise(evaluate, x, *evaluate(x), None, evaluations=100, tolerance=1e-8, lowest=start / 2)
    assert report.value <= start / 2
    assert not report.converged


def test_it_ends_where_the_next_step_promises_nothing_not_where_the_gradient_is_small() -> None:
    """A stiff direction makes the gradient, a flat one the fall: the gradient is small long before the fall is over."""
    h = torch.diag(torch.tensor([1e4, 1e-2, 2e-2, 3e-2], dtype=torch.float64))
    target = torch.tensor([0.1, 40.0, 30.0, -20.0], dtype=torch.float64)
    evaluate = parabola(h, target)
    x = torch.zeros_like(target)
    value, gradient = evaluate(x)
    whole, left = value, dict[str, float]()
    known = torch.tensor([1e4, 0.1, 0.1, 0.1], dtype=torch.float64)
    for rule, how in {
        "gradient": {"tolerance": 0.01 * float(gradient.norm())},
        "fall": {"tolerance": 0.0, "settled": 1e-3},
    }.items():
        _, report = minimise(evaluate, x, value, gradient, lambda g: g / known, evaluations=100, **how)
        left[rule] = report.value / whole
        assert report.evaluations < 30
    assert left["gradient"] > 0.1
    assert left["fall"] < 0.01


@pytest.mark.parametrize(
    ("before", "now", "left"), [(8, 4, 4), (3, 1, 1), (10, 9, 81), (2, 2, math.inf), (1, 2, math.inf), (1, 0, 0)]
)
def test_what_is_left_to_fall_is_the_sum_of_falls_that_go_on_to_shrink(before: float, now: float, left: float) -> None:
    assert still_to_fall(before, now) == left


def test_it_goes_on_while_small_falls_add_up() -> None:
    """With little memory flat directions fall by little at a time: a stop at the first small fall left 0.195."""
    flat = torch.logspace(-2, 0, 20, dtype=torch.float64)
    h = torch.diag(torch.cat([torch.tensor([100.0], dtype=torch.float64), flat]))
    evaluate = parabola(h, torch.cat([torch.tensor([0.1], dtype=torch.float64), flat**-0.5]))
    x = torch.zeros(21, dtype=torch.float64)
    with tuned(search={"memory": 1}):
        _, report = minimise(evaluate, x, *evaluate(x), lambda g: g / 100, evaluations=2000, tolerance=0.0, pays=0.01)
    assert report.evaluations < 2000
    assert report.value < 0.1 * evaluate(x)[0]


def test_where_gradients_are_dear_each_must_promise_more() -> None:
    h = matrix([1, 3, 10, 30, 100])
    evaluate, start = parabola(h, V), torch.zeros_like(V)
    how = {"evaluations": 100, "tolerance": 0.0, "settled": 1e-9}
    after = ((), ((4, 0.5),), ((4, 1e-9), (6, 0.5)), ((4, 0.5), (6, 1e-9)))
    found = [minimise(evaluate, start, *evaluate(start), lambda g: g / 100, dear=d, **how)[1] for d in after]
    assert found[0].promised is not None
    assert found[0].promised <= 1e-9
    assert found[1].promised is not None
    assert 1e-9 < found[1].promised <= 0.5
    assert [report.evaluations for report in found[1:]] == [4, 6, 4]
    assert found[0].evaluations > 6


def test_negative_curvature_along_the_way_is_reported() -> None:
    def hill(x: Tensor) -> tuple[float, Tensor]:
        return float(torch.cos(x).sum()), -torch.sin(x)

    x = torch.full((2,), 0.3, dtype=torch.float64)
    _, report = minimise(hill, x, *hill(x), None, evaluations=30, tolerance=1e-6)
    assert report.smallest_curvature is not None
    assert report.smallest_curvature < 0
    assert report.converged


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
def test_remembered_pairs_give_the_two_loops(prepared: bool) -> None:
    """Numbers instead of vectors: the same as Nocedal's recursion, also when old pairs make room for new ones."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    square = draw(20, 20)
    curvature = square @ square.T + 20 * torch.eye(20, dtype=torch.float64)
    guess = torch.linalg.inv(curvature + torch.diag(draw(20).abs()))
    inverse = guess.matmul if prepared else None
    memory, pairs, g = Memory(draw(20), inverse, 4), list[tuple[Tensor, Tensor]](), draw(20)
    for _ in range(9):
        q, weights = g.clone(), []
        for s, y in reversed(pairs):
            weights.append((s @ q) / (s @ y))
            q = q - weights[-1] * y
        if inverse is not None:
            r = inverse(q)
        else:
            r = q * (pairs[-1][0] @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1]) if pairs else q / q.norm()
        for (s, y), weight in zip(pairs, reversed(weights), strict=True):
            r = r + (weight - (y @ r) / (s @ y)) * s
        torch.testing.assert_close(memory.times(g), r)
        s = draw(20)
        y = curvature @ s
        memory.add(s, y)
        pairs, g = [*pairs, (s, y)][-4:], g + y

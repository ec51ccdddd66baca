"""Prediction limits: as often exceeded as they say, for numbers that are normal and for numbers that are not."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import stdtrit

from unweave.auditing.limits import Array, limits_of

SHAPES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.normal(3, 2, n),
    "skewed": lambda rng, n: np.exp(rng.normal(0, 1, n)),
    "heavy": lambda rng, n: rng.standard_t(2, n),
    "mostly nothing": lambda rng, n: rng.normal(0, 1, n) ** 5,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_next_number_exceeds_a_limit_as_often_as_it_says(shape: str) -> None:
    rng, over = np.random.default_rng(0), []
    for _ in range(300):
        limits = limits_of(SHAPES[shape](rng, 40))
        over.append(np.mean(SHAPES[shape](rng, 200) > limits.upper(0.05)))
    assert 0.03 < float(np.mean(over)) < 0.08


def test_what_is_normal_is_left_on_its_scale() -> None:
    values = np.array([stdtrit(1e9, p) for p in (np.arange(40) + 0.5) / 40])
    limits = limits_of(values)
    assert limits.bend == 0
    expected = float(np.std(values)) * np.sqrt(40 / 37 * 41 / 40) * stdtrit(37, 0.99)
    assert limits.upper(0.01) == pytest.approx(expected, abs=1e-9)


def test_chance_and_limit_belong_together() -> None:
    for shape in SHAPES.values():
        limits = limits_of(shape(np.random.default_rng(1), 40))
        for rate in (0.3, 0.01, 1e-4):
            assert limits.chance(limits.upper(rate)) == pytest.approx(rate, rel=1e-6)
            assert limits.chance(limits.lower(rate)) == pytest.approx(1 - rate, rel=1e-6)
        assert limits.chance(limits.upper(0.01) + limits.unit) < 0.01


def test_numbers_that_are_all_the_same() -> None:
    limits = limits_of(np.full(40, 0.25))
    assert limits.upper(0.01) == limits.lower(0.01) == 0.25
    assert limits.chance(0.25) == 1
    assert limits.chance(0.26) == 0
    few = np.zeros(40)
    few[:3] = [1.0, 2.0, -1.0]
    assert limits_of(few).upper(0.01) > 0.5, "more than half are the same, and not all"

"""Prediction limits: as often exceeded as they say, for numbers that are normal and for numbers that are not."""

import math
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Literal

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


@pytest.mark.parametrize(("side", "scale"), [("both", "plain"), ("above", "plain"), ("above", "log")])
def test_few_numbers_are_left_as_often_as_it_says(
    side: Literal["both", "above"], scale: Literal["plain", "log"]
) -> None:
    rows = np.random.default_rng(0).normal(3, 2, (4000, 9))
    rows = np.exp(rows) if scale == "log" else rows
    found = [limits_of(row[:8], scale).range(0.05, side) for row in rows]
    outside = np.mean([not low <= row[8] <= high for (low, high), row in zip(found, rows, strict=True)])
    assert outside == pytest.approx(0.05, abs=0.012)


def test_a_plain_limit_is_the_formula() -> None:
    values = [0.5, 0.52, 0.47, 0.55]
    wide = stdtrit(3, 0.995) * stdev(values) * math.sqrt(1 + 1 / 4)
    assert limits_of(values, "plain").range(0.01) == pytest.approx((fmean(values) - wide, fmean(values) + wide))
    assert limits_of(values, "plain").range(0.01, "above")[0] == -math.inf
    assert limits_of(values, "log").range(0.01, "above")[0] == 0, "no distance is below 0"
    assert limits_of([-1.0, 2.0, 3.0], "log") == limits_of([-1.0, 2.0, 3.0], "plain"), "what is not above 0 has no log"


def test_what_is_normal_is_left_on_its_scale() -> None:
    values = np.array([stdtrit(1e9, p) for p in (np.arange(40) + 0.5) / 40])
    limits = limits_of(values)
    expected = float(np.std(values)) * np.sqrt(40 / 37 * 41 / 40) * stdtrit(37, 0.99)
    assert limits.upper(0.01) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", ["plain", "log", "fitted"])
def test_chance_and_limit_belong_together(scale: Literal["plain", "log", "fitted"]) -> None:
    for shape in SHAPES.values():
        limits = limits_of(shape(np.random.default_rng(1), 40), scale)
        for rate in (0.3, 0.01, 1e-4):
            assert limits.chance(limits.upper(rate)) == pytest.approx(rate, rel=1e-6)
            assert limits.chance(limits.lower(rate)) == pytest.approx(1 - rate, rel=1e-6)
        assert limits.chance(limits.upper(0.01) + 1) < 0.01


def test_numbers_that_are_all_the_same() -> None:
    limits = limits_of(np.full(40, 0.25))
    assert limits.upper(0.01) == limits.lower(0.01) == 0.25
    assert limits.chance(0.25) == 1
    assert limits.chance(0.26) == 0
    few = np.zeros(40)
    few[:3] = [1.0, 2.0, -1.0]
    assert limits_of(few).upper(0.01) > 0.5, "more than half are the same, and not all"

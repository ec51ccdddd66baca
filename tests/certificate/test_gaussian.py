"""The noise accounting, against accountants that know nothing of its formula."""

import math

import numpy as np
import pytest
from scipy import integrate, signal, stats

import unweave as uw
from unweave.certificate.gaussian import delta_of, epsilon_of, ratio_of

EPSILONS = (0.05, 0.5, 1.0, 3.0, 8.0)
RATIOS = (0.05, 0.3, 1.0, 2.5)


def hockey_stick(epsilon: float, ratio: float) -> float:
    """∫ max(p − e^ε q, 0) for N(ratio, 1) and N(0, 1), by quadrature from where the integrand is above 0."""
    edge = epsilon / ratio + ratio / 2
    value, _ = integrate.quad(
        lambda x: stats.norm.pdf(x, ratio) - math.exp(epsilon) * stats.norm.pdf(x), edge, edge + 40, limit=400
    )
    return float(value)


def composed(epsilon: float, ratio: float, times: int, *, step: float = 1e-3) -> float:
    """δ of ``times`` Gaussian mechanisms from their discretised privacy losses, convolved one after the other."""
    mean, spread = ratio**2 / 2, ratio
    losses = np.arange(-12 * spread + mean, 12 * spread + mean, step)
    mass = stats.norm.pdf(losses, mean, spread) * step
    total = mass
    for _ in range(times - 1):
        total = signal.fftconvolve(total, mass)
    seen = times * losses[0] + step * np.arange(total.size)
    return float((total * np.clip(1 - np.exp(epsilon - seen), 0, None)).sum())


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_delta_is_that_of_numerical_integration(epsilon: float, ratio: float) -> None:
    assert delta_of(epsilon, ratio) == pytest.approx(hockey_stick(epsilon, ratio), rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_several_models_are_those_of_a_numerical_accountant(times: int, ratio: float) -> None:
    assert delta_of(1.0, math.sqrt(times) * ratio) == pytest.approx(composed(1.0, ratio, times), rel=2e-3)


def test_two_shifts_at_once_count_by_their_length_alone() -> None:
    """In two dimensions, by drawing: P(loss > ε) terms of the hockey-stick divergence."""
    rng, shift, epsilon = np.random.default_rng(0), np.array([0.6, 0.8]), 0.5
    x = rng.standard_normal((400_000, 2)) + shift
    loss = x @ shift - shift @ shift / 2
    drawn = np.clip(1 - np.exp(epsilon - loss), 0, None)
    error = drawn.std() / math.sqrt(drawn.size)
    assert delta_of(epsilon, 1.0) == pytest.approx(drawn.mean(), abs=4 * error)


@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12, 1e-100])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0])
def test_the_ratio_is_the_largest_that_is_allowed(epsilon: float, delta: float) -> None:
    ratio = ratio_of(epsilon, delta)
    assert delta_of(epsilon, ratio) <= delta
    assert delta_of(epsilon, ratio * 1.001) > delta
    assert epsilon_of(delta, ratio) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_it_takes_no_more_noise_than_the_bound_of_guo_et_al(epsilon: float, delta: float) -> None:
    """σ = c·ε′/ε with δ = 1.5 exp(−c²/2) is enough, and more than is needed."""
    c = math.sqrt(2 * math.log(1.5 / delta))
    theirs = epsilon / c
    assert hockey_stick(epsilon, theirs) < delta
    assert theirs < ratio_of(epsilon, delta)


def test_models_seen_together() -> None:
    one, two, ten = (epsilon_of(1e-5, math.sqrt(n) * ratio_of(1.0, 1e-5)) for n in (1, 2, 10))
    assert one == pytest.approx(1.0, rel=1e-5)
    assert 1 < two < 2 < ten < 10
    assert composed(two, ratio_of(1.0, 1e-5), 2) == pytest.approx(1e-5, rel=0.02)
    assert epsilon_of(0.5, 0.1) == 0


@pytest.mark.parametrize("bad", [(0, 1e-5), (1, 0), (1, 1), (-1, 0.1), (math.nan, 0.1), (math.inf, 0.1), (None, 0.1)])
def test_promises_that_cannot_be_kept_are_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(uw.MethodError, match="ε above 0 and δ between 0 and 1"):
        ratio_of(*bad)

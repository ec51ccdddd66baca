"""Certified removal: the noise is where it is said to be, the residual within its budget, and nobody can tell."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

import unweave as uw
from tests.certificate.test_bound import Headed, OneLayer, doubled, minimiser, objective_of
from unweave._core.tuning import TUNING
from unweave.certificate import release as releasing
from unweave.certificate.bound import Linear, examine
from unweave.certificate.gaussian import epsilon_of, ratio_of
from unweave.certificate.release import release
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

PROMISE = (1.0, 1e-5)
DECAY = 1e-2
Array = NDArray[np.float64]


def linear(seed: int = 0, **graph: int) -> tuple[Linear, Tensor]:
    """A small SGC in double precision, found to be linear, and zero parameters."""
    data = small_graph(seed=seed, **graph)
    model, data = doubled(uw.models.SGC(data.num_features, int(data.num_classes)), data)
    found = examine(objective_of(model, data), flatten(model))
    assert isinstance(found, Linear)
    return found, torch.zeros_like(flatten(model))


@pytest.mark.parametrize("seed", range(10))
def test_the_noise_is_in_the_objective_and_in_the_release(seed: int) -> None:
    """With b and z drawn here from the same seed: ∇L'(θ − z) + b is the residual, and within the tolerance."""
    found, zero = linear(seed)
    done = release(found, None, PROMISE, dtype=torch.float64, noise_seed=seed)
    rng, size = np.random.default_rng(seed), zero.numel()
    b, z = (torch.from_numpy(rng.standard_normal(size)) for _ in range(2))
    figures = done.figures
    inner = done.theta - figures["release_noise"] * z
    slope = found.objective.evaluate(inner)[1] + figures["objective_noise"] * b
    assert float(slope.norm()) <= figures["residual"] <= figures["tolerance"]
    assert float((slope - figures["objective_noise"] * b).norm()) > figures["tolerance"]
    at_zero = float(found.objective.evaluate(zero)[1].norm())
    assert figures["tolerance"] == pytest.approx(TUNING.release.tolerance * at_zero)
    assert figures["objective_noise"] == pytest.approx(2 * figures["tolerance"] / ratio_of(*PROMISE))
    assert figures["release_noise"] == pytest.approx(figures["objective_noise"] / found.mu)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.slow)], ids=["two", "four"])
@pytest.mark.parametrize("model", [lambda: uw.models.SGC(8, 3), OneLayer, Headed], ids=["sgc", "gcn", "frozen"])
def test_two_ways_to_the_minimum_end_within_what_the_noise_is_made_for(
    model: Callable[[], torch.nn.Module], seeds: range
) -> None:
    """Refined and retrained with the same b, before z: at most 2τ/μ apart, over seeds and tolerances."""
    for seed in seeds:
        torch.manual_seed(seed)
        module, data = doubled(model(), small_graph(seed=seed))
        found = examine(objective_of(module, data), flatten(module))
        assert isinstance(found, Linear)
        far = 3 * torch.randn(flatten(module).shape, dtype=torch.float64)
        for tolerance in (TUNING.release.tolerance, 1e-3, 0.2):
            ends = [
                release(found, start, PROMISE, dtype=torch.float64, tolerance=tolerance, noise_seed=7, steps=100)
                for start in (far, None)
            ]
            assert [end.by for end in ends] == ["refined", "retrained"]
            apart = float((ends[0].theta - ends[1].theta).norm())
            assert 0 < apart <= 2 * ends[0].figures["tolerance"] / found.mu
            assert ends[0].figures["release_noise"] == ends[1].figures["release_noise"]


def test_training_and_forgetting_keep_the_promise_and_the_quality() -> None:
    data = small_graph(nodes=150)
    plain = uw.train(uw.models.SGC(8, 3), data, forgettable=True, weight_decay=1e-3)
    run = uw.train(uw.models.SGC(8, 3), data, certify=PROMISE)
    assert run.recipe.weight_decay == 1e-3
    assert run.metrics["test_f1"] >= plain.metrics["test_f1"] - 0.1
    done = run.forget(uw.draw("edges:0.05,nodes:0.05", data))
    receipt = done.receipts[-1]
    assert receipt.method["name"] == "certified"
    told = receipt.certificate
    assert told is not None
    assert (told["kind"], told["by"], told["epsilon"], told["delta"]) == ("removal", "refined", *PROMISE)
    assert told["residual"] <= told["tolerance"]
    away = float((flatten(done.model).double() - minimiser(run.model, done.data, 1e-3)).norm())
    assert away <= told["distance"]
    assert "(1, 1e-05)-certified removal" in str(receipt)
    retrained = run.forget(uw.draw("edges:0.05", data), "retrain").receipts[-1].certificate
    assert retrained is not None
    assert (retrained["kind"], retrained["by"]) == ("removal", "retrained")
    other = run.forget(uw.draw("edges:0.05", data), "finetune").receipts[-1].certificate
    assert other is not None
    assert other["kind"] == "bound"


def test_the_noise_is_not_that_of_the_seed_and_never_the_same() -> None:
    data = small_graph()
    runs = [uw.train(uw.models.SGC(8, 3).double(), _double(data), certify=PROMISE, seed=0) for _ in range(2)]
    assert not torch.equal(*(flatten(run.model) for run in runs))
    model, state = uw.models.SGC(8, 3), torch.random.get_rng_state()
    uw.train(model, data, certify=PROMISE)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_seed_of_the_noise_is_no_certificate() -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, certify=PROMISE)
    told = run.forget(uw.draw("edges:0.05", data), "certified", noise_seed=3).receipts[-1].certificate
    assert told is not None
    assert told["kind"] == "bound"
    assert "no removal certified" in told["statement"]


def test_a_sequence_tells_what_all_models_give_away_together() -> None:
    data = small_graph(nodes=120)
    run = uw.train(uw.models.SGC(8, 3), data, certify=PROMISE)
    for seed in range(3):
        run = run.forget(uw.draw("edges:0.03", run.data, seed=seed))
    run = run.forget(uw.draw("edges:0.03", run.data, seed=5), "gif")
    run = run.forget(uw.draw("edges:0.03", run.data, seed=6))
    told = [receipt.certificate or {} for receipt in run.receipts]
    assert [t["kind"] for t in told] == ["removal", "removal", "removal", "bound", "removal"]
    assert "together" not in told[0]
    together = epsilon_of(1e-5, math.sqrt(4) * ratio_of(*PROMISE))
    assert told[4]["together"] == {"models": 4, "epsilon": pytest.approx(together), "delta": 1e-5}
    assert "all 4 models since training seen together" in str(run.receipts[-1])


def test_it_retrains_only_when_refining_does_not_get_there() -> None:
    found, zero = linear()
    far = torch.full_like(zero, 50.0)
    assert release(found, far, PROMISE, dtype=torch.float64, steps=1).by == "retrained"
    assert release(found, far, PROMISE, dtype=torch.float64, steps=100).by == "refined"


def test_a_residual_that_cannot_be_had_publishes_nothing() -> None:
    found, zero = linear()
    with pytest.raises(uw.SolverError, match="nothing was published"):
        release(found, zero, PROMISE, dtype=torch.float64, tolerance=1e-30)


def test_a_certified_run_survives_the_disk(tmp_path: Path) -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, certify=PROMISE).forget(uw.draw("edges:0.05", data))
    run.save(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "weights.safetensors",
        "config.json",
        "split.json",
        "metrics.json",
        "manifest.json",
        "receipts.jsonl",
        "requests.jsonl",
    }
    opened = uw.Run.open(tmp_path / "run", data=data)
    assert opened.recipe == run.recipe
    assert opened.recipe.certify == PROMISE
    opened.verify()
    again = opened.forget(uw.draw("edges:0.05", opened.data, seed=2)).receipts[-1].certificate
    assert again is not None
    assert again["together"]["models"] == 2


def test_a_model_trained_without_noise_can_be_certified_from_its_first_request_on() -> None:
    data = small_graph()
    model = uw.models.SGC(8, 3)
    uw.train(model, data, weight_decay=DECAY)
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(model, data, request, "certified", weight_decay=DECAY, epsilon=0.5, delta=1e-6)
    assert done.receipt.certificate is not None
    assert done.receipt.certificate["kind"] == "removal"
    with pytest.raises(uw.MethodError, match="certified removal needs ε above 0"):
        uw.unlearn(model, data, request, "certified", weight_decay=DECAY)


@pytest.mark.parametrize(
    ("model", "options", "says"),
    [
        (uw.models.GCN(8, 3), {}, "cannot be certified: the outputs of GCN are not linear"),
        (uw.models.SGC(8, 3), {"weight_decay": 0.0}, "'linear.weight' has no weight decay"),
        (uw.models.SGC(8, 3), {"forgettable": True}, "leave forgettable"),
    ],
)
def test_what_cannot_be_certified_is_refused(model: torch.nn.Module, options: dict[str, Any], says: str) -> None:
    with pytest.raises(uw.ModelError, match=says):
        uw.train(model, small_graph(), certify=PROMISE, **options)


@pytest.mark.parametrize("bad", [{"tolerance": 0.0}, {"tolerance": 1.0}, {"steps": 0}, {"epsilon": -1.0}])
def test_bad_options_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(uw.MethodError):
        uw.methods.Certified(**{"epsilon": 1.0, "delta": 1e-5, **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_noise_has_the_spread_that_is_said(count: int) -> None:
    """Over many releases from the system's entropy: cov θ = σ²H⁻² + (σ/μ)²I for small noise."""
    found, zero = linear(nodes=30, features=3, classes=2)
    best = release(found, None, PROMISE, dtype=torch.float64).theta
    hessian = torch.autograd.functional.hessian(_loss(found), best)
    draws = [release(found, best, PROMISE, dtype=torch.float64, tolerance=1e-7) for _ in range(count)]
    sigma = draws[0].figures["objective_noise"]
    inverse = torch.linalg.inv(hessian)
    expected = sigma**2 * (inverse @ inverse + torch.eye(zero.numel(), dtype=torch.float64) / found.mu**2)
    seen = torch.stack([done.theta for done in draws])
    values, vectors = torch.linalg.eigh(expected)
    spread = ((seen - seen.mean(0)) @ vectors).square().mean(0) / values
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], count - 1) / count
    assert low < float(spread.min()) < float(spread.max()) < high


def test_a_residual_that_follows_the_noise_gives_itself_away_without_release_noise() -> None:
    """Why b alone is not enough: an answer on a grid, its residual within the tolerance for every b.

    One parameter, L'(θ) = ½μθ², so the minimiser is −b/μ. Rounding that to multiples of τ/μ leaves a residual of at
    most τ/2. The exact minimiser is never on the grid; the rounded one always is. After z both look alike.
    """
    rng, tau, mu, epsilon, delta = np.random.default_rng(0), 0.3, 2.0, 1.0, 0.05
    sigma = 2 * tau / ratio_of(epsilon, delta)
    exact, solved = (-sigma * rng.standard_normal(4000) / mu for _ in range(2))
    solved = np.round(solved * mu / tau) * tau / mu

    def on_grid(theta: Array) -> Array:
        return np.abs(theta * mu / tau - np.round(theta * mu / tau))

    assert _lower_bound(-on_grid(solved), -on_grid(exact), delta) > 3 * epsilon
    noisy, retrained = (theta + sigma / mu * rng.standard_normal(4000) for theta in (solved, exact))
    assert _lower_bound(-on_grid(noisy), -on_grid(retrained), delta) <= epsilon
    assert _lower_bound(noisy, retrained, delta) <= epsilon


FEW, MANY = 60, 500
"""How many models of each kind an adversary sees; few are enough to find what far too little noise gives away."""

TINY = (0.5, 0.05)
"""A promise that so many trials can tell from no promise at all."""


def _tiny() -> tuple[Linear, Linear]:
    """A tiny model on a graph with a node that pulls hard, and on what remains without it."""
    data = small_graph(nodes=50, features=3, classes=2)
    model, data = doubled(uw.models.SGC(3, 2), data)
    gone = data.train_mask.nonzero().flatten()[:1]
    data.x[gone] *= 3
    data.y[gone] = 1 - data.y[gone]
    before = objective_of(model, data, 0.5)  # as much as the data bend: the bound is then nearly reached
    after = before.without(uw.Request(nodes=tuple(gone.tolist())))
    found = [examine(objective, flatten(model)) for objective in (before, after)]
    assert isinstance(found[0], Linear)
    assert isinstance(found[1], Linear)
    return found[0], found[1]


def _leaked(forgetful: list[Tensor], retrained: list[Tensor]) -> float:
    """What an adversary finds who knows both graphs and looks along the line between the means of half of the draws."""
    seen, known = (torch.stack(models).numpy() for models in (forgetful, retrained))
    half = len(seen) // 2
    direction = seen[:half].mean(0) - known[:half].mean(0)
    return _lower_bound(seen @ direction, known @ direction, TINY[1])


@pytest.mark.parametrize(
    ("less", "told", "trials"),
    [
        pytest.param(1.0, False, FEW, id="as calibrated"),
        pytest.param(100.0, True, FEW, id="a hundredth"),
        pytest.param(1.0, False, MANY, id="as calibrated, many", marks=pytest.mark.slow),
        pytest.param(30.0, True, MANY, id="a thirtieth", marks=pytest.mark.slow),
    ],
)
def test_a_membership_test_cannot_tell_more_than_is_allowed(
    less: float, told: bool, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many trainings, with a tolerance so loose that forgetting need not move the model at all.

    With a part of the noise the same adversary finds far more than ε.
    """
    monkeypatch.setattr(releasing, "ratio_of", lambda *promise: less * ratio_of(*promise))
    before, after = _tiny()

    def models(found: Linear, start: Tensor | None, tolerance: float) -> Tensor:
        return release(found, start, TINY, dtype=torch.float64, tolerance=tolerance).theta

    forgetful = [models(after, models(before, None, 1e-3), 0.15) for _ in range(trials)]
    retrained = [models(after, None, 0.15) for _ in range(trials)]
    assert (_leaked(forgetful, retrained) > TINY[0]) is told


@pytest.mark.parametrize(
    ("less", "told", "trials"),
    [
        pytest.param(1.0, False, FEW, id="as calibrated"),
        pytest.param(16.0, True, FEW, id="a sixteenth"),
        pytest.param(1.0, False, MANY // 2, id="as calibrated, many", marks=pytest.mark.slow),
        pytest.param(8.0, True, MANY // 2, id="an eighth", marks=pytest.mark.slow),
    ],
)
def test_not_even_the_worst_solver_gives_more_away(
    less: float, told: bool, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver that uses all of its tolerance, one way when it refines and the other way when it retrains."""
    monkeypatch.setattr(releasing, "ratio_of", lambda *promise: less * ratio_of(*promise))
    _, after = _tiny()
    flattest = torch.linalg.eigh(torch.autograd.functional.hessian(_loss(after), torch.zeros_like(after.objective.mu)))
    direction = flattest[1][:, 0]
    honest = releasing.newton

    def worst(at: Any, x: Tensor, *, tolerance: float, steps: int) -> Any:
        theta, report = honest(at, x, tolerance=tolerance / 100, steps=steps)
        side = 1.0 if bool(x.any()) else -1.0
        return theta + side * 0.98 * tolerance / float(flattest[0][0]) * direction, report

    monkeypatch.setattr(releasing, "newton", worst)
    start = torch.ones_like(direction)
    forgetful, retrained = (
        [release(after, where, TINY, dtype=torch.float64, tolerance=1e-4).theta for _ in range(trials)]
        for where in (start, None)
    )
    assert (_leaked(forgetful, retrained) > TINY[0]) is told


def _lower_bound(positive: Array, negative: Array, delta: float, confidence: float = 0.999) -> float:
    """A lower bound on ε, true with this confidence: log((true positives − δ) / false positives), either way round.

    The threshold is chosen on the first half, the rates are bounded on the second (Clopper and Pearson).
    """
    half = len(positive) // 2
    best = -math.inf
    for a, b in ((positive, negative), (-negative, -positive)):
        cuts = np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0.01, 0.99, 99))
        scores = [((a[:half] >= cut).mean() - delta + 1e-9) / ((b[:half] >= cut).mean() + 3 / half) for cut in cuts]
        cut = cuts[int(np.argmax(scores))]
        hits, alarms, count = int((a[half:] >= cut).sum()), int((b[half:] >= cut).sum()), len(a) - half
        low = stats.beta.ppf((1 - confidence) / 2, hits, count - hits + 1) if hits else 0.0
        high = stats.beta.ppf(1 - (1 - confidence) / 2, alarms + 1, count - alarms) if alarms < count else 1.0
        best = max(best, math.log(max(low - delta, 1e-12) / high))
    return best


def _loss(found: Linear) -> Callable[[Tensor], Tensor]:
    objective = found.objective

    def loss(theta: Tensor) -> Tensor:
        return objective.node_losses(objective.outputs(theta)).sum() + (objective.mu * theta.square()).sum() / 2

    return loss


def _double(data: Any) -> Any:
    data = data.clone()
    data.x = data.x.double()
    return data


def test_a_certified_model_has_no_training_to_replay() -> None:
    data = small_graph()
    model = uw.models.SGC(data.num_features, int(data.num_classes))
    with pytest.raises(uw.ModelError, match="no path of training to replay"):
        uw.train(model, data, certify=PROMISE, checkpoints=(0.2,))
    run = uw.train(model, data, certify=PROMISE)
    with pytest.raises(uw.MethodError, match="no path of training to replay"):
        run.forget(uw.draw("edges:0.05", data), "replay", share=1)

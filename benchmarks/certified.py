"""What certificates cost and what they are worth: F1 by ε, passes by tolerance, bounds beside true distances.

Usage: UNWEAVE_DATA=… python benchmarks/certified.py [--seeds 5] [--data cora citeseer]

Prints the tables of docs/certificates.md: SGC, 5 % of the edges, δ = 1e-5, weight decay 1e-3.
"""

import argparse
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.cost import Meter
from unweave.certificate.bound import Linear, examine
from unweave.curvature.products import GaussNewton
from unweave.curvature.solvers import Local, newton
from unweave.objective.objective import Objective, call, decay_vector, flatten

DECAY, DELTA, FORGET = 1e-3, 1e-5, "edges:0.05"
EPSILONS = (0.01, 0.1, 1.0, 10.0)
TOLERANCES = (1.5e-8, 1e-5, 1e-3, 1e-2)
METHODS = ("none", "finetune", "gif", "retrain")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=["cora", "citeseer"])
    options = parser.parse_args(arguments)
    for name in options.data:
        graphs = [uw.load(name, seed=seed) for seed in range(options.seeds)]
        for title, rows in (("epsilon", by_epsilon), ("tolerance", by_tolerance), ("bound", by_method)):
            print(f"\n{name}, {title}")
            rows(graphs)


def by_epsilon(graphs: list[Data]) -> None:
    """F1 before and after, the noise, and what retraining would have cost."""
    _row("no noise", [_forget(_trained(g, s, None), g, s) for s, g in enumerate(graphs)])
    for epsilon in EPSILONS:
        runs = [_trained(g, s, (epsilon, DELTA)) for s, g in enumerate(graphs)]
        _row(f"{epsilon:g}", [_forget(run, g, s) for s, (run, g) in enumerate(zip(runs, graphs, strict=True))])
    _row("retrain", [_forget(run, g, s, "retrain") for s, (run, g) in enumerate(zip(runs, graphs, strict=True))])


def by_tolerance(graphs: list[Data]) -> None:
    """The same for ε = 1 with more noise and less work."""
    runs = [_trained(g, s, (1.0, DELTA)) for s, g in enumerate(graphs)]
    for tolerance in TOLERANCES:
        some = [
            _forget(run, g, s, "certified", tolerance=tolerance)
            for s, (run, g) in enumerate(zip(runs, graphs, strict=True))
        ]
        _row(f"{tolerance:g}", some)


def by_method(graphs: list[Data]) -> None:
    """How many times the true distance the bound is."""
    for method in METHODS:
        ratios = []
        for seed, graph in enumerate(graphs):
            run = _trained(graph, seed, None)
            done = run.forget(uw.draw(FORGET, graph, seed=seed), method)
            told = done.receipts[-1].certificate or {}
            away = float((flatten(done.model).double() - _minimiser(done)).norm())
            ratios.append(told["distance"] / away)
        print(f"{method:<10} bound / true distance {min(ratios):.2f} … {max(ratios):.2f}")


def _trained(graph: Data, seed: int, promise: tuple[float, float] | None) -> uw.Run:
    model = uw.models.SGC(graph.num_features, graph.num_classes)
    return uw.train(model, graph, seed=seed, weight_decay=DECAY, forgettable=promise is None, certify=promise)


Measured = tuple[float, float, float, float, float]


def _forget(run: uw.Run, graph: Data, seed: int, method: str | None = None, **options: Any) -> Measured:
    done = run.forget(uw.draw(FORGET, graph, seed=seed), method, **options)
    receipt, told = done.receipts[-1], done.receipts[-1].certificate or {}
    share = told["distance"] / receipt.parameters["norm_before"]
    return run.metrics["test_f1"], done.metrics["test_f1"], told.get("release_noise", 0.0), share, receipt.passes


def _row(name: str, found: list[Measured]) -> None:
    before, after, noise, share, passes = zip(*found, strict=True)
    spread = stdev(after) if len(after) > 1 else 0.0
    print(
        f"{name:<10} F1 {mean(before):.3f} → {mean(after):.3f} ± {spread:.3f}, noise {mean(noise):.1e}, "
        f"within {mean(share):.1e} of ‖θ‖, {mean(passes):.0f} passes"
    )


def _minimiser(run: uw.Run) -> Tensor:
    """θ* on the graph of a run, to 1e-10."""
    model, meter = run.model, Meter(torch.device("cpu"))
    decay = decay_vector(model, DECAY)
    found = examine(Objective(model, run.data, run.loss, decay, call, meter), flatten(model))
    assert isinstance(found, Linear)
    theta, report = newton(_at(found.objective), flatten(model).double(), tolerance=1e-10, steps=50)
    assert report.converged
    return theta


def _at(objective: Objective) -> Callable[[Tensor], Local]:
    def at(theta: Tensor) -> Local:
        point = objective.at(theta)
        return point.value, point.gradient(), lambda: GaussNewton(point, check=False)

    return at


if __name__ == "__main__":
    main()

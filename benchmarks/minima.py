"""Short of a retrained model: because there are several minima, or because nobody went on for long enough?

    python benchmarks/minima.py --device cuda --data wordnet --model gcn --decay 3e-5
    python benchmarks/minima.py --device cuda --data narrow-100k --model sign --decay 3e-4 --activation silu
    python benchmarks/minima.py --data hubs-10k --model sage --decay 1e-4 --hidden 64 --gradients 120

One model is trained to its minimum from two seeds and polished on, round after round of so many gradients. A line of
``rounds.jsonl`` has what a round left: the objective and its gradient, F1, and how far the seeds differ beside what the
request changes. After the last a retraining without what the request takes is polished as long, and lines of
``requests.jsonl`` say what ``gif`` closes of the gap to it, and what a restart does that goes on: after so many
gradients, with the curvature prepared on the old graph or with that of the remaining one, with more of it, and with
more steps remembered. Every line is written as soon as it is known.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from generated import hard
from pages.minima import PAGE
from shared import append, arguments, made
from torch import Tensor
from torch_geometric.data import Data
from wide import GENERATED

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.curvature.preparation import prepare_objective, rank_for
from unweave.curvature.prepared import Prepared
from unweave.curvature.products import products
from unweave.curvature.solvers import LowRank, low_rank, minimise
from unweave.models import build
from unweave.objective.decay import decay_vector
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities, score_outputs
from unweave.training.adam import reinitialise, seeded
from unweave.training.agreement import FIRST_PHASE, FIRST_RATE, descend
from unweave.training.minimum import polish_objective

OTHERS: dict[str, Callable[..., Data]] = {
    "hubs-10k": partial(hard, 10_000, hubs=True),
    "narrow-100k": partial(hard, 100_000, features=64),
}
COUNTS = (10, 20, 30, 45, 60, 90, 120, 180, 240)
"""Gradients after which a restart is looked at."""


def objective_of(graph: Data, model: str, hidden: int, activation: str, decay: float, seed: int) -> Objective:
    """A model after the first phase of its training, with what it minimises."""
    options: dict[str, Any] = {"forgettable": True, "nodes": int(graph.train_mask.sum())}
    options |= {"activation": activation} if activation else {}
    name, _, layers = model.partition("-")
    options |= ({"hidden": hidden} if hidden else {}) | ({"layers": int(layers)} if layers else {})
    module = build(name, graph.num_features, graph.num_classes, **options).to(graph.x.device)
    with seeded(seed, graph.x.device):
        reinitialise(module)
    loss = as_loss(cross_entropy)
    found = Objective(module, graph, loss, decay_vector(module, decay), call, Meter(graph.x.device))
    descend(found, seed=seed, epochs=FIRST_PHASE, lr=FIRST_RATE)
    return found


def outputs(objective: Objective, theta: Tensor | None = None) -> Tensor:
    """Log-probabilities of all nodes."""
    with torch.no_grad():
        return objective.outputs(flatten(objective.model) if theta is None else theta).log_softmax(dim=-1)


@contextmanager
def remembering(pairs: int) -> Iterator[None]:
    """So many pairs of steps and gradients in a minimisation."""
    before = TUNING.search.memory
    object.__setattr__(TUNING.search, "memory", pairs)
    try:
        yield
    finally:
        object.__setattr__(TUNING.search, "memory", before)


def curvature_at(objective: Objective, theta: Tensor, rank: int) -> LowRank:
    """The top of the curvature at a point."""
    operator = products("gauss-newton", objective.at(theta))
    operator.record()
    return low_rank(operator, theta, rank=rank)


def follow(
    remaining: Objective, theta: Tensor, curvature: LowRank, counts: tuple[int, ...]
) -> tuple[list[tuple[int, Tensor]], list[float]]:
    """Where a restart is after so many gradients, and the least value of the objective after each."""
    seen: list[tuple[int, Tensor]] = []
    values: list[float] = []
    best: list[tuple[float, Tensor]] = []
    spent = 0

    def evaluate(there: Tensor) -> tuple[float, Tensor]:
        nonlocal spent
        value, slope = remaining.evaluate(there)
        spent += 1
        if not best or value <= best[0][0]:
            best[:] = [(value, there)]
        values.append(best[0][0])
        if spent in counts:
            seen.append((spent, best[0][1].clone()))
        return value, slope

    value, gradient = remaining.evaluate(theta)
    best.append((value, theta))
    values.append(value)
    minimise(evaluate, theta, value, gradient, curvature.solve, evaluations=counts[-1], tolerance=0.0)
    return seen, values


@dataclass(frozen=True)
class Cell:
    """One model on one graph, and where what is found of it goes.

    Attributes:
        asked: The options.
        graph: The graph.
        request: What is to be forgotten.
        kept: Which nodes remain.
    """

    asked: Namespace
    graph: Data
    request: uw.Request
    kept: Tensor

    def train(self, graph: Data, seed: int) -> Objective:
        """The first phase."""
        asked = self.asked
        return objective_of(graph, asked.model, asked.hidden, asked.activation, asked.decay, seed)

    def gap(self, target: Tensor, found: Tensor) -> float:
        """How far some outputs are from others."""
        return gap(target, found, self.kept)

    def tell(self, name: str, **found: Any) -> None:
        """Write a line."""
        of = {key: getattr(self.asked, key) for key in ("data", "model", "hidden", "decay", "gradients", "request")}
        of |= {"activation": self.asked.activation} if self.asked.activation else {}
        append(self.asked.out / f"{name}.jsonl", of | found | made(self.asked.device))


def rounds(cell: Cell, until: float) -> tuple[Objective, Objective, Prepared, int]:
    """Polish two seeds on; the first of them, what remains for it, its state, and how many rounds there were."""
    own, other = cell.train(cell.graph, 0), cell.train(cell.graph, 1)
    first, rank, remaining = own.meter.passes, rank_for(own), own.without(cell.request)
    for number in range(1, cell.asked.rounds + 1):
        report = polish_objective(own, evaluations=cell.asked.gradients)
        beside = polish_objective(other, evaluations=cell.asked.gradients)
        theta, here = flatten(own.model), outputs(own)
        followed, _ = follow(remaining, theta, curvature_at(own, theta, rank), (60,))
        seeds = cell.gap(here, outputs(other))
        deletion = cell.gap(outputs(remaining, followed[0][1]), outputs(remaining, theta))
        scores = score_outputs(here, cell.graph, own.loss)
        found = {key: report[key] for key in ("objective", "gradient_norm", "evaluations", "passes")}
        found |= {key: scores[key] for key in ("test_f1", "val_f1")} | {"seeds": seeds, "deletion": deletion}
        cell.tell("rounds", round=number, **found, other=beside["objective"], agreement=1 - seeds / deletion)
        if time.time() > until:
            break
    passes = first + number * report["passes"]
    prepared = replace(prepare_objective(own, theta), agreement=1 - seeds / deletion, whole=passes)
    return own, remaining, prepared, number


def requests(cell: Cell, own: Objective, remaining: Objective, prepared: Prepared, number: int) -> None:
    """What ``gif`` closes, and restarts that go on."""
    retrained, theta, rank = cell.train(remaining.data, 0), flatten(own.model), rank_for(own)
    polish_objective(retrained, evaluations=number * cell.asked.gradients)
    target = outputs(retrained)
    none = cell.gap(target, outputs(remaining, theta))
    done = uw.unlearn(own.model, cell.graph, cell.request, "gif", weight_decay=cell.asked.decay, prepared=prepared)
    cell.tell(
        "requests",
        round=number,
        how="gif",
        gap=none,
        closed=closed(cell.gap(target, log_probabilities(done.model, done.data)), none),
        evaluations=done.receipt.details.get("evaluations"),
        passes=done.receipt.passes,
        retrain_passes=retrained.meter.passes,
        warnings=list(done.receipt.warnings),
    )

    def look(how: str, curvature: LowRank, pairs: int = TUNING.search.memory) -> None:
        with remembering(pairs):
            found, values = follow(remaining, theta, curvature, COUNTS)
        reached = [(spent, closed(cell.gap(target, outputs(remaining, there)), none)) for spent, there in found]
        cell.tell("requests", round=number, how=how, gap=none, closed=reached, values=values)

    look("prepared", prepared.curvature)
    look("of the remaining graph", curvature_at(remaining, theta, rank))
    look("prepared, of four times the rank", curvature_at(own, theta, 4 * rank))
    look("prepared, 120 pairs", prepared.curvature, 120)


def main() -> None:
    """Measure one cell."""
    parser = arguments(
        __doc__,
        "minima",
        data="wordnet",
        model="gcn",
        hidden=0,
        activation="",
        decay=3e-5,
        gradients=600,
        rounds=3,
        device="cpu",
        request="nodes:0.05",
        minutes=600.0,
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    until = time.time() + 60 * asked.minutes
    drawn = GENERATED | OTHERS
    graph = (drawn[asked.data](seed=0) if asked.data in drawn else uw.load(asked.data, seed=0)).to(asked.device)
    request = uw.draw(asked.request, graph, seed=0)
    kept = torch.ones(graph.num_nodes, dtype=torch.bool, device=graph.x.device)
    kept[list(request.nodes)] = False
    cell = Cell(asked, graph, request, kept)
    requests(cell, *rounds(cell, until))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

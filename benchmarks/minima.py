"""Short of a retrained model: because there are several minima, or because nobody went on for long enough?

    python benchmarks/minima.py --device cuda --data wordnet --model gcn --decay 3e-5
    python benchmarks/minima.py --data hubs-10k --model sage --decay 1e-4 --gradients 600 --rounds 2

One model is trained to its minimum from two seeds and polished on, round after round of so many gradients. A line of
``rounds.jsonl`` has what a round left: the objective and its gradient, F1, and how far the seeds differ beside what the
request changes. After the first round and the last a retraining without what it takes is polished as long, and lines of
``requests.jsonl`` say what a restart closes of the gap to it after so many gradients: with the curvature prepared on
the old graph or with that of the remaining one, and with more of it remembered. Every line is written as soon as it is
known.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from generated import hard
from shared import Document, append, arguments, made
from torch import Tensor
from torch_geometric.data import Data
from wide import GENERATED

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.curvature.preparation import rank_for
from unweave.curvature.products import products
from unweave.curvature.solvers import LowRank, low_rank, minimise
from unweave.models import build
from unweave.objective.decay import decay_vector
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, score_outputs
from unweave.training.adam import reinitialise, seeded
from unweave.training.agreement import FIRST_PHASE, FIRST_RATE, descend
from unweave.training.minimum import polish_objective

SMALL: dict[str, Callable[..., Data]] = {"hubs-10k": partial(hard, 10_000, hubs=True)}
COUNTS = (10, 20, 30, 45, 60, 90, 120, 180, 240)
"""Gradients after which a restart is looked at."""


def objective_of(graph: Data, model: str, hidden: int, decay: float, seed: int) -> Objective:
    """A model after the first phase of its training, with what it minimises."""
    options: dict[str, Any] = {"forgettable": True, "nodes": int(graph.train_mask.sum())}
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


def main() -> None:
    """Measure one cell."""
    parser = arguments(
        __doc__,
        "minima",
        data="wordnet",
        model="gcn",
        hidden=0,
        decay=3e-5,
        gradients=2400,
        rounds=2,
        device="cpu",
        request="nodes:0.05",
        minutes=600.0,
    )
    parser.add_argument("--brief", action="store_true", help="one restart alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    until = time.time() + 60 * asked.minutes
    drawn = GENERATED | SMALL
    graph = (drawn[asked.data](seed=0) if asked.data in drawn else uw.load(asked.data, seed=0)).to(asked.device)
    cell: Document = {key: getattr(asked, key) for key in ("data", "model", "hidden", "decay", "gradients", "request")}
    request = uw.draw(asked.request, graph, seed=0)
    kept = torch.ones(graph.num_nodes, dtype=torch.bool, device=graph.x.device)
    kept[list(request.nodes)] = False
    train = partial(objective_of, model=asked.model, hidden=asked.hidden, decay=asked.decay)

    def tell(name: str, **found: Any) -> None:
        append(asked.out / f"{name}.jsonl", cell | found | made(asked.device))

    own, other = train(graph, seed=0), train(graph, seed=1)
    rank, remaining = rank_for(own), own.without(request)
    retrained: Objective | None = None
    for number in range(asked.rounds):
        report = polish_objective(own, evaluations=asked.gradients)
        theta, here = flatten(own.model), outputs(own)
        old = curvature_at(own, theta, rank)
        deletion = gap(
            outputs(remaining, follow(remaining, theta, old, (120,))[0][0][1]), outputs(remaining, theta), kept
        )
        scores = score_outputs(here, graph, own.loss)
        found = {key: report[key] for key in ("objective", "gradient_norm", "evaluations", "passes")}
        found |= {"test_f1": scores["test_f1"], "val_f1": scores["val_f1"], "deletion": deletion}
        beside = polish_objective(other, evaluations=asked.gradients)
        seeds = gap(here, outputs(other), kept)
        tell("rounds", round=number, **found, other=beside["objective"], seeds=seeds, agreement=1 - seeds / deletion)
        if time.time() > until:
            break
        if number and number < asked.rounds - 1:
            continue
        retrained = train(remaining.data, seed=0) if retrained is None else retrained
        polish_objective(retrained, evaluations=(number or 1) * asked.gradients)
        target = outputs(retrained)
        none = gap(target, outputs(remaining, theta), kept)

        def look(
            how: str,
            curvature: LowRank,
            start: Tensor = theta,
            counts: tuple[int, ...] = COUNTS,
            pairs: int = TUNING.search.memory,
            *,
            number: int = number,
            target: Tensor = target,
            none: float = none,
        ) -> Tensor:
            with remembering(pairs):
                found, values = follow(remaining, start, curvature, counts)
            reached = [(spent, closed(gap(target, outputs(remaining, there), kept), none)) for spent, there in found]
            tell("requests", round=number, how=how, gap=none, closed=reached, values=values)
            return found[-1][1]

        look("prepared", old)
        if asked.brief or number:
            continue
        look("prepared, 120 pairs", old, pairs=120)
        look("of the remaining graph", curvature_at(remaining, theta, rank))
        midway = look("prepared, to 60", old, counts=(60,))
        look("then the curvature there", curvature_at(remaining, midway, rank), midway, (10, 20, 30, 60, 120, 180))
        look("prepared, of four times the rank", curvature_at(own, theta, 4 * rank))


if __name__ == "__main__":
    main()

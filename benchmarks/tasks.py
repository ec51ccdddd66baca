"""Links and recommendations: how near ``gif`` comes to retraining, what it costs, and whether interactions are gone.

    python benchmarks/tasks.py --device cuda
    python benchmarks/tasks.py --device cpu --data cora:links --model linker

A cell is a graph, a model, a way of training and a seed. Its line in ``cells.jsonl`` has the scores of the model and,
for every request, what each method closes of the gap to a model retrained the same way, its cost in passes over the
graph, its score beside the retrained one's, and how well an attack tells deleted interactions from ones that were never
there. The gap of a recommender is that of the softmax over all items, of every user that remains; of a link predictor
that of the probabilities of its pairs. ``none`` is UtU: the edges go, the parameters stay. GNNDelete stands beside.
"""

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from gnndelete import gnndelete
from pages.tasks import PAGE
from shared import Document, arguments, each, lines, made, write_lines
from torch import Tensor, nn

import unweave as uw
from unweave.errors import UnweaveError
from unweave.models import build
from unweave.objective.scores import closed, log_probabilities
from unweave.tasks import Links, Recommendation
from unweave.tasks.ranking import auc

REQUESTS = ("interactions:0.05", "users:0.01", "items:0.01", "one-interaction")
OF_LINKS = ("interactions:0.05", "nodes:0.01", "one-interaction")


def bipartite(users: int, items: int, each_user: int, seed: int = 0) -> Recommendation:
    """Users who choose items by tastes that they share with some others, popular ones more often."""
    draw = torch.Generator().manual_seed(seed)
    tastes, kinds = 16, 64
    one, other = torch.randn(users, tastes, generator=draw), torch.randn(kinds, tastes, generator=draw)
    kind_of = torch.randint(kinds, (items,), generator=draw)
    by_kind = [(kind_of == kind).nonzero().flatten() for kind in range(kinds)]
    chance = torch.softmax(2.0 * one @ other.t() / tastes**0.5, dim=1)
    chosen = torch.multinomial(chance, each_user, replacement=True, generator=draw)
    place = (torch.rand(chosen.shape, generator=draw) ** 3 * torch.tensor([len(k) for k in by_kind])[chosen]).long()
    padded = nn.utils.rnn.pad_sequence(by_kind, batch_first=True)
    pairs = torch.stack([torch.arange(users).repeat_interleave(each_user), padded[chosen, place].flatten()], dim=1)
    return Recommendation.of(pairs, users=users, items=items, negatives=8, seed=seed)


GENERATED = {
    "bipartite-20k": partial(bipartite, 1_000, 500, 20),
    "bipartite-100k": partial(bipartite, 5_000, 2_000, 20),
    "bipartite-1m": partial(bipartite, 50_000, 10_000, 20),
}


@dataclass(frozen=True)
class Cell:
    """What is measured, and how."""

    data: str
    model: str
    way: str
    seed: int
    device: str
    requests: tuple[str, ...]
    others: int
    until: float


def measure(cell: Cell) -> Document | None:
    """A cell; ``None`` where there is no time left to begin it."""
    if time.time() > cell.until:
        return None
    made_by = GENERATED.get(cell.data, partial(uw.load, cell.data))
    graph: Any = made_by(seed=cell.seed).to(cell.device)
    name, _, hidden = cell.model.partition("-")
    wide = cell.way == "forgettable"
    options: dict[str, Any] = {"hidden": int(hidden)} if hidden else {}
    nodes = int(graph.train_mask.sum())
    model = build(name, graph.num_features, int(graph.num_classes), forgettable=wide, nodes=nodes, **options)
    run = uw.train(model.to(cell.device), graph, seed=cell.seed, forgettable=wide)
    document: Document = {key: getattr(cell, key) for key in ("data", "model", "way", "seed")}
    document["trained"] = {
        "config": model.config,
        "recipe": asdict(run.recipe),
        "metrics": {key: value for key, value in run.metrics.items() if not key.endswith("seconds")},
    }
    if not wide:
        run = run.prepare()
    document["requests"] = {name: _forget(run, drawn(name, graph, cell.seed), cell.others) for name in cell.requests}
    return document | made(cell.device)


def drawn(spec: str, graph: Links, seed: int) -> uw.Request:
    """A random request: users, items, or interactions."""
    kind, _, share = spec.partition(":")
    if kind in ("interactions", "one-interaction"):
        found = uw.draw(f"edges:{share or 0.05}", graph, seed=seed)
        return found if share else uw.Request(edges=found.edges[:1])
    ids = graph.nodes_of(kind.rstrip("s")) if isinstance(graph, Recommendation) else graph.layout.real
    order = torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(seed))
    return uw.Request(nodes=ids.cpu()[order[: max(1, round(float(share) * ids.numel()))]].tolist())


def distribution(model: nn.Module, graph: Links, request: uw.Request) -> Tensor:
    """Log-probabilities of the task, of who remains."""
    gone = torch.tensor(request.nodes, dtype=torch.long, device=graph.x.device)
    if isinstance(graph, Recommendation):
        users = graph.nodes_of("user")
        return graph.log_probabilities(model)[~torch.isin(users, gone)]
    kept = graph.train_mask | graph.val_mask | graph.test_mask
    return log_probabilities(model, graph)[kept]


def distance(target: Tensor, other: Tensor) -> float:
    """Mean KL; what has no probability in both counts nothing."""
    total = 0.0
    for some in zip(torch.split(target, 4096), torch.split(other, 4096), strict=True):
        p, q = (part.double() for part in some)
        total += float(torch.where(torch.isfinite(p), p.exp() * (p - q), 0.0).sum())
    return total / target.size(0)


def membership(model: nn.Module, before: Links, after: Links, request: uw.Request) -> float | None:
    """How often an attack by the loss puts a deleted interaction before one that was never there: 0.5 knows nothing.

    The pairs are scored on the graph that remains; only those whose nodes remain can be.
    """
    full = before.complete(request)
    at, gone = before.layout, torch.tensor(full.nodes, dtype=torch.long, device=before.x.device)
    lost = torch.isin(at.examples, gone) & before.train_mask[at.examples]
    ends = torch.stack([at.head, before.true_tails()])
    there = after.x.flatten(1).any(dim=1)[at.real] if isinstance(after, Recommendation) else ~torch.isin(at.real, gone)
    if before.spec["binary"]:
        lost &= before.y[at.examples] == 1
    lost &= there[ends].all(dim=0)
    fresh = before.test_mask[at.examples] & (before.y[at.examples] == 1 if before.spec["binary"] else True)
    fresh &= there[ends].all(dim=0)
    if int(lost.sum()) < 20:
        return None
    with torch.no_grad():
        z = after.encode(model.eval())
    decode = getattr(model, "decode", lambda z, p: (z[p[0]] * z[p[1]]).sum(dim=1))
    own, other = (decode(z, ends[:, some]) for some in (lost, fresh))
    return auc(own, other)


def _forget(run: uw.Run, request: uw.Request, others: int) -> Document:
    """What each method closes of the gap to a model retrained the same way, and how far other retrainings are."""
    before: Any = run.data
    retrained = run.forget(request, "retrain", allow_class_loss=True)
    left: Any = retrained.data
    target = distribution(retrained.model, left, request)
    none = distance(target, distribution(run.model, left, request))
    main = "test_recall@20" if isinstance(left, Recommendation) else "test_auc"

    def row(model: nn.Module, passes: float) -> Document:
        return {
            "gap_closed": closed(distance(target, distribution(model, left, request)), none),
            "passes": passes,
            "score": left.scores(model).get(main),
            "membership": membership(model, before, left, request),
        }

    found: Document = {"gap": none, "asked": request.describe(), "rows": {}}
    found["rows"]["retrain"] = row(retrained.model, retrained.receipts[-1].passes)
    found["rows"]["none"] = row(run.model, 0)
    found["rows"]["gnndelete"] = row(gnndelete(run.model, before, left, request), 0)
    try:
        done = run.forget(request, "gif", allow_class_loss=True)
        receipt = done.receipts[-1]
        found["rows"]["gif"] = row(done.model, receipt.passes) | {
            "gradients": receipt.details.get("evaluations"),
            "grade": receipt.grade,
            "removed": receipt.removed,
        }
        epochs = max(1, receipt.passes // 2)
        tuned = run.forget(request, "finetune", epochs=epochs, allow_class_loss=True)
        found["rows"]["finetune"] = row(tuned.model, tuned.receipts[-1].passes)
    except UnweaveError as error:
        found["refused"] = str(error)
    found["floors"] = []
    for number in range(others):
        other = replace(run.recipe, seed=run.recipe.seed + 1 + number)
        how: dict[str, Any] = {"weight_decay": run.recipe.weight_decay, "recipe": other, "seed": other.seed}
        again = uw.unlearn(run.model, before, request, "retrain", allow_class_loss=True, **how)
        found["rows"].setdefault("another seed", row(again.model, again.receipt.passes))
        found["floors"].append(distance(target, distribution(again.model, left, request)))
    return found


def main() -> None:
    """Measure what is missing, and keep each cell as soon as it is done."""
    parser = arguments(
        __doc__,
        "tasks",
        data=("lastfm",),
        model=("lightgcn",),
        way=("forgettable", "ordinary"),
        seed=(0,),
        requests=("",),
        others=1,
        device="cpu",
        jobs=1,
        minutes=600.0,
    )
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    known = {_key(cell): cell for cell in lines(path)}
    until = time.time() + 60 * asked.minutes
    cells = [
        Cell(data, model, way, seed, asked.device, _requests(data, asked.requests), asked.others, until)
        for data in asked.data
        for model in asked.model
        for way in asked.way
        for seed in asked.seed
        if (data, model, way, seed) not in known
    ]
    for done in each(measure, cells, asked.jobs):
        if done is not None:
            known[_key(done)] = done
            write_lines(path, (known[key] for key in sorted(known)))
    PAGE.write(asked.out)


def _requests(data: str, asked: tuple[str, ...]) -> tuple[str, ...]:
    return asked if asked != ("",) else OF_LINKS if data.endswith(":links") else REQUESTS


def _key(cell: Document) -> tuple[str, str, str, int]:
    return cell["data"], cell["model"], cell["way"], cell["seed"]


if __name__ == "__main__":
    main()

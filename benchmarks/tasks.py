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
from torch import nn

import unweave as uw
from unweave.errors import UnweaveError
from unweave.graph.removal import remove
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
    if cell.device != "cpu":
        document["trained"]["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    answers = {name: _answer(run, drawn(name, graph, cell.seed)) for name in cell.requests}
    recipe = run.recipe
    del run  # its prepared state takes as much memory as a retraining
    document["requests"] = {name: _compare(graph, recipe, a, cell.others) for name, a in answers.items()}
    if cell.device != "cpu":
        document["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
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


def distance(one: nn.Module, other: nn.Module, graph: Links, request: uw.Request) -> float:
    """Mean KL of the task's own distribution, over who remains; what has no probability in both counts nothing."""
    gone = torch.tensor(request.nodes, dtype=torch.long, device=graph.x.device)
    users = isinstance(graph, Recommendation)  # by items they are many numbers: some users at a time
    there = ~torch.isin(graph.nodes_of("user"), gone) if users else graph.train_mask | graph.val_mask | graph.test_mask
    kept = there.nonzero().flatten()
    total = 0.0
    for some in torch.split(kept, 4096 if users else kept.numel()):
        p, q = (
            (graph.log_probabilities(m, some) if users else log_probabilities(m, graph)[some]).double()
            for m in (one, other)
        )
        total += float(torch.where(torch.isfinite(p), p.exp() * (p - q), 0.0).sum())
    return total / kept.numel()


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


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Attributes:
        request: What was asked.
        left: The graph that remains.
        models: By the name of the method.
        passes: That each took.
        told: What the receipt of ``gif`` says.
        refused: Why there is none.
    """

    request: uw.Request
    left: Any
    models: dict[str, nn.Module]
    passes: dict[str, float]
    told: Document
    refused: str | None = None


def _answer(run: uw.Run, request: uw.Request) -> Answer:
    """What each method that does not retrain makes of a request."""
    left: Any = remove(run.data, request).data
    models = {"none": run.model, "gnndelete": gnndelete(run.model, run.data, left, request)}
    passes: dict[str, float] = {}
    try:
        receipt = (done := run.forget(request, "gif", allow_class_loss=True)).receipts[-1]
        tuned = run.forget(request, "finetune", epochs=max(1, receipt.passes // 2), allow_class_loss=True)
    except UnweaveError as error:
        return Answer(request, left, models, passes, {}, str(error))
    for name, after in (("gif", done), ("finetune", tuned)):
        models[name], passes[name] = after.model, after.receipts[-1].passes
    told = {"gradients": receipt.details.get("evaluations"), "grade": receipt.grade, "removed": receipt.removed}
    told["peak_mib"] = receipt.peak_mib
    told |= {key: receipt.details[key] for key in ("recorded", "born", "ended") if key in receipt.details}
    return Answer(request, left, models, passes, told)


def _compare(before: Links, recipe: uw.Recipe, answer: Answer, others: int) -> Document:
    """What each answer closes of the gap to a model retrained the same way, and how far other retrainings are."""
    request, left, models, passes = answer.request, answer.left, dict(answer.models), dict(answer.passes)
    floors = []
    for number in range(1 + others):
        again = replace(recipe, seed=recipe.seed + number)
        how: dict[str, Any] = {"weight_decay": recipe.weight_decay, "recipe": again, "seed": again.seed}
        retrained = uw.unlearn(models["none"], before, request, "retrain", allow_class_loss=True, **how)
        if number:
            floors.append(distance(models["retrain"], retrained.model, left, request))
        if (name := "another seed" if number else "retrain") not in models:
            models[name], passes[name] = retrained.model, retrained.receipt.passes
    none = distance(models["retrain"], models["none"], left, request)
    main = "test_recall@20" if isinstance(left, Recommendation) else "test_auc"
    rows = {
        name: {
            "gap_closed": closed(distance(models["retrain"], model, left, request), none),
            "passes": passes.get(name, 0),
            "score": left.scores(model).get(main),
            "membership": membership(model, before, left, request),
        }
        for name, model in models.items()
    }
    if answer.refused is None:
        rows["gif"] |= answer.told
    found: Document = {"gap": none, "asked": request.describe(), "floors": floors, "rows": rows}
    return found if answer.refused is None else found | {"refused": answer.refused}


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

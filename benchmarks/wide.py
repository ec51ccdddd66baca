"""The recipe of wide models: how good they are, whether seeds agree, and how near ``gif`` comes to retraining.

    python benchmarks/wide.py --device cuda --jobs 12
    python benchmarks/wide.py --device cpu --data cora --model gcn,sage

A cell is a graph, a model and a seed. Its line in ``cells.jsonl`` has the ordinary models of the same kind (of the
paper's size and as wide, each trained until validation says enough), the one that can forget with what ``train`` says
of it, and for every request what ``gif`` and a retraining from another seed close of the gap, with their costs in
passes over the graph, which are the same on every machine. What is there already is not measured again: of a cell that
lacks some of the requests only these are done, on the model that its line tells of, trained again with the decay that
was found. ``--anew`` measures whole cells again, by the code as it is. On a million nodes the search for a weight decay
takes most of the time: ``--decay`` gives one, and the line says so. With ``--activation`` the models that can forget
have another one than they are built with; ordinary models, which do not change with it, are taken over from a line that
has them, and left out by ``--no-ordinary``.

Processes that share a GPU take turns, unless its multi-process service runs (``nvidia-cuda-mps-control -d``): with it
twelve of them took a tenth of the time. Of 100,000 nodes and more it is no help: on an H200 six filled five cells and
did another in two minutes; thirteen, two of them with a million nodes, did five and parts of five in nine.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from generated import hard
from pages.wide import PAGE
from shared import Document, arguments, each, lines, made, write_lines
from torch_geometric.data import Data

import unweave as uw
from unweave.errors import UnweaveError
from unweave.experiments.poison import poison
from unweave.models import MODELS as MODULES, build
from unweave.objective.scores import closed, gap, log_probabilities

GENERATED: dict[str, Callable[..., Data]] = {
    "hard-100k": partial(hard, 100_000),
    "hubs-100k": partial(hard, 100_000, hubs=True),
    "hard-1m": partial(hard, 1_000_000, features=64),
}
REAL = ("wordnet", "physics", "computers", "cs", "pubmed", "dblp", "photo", "citeseer", "cora")
MODELS = ("sage", "gcn", "sign", "sgc", "gat", "gin", "sage-3")
"""By name, and layers where they are not two."""

REQUESTS = ("edges:0.05", "nodes:0.05", "flipped:0.1")
ONE = {"one-node": "nodes:0.05", "one-edge": "edges:0.05"}
"""Requests for the first thing that is drawn."""


@dataclass(frozen=True)
class Task:
    """One cell, and how it is measured."""

    data: str
    model: str
    seed: int
    requests: tuple[str, ...]
    device: str
    until: float
    decay: float | None
    activation: str | None
    ordinary: list[Document] | None
    known: Document | None

    def build(self, graph: Data, **options: Any) -> torch.nn.Module:
        """The model, untrained."""
        name, _, layers = self.model.partition("-")
        given = options | ({"layers": int(layers)} if layers else {})
        return build(name, graph.num_features, graph.num_classes, **given).to(self.device)


def loaded(name: str, seed: int = 0) -> Data:
    """A graph of the matrix."""
    return GENERATED[name](seed=seed) if name in GENERATED else uw.load(name, seed=seed)


def measure(task: Task) -> Document | None:
    """A cell; ``None`` where there is no time left to begin it."""
    if time.time() > task.until:
        return None
    graph = loaded(task.data, task.seed).to(task.device)
    if task.known is not None:
        return _filled(task, graph, task.known)
    document: Document = {key: getattr(task, key) for key in ("data", "model", "seed")}
    if task.activation is not None:
        document["activation"] = task.activation
    document["test_nodes"] = int(graph.test_mask.sum())
    sizes = (False,) if task.model == "sgc" else (False, True)  # sgc has no width
    known = task.ordinary
    document["ordinary"] = [_ordinary(task, graph, wide=wide) for wide in sizes] if known is None else known
    given = {} if task.decay is None else {"weight_decay": task.decay}
    run = _train(task, graph, examine=True, **given)
    document["wide"] = {
        "decay_given": task.decay is not None,
        "config": run.model.config,
        "recipe": asdict(run.recipe),
        "metrics": {key: value for key, value in run.metrics.items() if not key.endswith("seconds")},
    }
    document["requests"] = {}
    for request in task.requests:
        document["requests"][request] = _asked(task, graph, run, request, other=not document["requests"])
        print(json.dumps(document), flush=True)  # what is known, should time end the run
    return document | made(task.device)


def _filled(task: Task, graph: Data, known: Document) -> Document:
    """A cell with the requests that it lacked, each with where it was measured."""
    decay, metrics = known["wide"]["recipe"]["weight_decay"], known["wide"]["metrics"]
    lacking = [request for request in task.requests if request not in known["requests"]]
    run = None
    if not all(map(_poisoned, lacking)):
        run = _train(task, graph, examine=False, weight_decay=decay)
        assert run.prepared is not None
        found = run.prepared.examined(metrics.get("agreement"), run.prepared.whole, metrics.get("seed_gap"))
        run = uw.Run(run.model, graph, recipe=run.recipe, metrics=run.metrics, prepared=found)
    requests = dict(known["requests"])
    for request in lacking:
        requests[request] = _asked(task, graph, run, request, other=False, decay=decay) | made(task.device)
    return known | {"requests": requests}


def _poisoned(request: str) -> bool:
    """Whether a request is of data that a model has to be trained on first."""
    return request.startswith("flipped")


def _asked(task: Task, graph: Data, run: uw.Run | None, request: str, *, other: bool, decay: Any = None) -> Document:
    """What a request comes to: of a model as it is, or of one that was trained on what the request is about."""
    if not _poisoned(request):
        assert run is not None
        return _forget(run, _drawn(request, graph, task.seed), other=other)
    poisoned = poison(request, graph, seed=task.seed)
    harmed = _train(task, poisoned.data, examine=False, weight_decay=decay if run is None else run.recipe.weight_decay)
    return _forget(harmed, poisoned.request, other=False)


def _ordinary(task: Task, graph: Data, *, wide: bool) -> Document:
    hidden = uw.models.width(int(graph.train_mask.sum())) // (8 if task.model == "gat" else 1)
    size: dict[str, Any] = {"hidden": hidden} if wide else {}
    run = uw.train(task.build(graph, x=graph.x, **size), graph, seed=task.seed)
    keys = ("test_f1", "val_f1", "training_ended")
    unit = bool(getattr(run.model, "unit", False))
    return {"wide": wide, "unit": unit, "epochs": run.recipe.epochs, **{key: run.metrics[key] for key in keys}}


def _train(task: Task, graph: Data, **how: Any) -> uw.Run:
    if task.known is None:
        nodes = int(graph.train_mask.sum())
        model = task.build(graph, forgettable=True, nodes=nodes, activation=task.activation)
    else:  # as it was built then
        model = MODULES[task.model.partition("-")[0]](**task.known["wide"]["config"]).to(task.device)
    return uw.train(model, graph, seed=task.seed, forgettable=True, **how)


def _drawn(request: str, graph: Data, seed: int) -> uw.Request:
    drawn = uw.draw(ONE.get(request, request), graph, seed=seed)
    return uw.Request(nodes=drawn.nodes[:1], edges=drawn.edges[:1]) if request in ONE else drawn


def _forget(run: uw.Run, request: uw.Request, *, other: bool) -> Document:
    """What ``gif`` closes of the gap to a model retrained the same way, and another seed where that is wanted."""
    retrained = run.forget(request, "retrain", allow_class_loss=True)
    remaining = torch.ones(run.data.num_nodes, dtype=torch.bool, device=run.data.x.device)
    remaining[list(request.nodes)] = False
    target, left = log_probabilities(retrained.model, retrained.data), retrained.data

    def of(model: torch.nn.Module) -> float:
        return gap(target, log_probabilities(model, left), remaining)

    found: Document = {"gap": (none := of(run.model)), "retrain_passes": retrained.receipts[-1].passes}
    try:
        done = run.forget(request, "gif", allow_class_loss=True)
        receipt = done.receipts[-1]
        found |= {
            "gap_closed": closed(of(done.model), none),
            "passes": receipt.passes,
            "gradients": receipt.details.get("evaluations"),
            "gradient": receipt.details.get("gradient"),
        }
    except UnweaveError as error:
        found["refused"] = str(error)
    if other:
        again = uw.unlearn(
            run.model,
            run.data,
            request,
            "retrain",
            weight_decay=run.recipe.weight_decay,
            recipe=replace(run.recipe, seed=run.recipe.seed + 1),
            seed=run.recipe.seed + 1,
            allow_class_loss=True,
        )
        found["other_seed"] = closed(of(again.model), none)
    return found


def _key(document: Document) -> tuple[str, str, int, str]:
    """What a cell is of."""
    return document["data"], document["model"], document["seed"], document.get("activation") or ""


def main() -> None:
    """Measure what is asked for and not there."""
    parser = arguments(
        __doc__, "wide", data=(*REAL, *GENERATED), model=MODELS, requests=REQUESTS, seeds=(0,), jobs=1, minutes=600.0
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--decay", type=float, help="weight decay of the models that can forget; found where not given")
    parser.add_argument("--activation", help="of the models that can forget, where not the one they are built with")
    parser.add_argument("--anew", action="store_true", help="measure cells that are there again, as a whole")
    parser.add_argument("--no-ordinary", action="store_true", help="leave out ordinary models that are not known yet")
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    found = {_key(document): document for document in lines(path)}
    ordinary = {key[:3]: document["ordinary"] for key, document in found.items() if document["ordinary"]}
    until = time.time() + 60 * asked.minutes
    tasks = [
        Task(
            data,
            model,
            seed,
            asked.requests,
            asked.device,
            until,
            asked.decay,
            asked.activation,
            ordinary.get((data, model, seed), [] if asked.no_ordinary else None),
            None if asked.anew else known,
        )
        for seed in asked.seeds
        for data in asked.data
        for model in asked.model
        for known in [found.get((data, model, seed, asked.activation or ""))]
        if known is None or asked.anew or not set(asked.requests) <= set(known["requests"])
    ]
    for document in each(measure, tasks, asked.jobs):
        if document is not None:
            found[_key(document)] = document
            write_lines(path, [found[key] for key in sorted(found)])
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

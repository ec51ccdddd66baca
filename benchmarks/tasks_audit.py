"""The audit on every task: is it gone after ``gif``, and would the audit have seen it?

    python benchmarks/tasks_audit.py
    python benchmarks/tasks_audit.py --data proteins --jobs 4

A line of ``cells.jsonl`` is a task, a method and a seed, with the verdict and what every test said, written as soon as
it is known. ``none``, which takes the data out of the graph and keeps the parameters, is the control that must be seen;
a retrained model is the other, which must be left alone. The models to compare with are trained once for the three.
"""

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from pages.tasks_audit import PAGE
from shared import Document, arguments, lines, made, write_lines
from tasks_graphs import literature_of

import unweave as uw
from tasks import bipartite
from unweave.auditing.audit import FULL, conclude
from unweave.auditing.case import build_case
from unweave.auditing.examination import Examination
from unweave.auditing.population import Upbringing
from unweave.models import build
from unweave.tasks import Graphs

METHODS = ("gif", "none", "retrain")
MODELS = {
    "listeners": "lightgcn",
    "demo:links": "linker",
    "cora:links": "linker",
    "mutag": "pooled-sign",
    "proteins": "pooled-sign",
}
"""Of the tasks whose models have names."""


def task_of(name: str, seed: int) -> tuple[Any, Any]:
    """The graph of a task, and an untrained model that can forget."""
    if name == "literature":
        data, wide, _, _ = literature_of(seed)
        return data, wide()
    data = bipartite(300, 150, 20, seed) if name == "listeners" else uw.load(name, seed=seed)
    if name == "mutag":  # an audit compares with 50 graphs or more that were held out; of its 188 too few are
        order = torch.randperm(188, generator=torch.Generator().manual_seed(seed)).tolist()
        data = Graphs.of(data.graphs(), train=order[:112], val=order[112:132], test=order[132:])
    how: dict[str, Any] = {"forgettable": True, "nodes": int(data.train_mask.sum())}
    return data, build(MODELS[name], data.num_features, int(data.num_classes), **how)


def measure(name: str, seed: int, jobs: int) -> Iterator[Document]:
    """The audits of one task, each as soon as it is done."""
    data, model = task_of(name, seed)
    run = uw.train(model, data, seed=seed, forgettable=True)
    request = uw.draw("edges:0.05" if name == "listeners" or "links" in name else "nodes:0.05", data, seed=seed)
    start = time.perf_counter()
    how = Upbringing(run.model, run.training, run.loss, run.forward)
    tests = Examination(build_case(run.data, request, how, FULL, seed=seed, jobs=jobs))
    for method in METHODS:
        after = run.forget(request, method)
        audit = conclude(tests, run.model, after.model, seed=seed, quick=False, receipt=after.receipts[-1], start=start)
        found = {
            e.name: {key: getattr(e, key) for key in ("finding", "effect", "effect_before")} for e in audit.evidence
        }
        told = {"verdict": audit.verdict, "sentence": audit.sentence, "noticeable": audit.noticeable, "tests": found}
        told["seconds"] = audit.seconds
        yield {"data": name, "seed": seed, "method": method, "asked": request.describe(), **told} | made("cpu")
        print(name, method, audit.verdict, flush=True)


def main() -> None:
    """Measure what is asked for and not there."""
    asked = arguments(__doc__, "tasks_audit", data=(*MODELS, "literature"), seeds=1, jobs=1).parse_args()
    torch.set_num_threads(1)
    path = asked.out / "cells.jsonl"
    for seed, data in product(range(asked.seeds), asked.data):
        if sum(cell["data"] == data and cell["seed"] == seed for cell in lines(path)) == len(METHODS):
            continue
        for found in measure(data, seed, asked.jobs):
            cells = {_key(cell): cell for cell in [*lines(path), found]}
            write_lines(path, (cells[key] for key in sorted(cells)))
    PAGE.write(asked.out)


def _key(cell: Document) -> tuple[str, int, int]:
    return cell["data"], cell["seed"], METHODS.index(cell["method"])


if __name__ == "__main__":
    main()

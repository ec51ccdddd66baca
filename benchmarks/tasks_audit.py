"""The audit on every task, of both ways of training: is it gone after ``gif``, and would the audit have seen it?

    python benchmarks/tasks_audit.py
    python benchmarks/tasks_audit.py --data lastfm,cora:links --device cuda --jobs 6

A line of ``cells.jsonl`` is a task, a way of training, a seed and a method, with the verdict and what every test said,
written as soon as it is known. ``none``, which takes the data out of the graph and keeps the parameters, is the control
that must be seen; a retrained model is the other, which must be left alone; fine-tuning has as many passes as ``gif``.
The models to compare with are trained once for the four.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from pages.tasks_audit import PAGE
from shared import WAYS, Document, arguments, lines, made, write_lines
from tasks_graphs import GIN, literature_of
from torch import nn

import unweave as uw
from tasks import bipartite
from unweave.auditing.audit import FULL, conclude
from unweave.auditing.case import build_case
from unweave.auditing.examination import Examination
from unweave.auditing.population import Upbringing
from unweave.errors import UnweaveError
from unweave.models import build
from unweave.tasks import Graphs

METHODS = ("gif", "finetune", "none", "retrain")
MODELS = {
    "listeners": "lightgcn",
    "lastfm": "lightgcn",
    "demo:links": "linker",
    "cora:links": "linker",
    "mutag": "pooled-sign",
    "proteins": "pooled-sign",
}
"""Of the tasks whose models have names."""


@dataclass(frozen=True)
class Cell:
    """What is audited."""

    data: str
    way: str
    seed: int


def task_of(cell: Cell) -> tuple[Any, nn.Module]:
    """The graph of a task, and an untrained model: one that can forget, or a small ordinary one."""
    name, seed, wide = cell.data, cell.seed, cell.way == "forgettable"
    if name == "literature":
        data, large, small, _ = literature_of(seed)
        return data, large() if wide else small()
    data = bipartite(300, 150, 20, seed) if name == "listeners" else uw.load(name, seed=seed)
    if name == "mutag":  # an audit compares with 50 graphs or more that were held out; of its 188 too few are
        order = torch.randperm(188, generator=torch.Generator().manual_seed(seed)).tolist()
        data = Graphs.of(data.graphs(), train=order[:112], val=order[112:132], test=order[132:])
    if isinstance(data, Graphs) and not wide:
        return data, GIN(data.num_features, data.num_classes)
    how: dict[str, Any] = {"forgettable": wide, "nodes": int(data.train_mask.sum())}
    return data, build(MODELS[name], data.num_features, int(data.num_classes), **how)


def measure(cell: Cell, device: str, jobs: int) -> Iterator[Document]:
    """The audits of one task, each as soon as it is done."""
    data, model = task_of(cell)
    data = data.to(device)
    wide = cell.way == "forgettable"
    run = uw.train(model.to(device), data, seed=cell.seed, forgettable=wide)
    run = run if wide else run.prepare()
    paired = MODELS.get(cell.data) in ("lightgcn", "linker")
    request = uw.draw("edges:0.05" if paired else "nodes:0.05", data, seed=cell.seed)
    trained = time.perf_counter()
    how = Upbringing(run.model, run.training, run.loss, run.forward)
    tests = Examination(build_case(run.data, request, how, FULL, seed=cell.seed, jobs=jobs))
    print(cell.data, cell.way, f"compared with after {time.perf_counter() - trained:.0f} s", flush=True)
    passes = 2.0
    for method in METHODS:
        found: Document = vars(cell) | {"method": method, "asked": request.describe()}
        options: dict[str, Any] = {"epochs": max(1, round(passes / 2))} if method == "finetune" else {}
        start = time.perf_counter()
        try:
            after = run.forget(request, method, **options)
        except UnweaveError as error:
            yield found | {"refused": str(error)} | made(device)
            continue
        receipt = after.receipts[-1]
        passes = receipt.passes if method == "gif" else passes
        audit = conclude(tests, run.model, after.model, seed=cell.seed, quick=False, receipt=receipt, start=start)
        keys = ("finding", "effect", "effect_before")
        found["tests"] = {e.name: {key: getattr(e, key) for key in keys} for e in audit.evidence}
        found |= {"verdict": audit.verdict, "sentence": audit.sentence, "noticeable": audit.noticeable}
        found["agreement"] = audit.config["agreement"]
        yield found | {"passes": receipt.passes, "grade": receipt.grade} | made(device)
        print(cell.data, cell.way, method, audit.verdict, flush=True)


def main() -> None:
    """Measure what is asked for and not there."""
    parser = arguments(__doc__, "tasks_audit", data=(*MODELS, "literature"), way=WAYS, seed=(0,), device="cpu", jobs=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = asked.out / "cells.jsonl"
    for cell in (Cell(*some) for some in product(asked.data, asked.way, asked.seed)):
        done = [line for line in lines(path) if vars(cell).items() <= line.items()]
        if {line["method"] for line in done} == set(METHODS):
            continue
        for found in measure(cell, asked.device, asked.jobs):
            cells = {_key(line): line for line in [*lines(path), found]}
            write_lines(path, (cells[key] for key in sorted(cells)))
    PAGE.write(asked.out)


def _key(line: Document) -> tuple[str, str, int, int]:
    return line["data"], line["way"], line["seed"], METHODS.index(line["method"])


if __name__ == "__main__":
    main()

"""The audit on every task: is it gone after ``gif``, and would the audit have seen it?

    python benchmarks/tasks_audit.py
    python benchmarks/tasks_audit.py --data proteins

A line of ``cells.jsonl`` is a task, a method and a seed, with the verdict and what every test said. ``none``, which
takes the data out of the graph and keeps the parameters, is the control that must be seen; a retrained model is the
other, which must be left alone.
"""

from typing import Any

from pages.tasks_audit import PAGE
from shared import Document, arguments, each, lines, made, write_lines
from tasks_graphs import literature_of

import unweave as uw
from tasks import bipartite
from unweave.models import build

METHODS = ("gif", "none", "retrain")
MODELS = {"listeners": "lightgcn", "demo:links": "linker", "proteins": "pooled-sign"}
"""Of the tasks whose models have names."""


def task_of(name: str, seed: int) -> tuple[Any, Any]:
    """The graph of a task, and an untrained model that can forget."""
    if name == "literature":
        data, wide, _, _ = literature_of(seed)
        return data, wide()
    data = bipartite(300, 150, 20, seed) if name == "listeners" else uw.load(name, seed=seed)
    how: dict[str, Any] = {"forgettable": True, "nodes": int(data.train_mask.sum())}
    return data, build(MODELS[name], data.num_features, int(data.num_classes), **how)


def measure(name: str, seed: int) -> list[Document]:
    """The audits of one task."""
    data, model = task_of(name, seed)
    run = uw.train(model, data, seed=seed, forgettable=True)
    request = uw.draw("edges:0.05" if name in ("listeners", "demo:links") else "nodes:0.05", data, seed=seed)
    found = []
    for method in METHODS:
        audit = uw.audit(run, run.forget(request, method), seed=seed)
        tests = {
            e.name: {key: getattr(e, key) for key in ("finding", "effect", "effect_before")} for e in audit.evidence
        }
        told = {"verdict": audit.verdict, "sentence": audit.sentence, "noticeable": audit.noticeable, "tests": tests}
        found.append({"data": name, "seed": seed, "method": method, "asked": request.describe(), **told} | made("cpu"))
        print(name, method, audit.verdict, flush=True)
    return found


def main() -> None:
    """Measure what is asked for and not there."""
    parser = arguments(__doc__, "tasks_audit", data=(*MODELS, "literature"), seeds=1, jobs=1)
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    done = lines(path)
    known = {(cell["data"], cell["seed"]) for cell in done}
    tasks = [(data, seed) for seed in range(asked.seeds) for data in asked.data if (data, seed) not in known]
    for cells in each(_measured, tasks, asked.jobs):
        done += cells
        write_lines(path, sorted(done, key=lambda cell: (cell["data"], cell["seed"], METHODS.index(cell["method"]))))
    PAGE.write(asked.out)


def _measured(task: tuple[str, int]) -> list[Document]:
    return measure(*task)


if __name__ == "__main__":
    main()

"""The audit put to the test: does it tell doing nothing from retraining, and does it leave retrained models alone?

    python benchmarks/audit.py separation --models gcn,gat --data cora,citeseer --seeds 2 --jobs 2
    python benchmarks/audit.py separation --models gcn --ways forgettable --seeds 2 --jobs 2
    python benchmarks/audit.py alarms --audits 100

separation: flipped labels, the nodes that are memorised most, and edges between classes that were added: every attack,
for every method and for the controls.
alarms: retrained models audited against each other, on the embedded graph. Every audit has 16 models of each kind of
its own, drawn from 120; shadow models are shared. How many raise an alarm?

Every cell is a line of ``separation.jsonl`` or ``alarms.jsonl`` as soon as it is done and is not measured again; the
page ``README.md`` is made from those alone (``--page``).
"""

import argparse
import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_page import page
from unweave.audit.auditing import FULL
from unweave.audit.case import Size, build_case
from unweave.audit.examination import Examination, verdict_of
from unweave.audit.population import Upbringing
from unweave.experiments.results import commit, rounded
from unweave.poisoning import stage

import unweave as uw
from unweave.models import build
from unweave.receipt import environment

RESULTS = Path(__file__).parent / "results" / "audit"
REQUESTS = ("flipped:0.2", "memorised:0.05", "crossed:0.5")
METHODS = ("gif", "replay(share=0.2)")
ALARMS = ("nodes:0.1", "edges:0.05", "flipped:0.2")
POOL, EPOCHS = 120, 40


def separation(asked: argparse.Namespace, way: str, data: str, model: str, forget: str) -> dict[str, Any]:
    """One comparison with an audit of every method."""
    found = uw.compare(
        data,
        model,
        forget,
        methods=METHODS,
        seeds=asked.seeds,
        forgettable=way == "forgettable",
        averaged=False,
        audit=True,
        jobs=asked.jobs,
        device=asked.device,
    )
    document: dict[str, Any] = rounded(found.to_dict())
    return document


def alarms(asked: argparse.Namespace, forget: str) -> dict[str, Any]:
    """How many audits of a retrained model against another raise an alarm."""
    data, request = stage(forget, uw.load("demo"))
    how = Upbringing(build("gcn", data.num_features, data.num_classes), uw.Recipe(epochs=EPOCHS))
    pool = build_case(data, request, how, Size(POOL, FULL.shadows), jobs=asked.jobs)
    rng = np.random.default_rng(0)
    verdicts, unusual = Counter[str](), Counter[str]()
    for number in range(asked.audits):
        others = rng.permutation([n for n in range(POOL) if n != number % POOL])
        chosen, before = others[: FULL.references], int(others[FULL.references])
        case = replace(
            pool,
            retrained=tuple(pool.retrained[n] for n in chosen),
            trained=tuple(pool.trained[n] for n in chosen),
        )
        found = Examination(case).of(pool.retrained[before], pool.retrained[number % POOL])
        verdicts[verdict_of(found)] += 1
        unusual.update({entry.name: entry.unusual for entry in found})
    return {"forget": forget, "audits": asked.audits, "verdicts": dict(verdicts), "unusual": dict(unusual)}


def read(path: Path) -> list[dict[str, Any]]:
    """What is done."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Measure what is missing, and make the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("separation", "alarms"), nargs="?")
    parser.add_argument("--data", default="cora,citeseer")
    parser.add_argument("--models", default="gcn,gat")
    parser.add_argument("--ways", default="ordinary")
    parser.add_argument("--forget", default=",".join(REQUESTS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--audits", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="make the page from the files there are")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    told = {"commit": commit(), "environment": environment(torch.device(asked.device))}
    if not asked.page:
        path = asked.out / f"{asked.part}.jsonl"
        cells: list[tuple[str, ...]] = [(forget,) for forget in ALARMS]
        if asked.part == "separation":
            parts = (getattr(asked, part).split(",") for part in ("ways", "data", "models", "forget"))
            cells = list(itertools.product(*parts))
        done = {tuple(line["cell"]) for line in read(path)}
        for cell in cells:
            if cell not in done:
                found = separation(asked, *cell) if asked.part == "separation" else alarms(asked, *cell)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"cell": cell, **told, **found}, allow_nan=False) + "\n")
                print(*cell, "done", flush=True)
    text = page(read(asked.out / "separation.jsonl"), read(asked.out / "alarms.jsonl"))
    (asked.out / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""The audit put to the test: does it tell doing nothing from retraining, and does it leave retrained models alone?

    python benchmarks/audit.py separation --models gcn,gat --data cora,citeseer --seeds 2 --jobs 2
    python benchmarks/audit.py separation --models gcn --ways forgettable --seeds 2 --jobs 2
    python benchmarks/audit.py alarms --audits 100

separation: flipped labels, the nodes that are memorised most, and edges between classes that were added: every attack,
for every method and for the controls.
alarms: retrained models audited against each other, on the embedded graph. Every audit has 16 models of each kind of
its own, drawn from 120; shadow models are shared. How many raise an alarm?

Every cell is a line of ``separation.jsonl`` or ``alarms.jsonl`` as soon as it is done and is not measured again; the
page is made from those alone (``page.py``).
"""

import argparse
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from pages.audit import PAGE
from shared import DATA, MODELS, Document, append, arguments, compared, lines, made

import unweave as uw
from unweave.auditing.audit import FULL
from unweave.auditing.case import Size, build_case
from unweave.auditing.examination import Examination
from unweave.auditing.population import Upbringing
from unweave.auditing.verdict import verdict_of
from unweave.experiments.poison import stage
from unweave.models import build

REQUESTS = ("flipped:0.2", "memorised:0.05", "crossed:0.5")
METHODS = ("gif", "replay(share=0.2)")
ALARMS = ("nodes:0.1", "edges:0.05", "flipped:0.2")
POOL, EPOCHS = 120, 40


def separation(asked: argparse.Namespace, *cell: str) -> Document:
    """One comparison with an audit of every method."""
    how = {"seeds": asked.seeds, "jobs": asked.jobs, "device": asked.device}
    return compared(cell, methods=METHODS, averaged=False, audit=True, **how)


def alarms(asked: argparse.Namespace, forget: str) -> Document:
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


def main() -> None:
    """Measure what is missing, and make the page."""
    parser = arguments(
        __doc__,
        "audit",
        ways=("ordinary",),
        data=DATA[:2],
        models=MODELS[:2],
        forget=REQUESTS,
        seeds=2,
        audits=100,
        jobs=1,
        device="cpu",
    )
    parser.add_argument("part", choices=("separation", "alarms"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path, apart = asked.out / f"{asked.part}.jsonl", asked.part == "separation"
    done = {tuple(line["cell"]) for line in lines(path)}
    for cell in product(asked.ways, asked.data, asked.models, asked.forget) if apart else product(ALARMS):
        if cell not in done:
            found = separation(asked, *cell) if apart else alarms(asked, *cell)
            append(path, {"cell": cell, **made(asked.device), **found})
            print(*cell, "done", flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

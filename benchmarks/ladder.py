"""The ladder: do its intervals hold, is its choice the best one, and does a stream of requests drift?

    python benchmarks/ladder.py coverage --data cora,citeseer --models gcn,gat --ways ordinary --jobs 4
    python benchmarks/ladder.py budgets --data cora --models gcn --ways ordinary
    python benchmarks/ladder.py stream --data cora,citeseer --requests 100 --jobs 16

coverage: how often the 90 % intervals of a calibration hold for deletions that are simulated apart from it.
budgets: ``auto`` at four budgets beside every fixed rung, on requests of its own: gap closed and cost.
stream: single requests of every kind one after another; how much of the gap to retraining is closed after some of them,
by ``auto`` with a wish, and by ``gif`` alone.

Every measurement is a line of ``PART.jsonl`` in ``--out`` as soon as it is done, and is not done again; the page
``README.md`` beside them, with its figure, is made from those alone (``--page``).
"""

import argparse
import itertools
import json
import multiprocessing
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from ladder_page import draw, page
from matrix import MODELS, WAYS
from soak import one_request
from unweave.calibration import Calibration
from unweave.experiments.results import commit, rounded
from unweave.meter import find_device
from unweave.methods.rungs import SHARES
from unweave.metrics import closed, gap, log_probabilities

import unweave as uw
from unweave.methods.registry import parse
from unweave.models import build
from unweave.receipt import environment

RESULTS = Path(__file__).parent / "results" / "ladder"
REQUESTS = ("edges:0.05", "nodes:0.05", "features:0.05", "labels:0.05", "edges:0.005", "nodes:0.1")
BUDGETS = (0.02, 0.05, 0.1, 0.2)
LOOKS = (10, 50, 100)


def trained(asked: argparse.Namespace, seed: int) -> uw.Run:
    """A prepared run with checkpoints."""
    where = find_device(asked.device)
    data = uw.load(asked.data, seed=seed).to(where)
    model = build(asked.model, data.num_features, data.num_classes, forgettable=asked.forgettable).to(where)
    decay = 1e-2 if asked.forgettable else 1e-4
    shares = () if asked.forgettable else SHARES
    run = uw.train(model, data, seed=seed, weight_decay=decay, forgettable=asked.forgettable, checkpoints=shares)
    return run if run.prepared is not None else run.prepare()


def share_closed(run: uw.Run, done: uw.Run, reference: uw.Run) -> float:
    """Of the gap between a model that nothing was done to and a retrained one, what is closed."""
    kept = reference.data.x.abs().sum(dim=1) > 0
    kept |= reference.data.train_mask | reference.data.test_mask
    target, near, start = (log_probabilities(r.model, reference.data) for r in (reference, done, run))
    found = closed(gap(target, near, kept), gap(target, start, kept))
    assert found is not None
    return found


def known(run: uw.Run) -> Calibration:
    """Its calibration."""
    assert run.calibration is not None
    return run.calibration


def coverage(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """How often an interval of one set of deletions holds for another."""
    run = trained(asked, seed).calibrate(asked.deletions, seed=seed)
    fresh = known(run.replace(calibration=None).calibrate(asked.fresh, seed=seed + 1000))
    found, rows = known(run), dict[str, dict[str, float]]()
    for rung in found.rungs:
        held, errors = [], []
        for deletion, figures in fresh._known(rung):
            guess = found.estimate(rung, deletion.shape)
            assert guess.low is not None
            assert guess.high is not None
            held.append(guess.low <= figures.closed <= guess.high)
            errors.append(abs(guess.closed - figures.closed))
        rows[rung] = {"held": fmean(held), "error": median(errors), "cost": found.typical_cost(rung)}
    held_back = found.held_back
    return {"mean": fmean(row["held"] for row in rows.values()), "held_back": held_back, "rungs": rows}


def budgets(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Auto at every budget and every fixed rung, for a few requests."""
    run = trained(asked, seed).calibrate(asked.deletions, seed=seed)
    cells = []
    for spec in REQUESTS:
        request = uw.draw(spec, run.data, seed=seed + 1)
        reference = run.forget(request, "retrain", allow_class_loss=True)
        spent = reference.receipts[-1].seconds["forget"]
        rungs = {}
        for rung in known(run).rungs:
            name, options = parse(rung)
            done = run.forget(request, name, allow_class_loss=True, **options)
            rungs[rung] = {
                "closed": share_closed(run, done, reference),
                "expected_cost": known(run).typical_cost(rung),
                "cost": done.receipts[-1].seconds["total"] / spent,
            }
        auto: dict[float, dict[str, Any]] = {}
        for budget in BUDGETS:
            try:
                done = run.forget(request, "auto", budget=budget, allow_class_loss=True)
            except uw.MethodError as error:
                auto[budget] = {"refused": str(error)}
                continue
            receipt = done.receipts[-1]
            assert receipt.ladder is not None
            within = [r["closed"] for r in rungs.values() if r["expected_cost"] <= budget]
            auto[budget] = {
                "rung": receipt.ladder["rung"],
                "closed": share_closed(run, done, reference),
                "believed": [receipt.ladder["estimate"][key] for key in ("closed", "low", "high")],
                "best_fixed_within": max(within, default=None),
                "cost": receipt.seconds["total"] / spent,
            }
        cells.append({"forget": spec, "auto": auto, "rungs": rungs})
    return {"cells": cells}


def stream(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Single requests one after another, with the ladder and without."""
    start = trained(asked, seed)
    ready = start.calibrate(asked.deletions, seed=seed)
    rng = np.random.default_rng([seed, 5])
    ladder, plain, looks = ready, start, []
    used: dict[str, int] = {}
    requests: list[uw.Request] = []
    for number in range(1, asked.requests + 1):
        request = one_request(ladder.data, rng)
        requests.append(request)
        ladder = ladder.forget(request, "auto", at_least=asked.at_least, allow_class_loss=True)
        plain = plain.forget(request, "gif", allow_class_loss=True)
        told = ladder.receipts[-1].ladder
        assert told is not None
        used[told["rung"]] = used.get(told["rung"], 0) + 1
        if number in LOOKS or number == asked.requests:
            retrained = uw.unlearn(
                start.model,
                start.data,
                uw.Request.merged(requests),
                "retrain",
                weight_decay=start.recipe.weight_decay,
                recipe=start.recipe,
                allow_class_loss=True,
            )
            reference = ladder.replace(model=retrained.model)
            passes = [sum(r.passes for r in run.receipts) for run in (ladder, plain)]
            standing = told["standing"]
            size = sum(standing["shape"].values())
            looks.append(
                {
                    "requests": number,
                    "ladder": share_closed(start, ladder, reference),
                    "gif": share_closed(start, plain, reference),
                    "believed": 1.0 if not size else 1 - standing["left"] / size,
                    "passes": passes,
                    "used": dict(used),
                }
            )
    return {"looks": looks, "retrain_passes": known(ready).retrain_passes}


PARTS = {"coverage": coverage, "budgets": budgets, "stream": stream}
SETTINGS = ("part", "data", "model", "forgettable", "seed", "deletions", "fresh", "requests", "at_least", "device")


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """One measurement, with where and how it was made."""
    torch.set_num_threads(1)
    found = PARTS[asked.part](asked, asked.seed)
    way = "forgettable" if asked.forgettable else "ordinary"
    document = {
        **{key: getattr(asked, key) for key in SETTINGS},
        **found,
        "command": f"python benchmarks/ladder.py {asked.part} --data {asked.data} --models {asked.model} --ways {way}",
        "commit": commit(),
        "environment": environment(torch.device(asked.device)),
    }
    return dict(rounded(document))


def key_of(document: dict[str, Any]) -> tuple[Any, ...]:
    """What a measurement is of."""
    return tuple(document[key] for key in ("part", "forgettable", "model", "data", "seed"))


def documents(out: Path) -> list[dict[str, Any]]:
    """What was measured, in a fixed order."""
    texts = [path.read_text(encoding="utf-8") for path in out.glob("*.jsonl")]
    return sorted((json.loads(line) for text in texts for line in text.splitlines()), key=key_of)


def write(out: Path, part: str, known_ones: list[dict[str, Any]]) -> None:
    """One line a measurement."""
    lines = [json.dumps(d, allow_nan=False) for d in sorted(known_ones, key=key_of) if d["part"] == part]
    (out / f"{part}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def wanted(asked: argparse.Namespace) -> list[argparse.Namespace]:
    """Every measurement that was asked for, the dearest first."""
    each = itertools.product(
        asked.ways.split(","), asked.models.split(","), asked.data.split(","), map(int, asked.seeds.split(","))
    )
    found = [
        argparse.Namespace(**vars(asked) | {"forgettable": way == "forgettable", "model": m, "data": d, "seed": s})
        for way, m, d, s in each
    ]
    return sorted(found, key=lambda a: (a.model not in ("gat", "gin"), not a.forgettable))


def main() -> None:
    """Measure what is missing of one part, and make the page of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=tuple(PARTS), nargs="?")
    parser.add_argument("--data", default="cora,citeseer")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--deletions", type=int, default=24)
    parser.add_argument("--fresh", type=int, default=20)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--at-least", type=float, default=0.9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="make the page from the files there are")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    known_ones = documents(asked.out)
    if not asked.page:
        if asked.part is None:
            parser.error("say what to measure: coverage, budgets or stream")
        done = {key_of(document) for document in known_ones}
        todo = [one for one in wanted(asked) if key_of(vars(one)) not in done]
        with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
            for count, document in enumerate(pool.imap_unordered(measure, todo), start=1):
                known_ones.append(document)
                write(asked.out, asked.part, known_ones)
                print(f"{count} of {len(todo)}: {' '.join(map(str, key_of(document)))}", flush=True)
    known_ones.sort(key=key_of)
    (asked.out / "README.md").write_text(page(known_ones), encoding="utf-8")
    draw(known_ones, asked.out / "drift.png")


if __name__ == "__main__":
    main()

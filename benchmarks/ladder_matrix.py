"""Every backbone, data set and request, trained in two ways: every rung of the ladder, and ``auto`` at four budgets.

    python benchmarks/ladder_matrix.py --device cpu --jobs 16 [--data cora --models gcn --ways ordinary] [--seeds 3]

One training is one task: it is calibrated once, and then every request is forgotten by every rung and by ``auto``.
Flipped labels are trained on, so they have a training of their own. Seeds decide split, request and training; ordinary
models are also trained on the first split from every seed, for the seed-averaged gap. Each trial is a line of
``WAY-DEVICE.jsonl`` as soon as it is done, so that an interrupted run goes on where it stopped; predictions, which
only the seed-averaged gap needs, are in ``outputs`` until then. ``calibrations-DEVICE.jsonl`` has what each calibration
measured. The page and its figures are made from the trials alone (``page.py``). Times are ratios within one process,
under the load of the others.
"""

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pages.ladder_matrix import BUDGETS, PAGE, auto, key_of, read
from shared import (
    DATA,
    DECAYS,
    MODELS,
    REQUESTS,
    RESULTS,
    WAYS,
    Document,
    append,
    arguments,
    cells,
    each,
    made,
    write_lines,
)

import unweave as uw
from unweave._core.cost import find_device
from unweave._core.tuning import TUNING
from unweave.experiments.compare import _averaged
from unweave.experiments.making import data_maker, model_maker
from unweave.experiments.paper.results import rounded
from unweave.experiments.poison import is_poisoned, stage
from unweave.experiments.trial import Setting, Trial
from unweave.graph.index import is_undirected
from unweave.methods import Method
from unweave.methods.ladder.rung import Rung
from unweave.methods.ladder.rungs import Kept
from unweave.methods.ladder.size import shape_of
from unweave.training.recipe import Recipe

REPLAYS = (0.05, 0.1, 0.2)
"""Shares that are replayed whether the ladder has them or not."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Task:
    """One training, and the requests that it is to forget."""

    way: str
    data: str
    model: str
    forget: tuple[str, ...]
    split: int
    seed: int
    deletions: int
    device: str
    out: Path

    @property
    def decay(self) -> float:
        """The weight decay of the matrix: the usual one, or what validation chose for a forgettable model there."""
        if self.way == "ordinary":
            return DECAYS[self.way]
        known = cells(RESULTS / "matrix" / "forgettable.jsonl")
        return next(float(d["config"]["weight_decay"]) for c, d in known.items() if c[1:3] == (self.data, self.model))

    def cell(self, forget: str) -> Document:
        """What is the same for every seed."""
        return {"way": self.way, "device": self.device, "data": self.data, "model": self.model, "forget": forget}

    def outputs(self, forget: str) -> Path:
        """Where the predictions of one trial are kept until those of all seeds are there."""
        name = "-".join((self.way, self.data, self.model, forget.replace(":", ""), str(self.seed)))
        return self.out / "outputs" / f"{name}.pt"


def measure(task: Task) -> tuple[Task, list[Document], Document]:
    """Train, calibrate, and forget every request in every way; one line each, and the calibration."""
    forgettable, where = task.way == "forgettable", find_device(task.device)
    recipe = Recipe(seed=task.seed, weight_decay=task.decay, forgettable=forgettable)
    makers = data_maker(task.data, None), model_maker(task.model, forgettable)
    setting = Setting(*makers, task.forget[0], {}, recipe, where)
    graph = makers[0](task.split).to(where)
    data, _ = stage(task.forget[0], graph, seed=task.split)
    model = makers[1](data.num_features, int(data.num_classes)).to(where)
    run = uw.train(
        model,
        data,
        seed=task.seed,
        epochs=100,
        examine=False,
        weight_decay=task.decay,
        forgettable=forgettable,
        checkpoints=sorted({*TUNING.ladder.shares, *REPLAYS}),
    )
    run = calibrated(run, task.deletions)
    lines = []
    for forget in task.forget:
        _, request = stage(forget, graph, seed=task.split)
        trial = replace(setting, methods=methods(run)).measure(run, request)
        if task.split == 0 and not forgettable:
            task.outputs(forget).parent.mkdir(parents=True, exist_ok=True)
            torch.save((trial.outputs, trial.remaining), task.outputs(forget))
        lines.append(rounded(told(task, forget, run, request, trial)))
    assert run.calibration is not None
    which = {**task.cell(task.forget[0]), "split": task.split, "seed": task.seed}
    return task, lines, {**which, "calibration": rounded(run.calibration.to_dict())}


def calibrated(run: uw.Run, deletions: int) -> uw.Run:
    """The run with a calibration of the rungs that a budget allows.

    Of an ordinary one those are the checkpoints of the ladder. A forgettable model is polished after every replay,
    which takes longer than any budget here.
    """
    shares = () if run.recipe.forgettable else TUNING.ladder.shares
    epochs = {round((1 - share) * run.recipe.epochs) for share in shares}
    fewer = run.replace(checkpoints=tuple(c for c in run.checkpoints if c.epoch in epochs))
    done = fewer.calibrate(deletions)
    return done.replace(checkpoints=run.checkpoints)


def methods(run: uw.Run) -> dict[str, str | Method]:
    """Every rung that was calibrated, the replays, and ``auto`` at every budget."""
    known, kept = run.calibration, Kept(run.prepared, run.checkpoints, run.recipe)
    assert known is not None
    rungs = dict.fromkeys([*known.rungs, *(Rung.of("replay", share=share) for share in REPLAYS)])
    ways: dict[str, str | Method] = {str(rung): kept.way(rung, known) for rung in rungs}
    return {**ways, **{auto(budget): auto(budget) for budget in BUDGETS}}


def told(task: Task, forget: str, run: uw.Run, request: uw.Request, trial: Trial) -> Document:
    """What is written of a trial."""
    known, data = run.calibration, run.data
    assert known is not None
    assert run.prepared is not None
    shape = shape_of(
        request,
        stored_edges=int(data.edge_index.size(1)),
        undirected=is_undirected(data),
        training_nodes=int(data.train_mask.sum()),
    )
    believed = {rung: known.estimate(rung, shape) for rung in known.rungs}
    answers = {name: {"refused": why} for name, why in trial.failures.items() if name.startswith("auto")} | {
        name: {key: receipt.ladder[key] for key in ("rung", "expected_cost", "doubt")}
        | {"tried": len(receipt.ladder["tried"])}
        for name, receipt in trial.receipts.items()
        if receipt.ladder is not None
    }
    keys = ("gap_closed", "forget_gap_closed", "f1", "cost", "passes")
    return {
        **task.cell(forget),
        "split": task.split,
        "seed": task.seed,
        "weight_decay": task.decay,
        "retrain_seconds": trial.figures["retrain"]["seconds"],
        "prepare_seconds": run.prepared.seconds,
        "calibration": {
            "deletions": len(known.told),
            "seconds": known.seconds,
            "retrainings": known.retrainings,
            "factor": known.factor,
            "held_back": known.held_back,
        },
        "believed": {
            str(rung): {"closed": e.closed, "low": e.low, "high": e.high, "cost": known.cost(rung, shape)}
            for rung, e in believed.items()
        },
        "methods": {name: {key: figures[key] for key in keys} for name, figures in trial.figures.items()},
        "failures": {name: why for name, why in trial.failures.items() if not name.startswith("auto")},
        "auto": answers,
        **made(task.device),
    }


def averaged(task: Task, forget: str, seeds: int) -> Document | None:
    """The gap closed by predictions averaged over all seeds of the first split, once they are all there."""
    paths = [replace(task, seed=seed).outputs(forget) for seed in range(seeds)]
    if task.split or not all(path.exists() for path in paths):
        return None
    trials = []
    for path in paths:
        outputs, remaining = torch.load(path, map_location="cpu")
        trials.append(Trial(outputs=outputs, remaining=remaining))
    names = {name for trial in trials for name in trial.outputs}
    found = {name: _averaged(name, trials) for name in sorted(names)}
    return {**task.cell(forget), "seeds": seeds, "mean_gap_closed": rounded(found)}


def wanted(asked: argparse.Namespace) -> Iterator[Task]:
    """All trainings that were asked for."""
    poisoned = [request for request in asked.forget if is_poisoned(request)]
    groups = [tuple(request for request in asked.forget if request not in poisoned), *((p,) for p in poisoned)]
    for way, data, model in itertools.product(asked.ways, asked.data, asked.models):
        same_split = [(0, seed) for seed in range(1, asked.seeds) if way == "ordinary"]
        for split, seed in [*((s, s) for s in range(asked.seeds)), *same_split]:
            for group in filter(None, groups):
                yield Task(way, data, model, group, split, seed, asked.deletions, asked.device, asked.out)


def left(task: Task, seeds: int, found: dict[Key, Document]) -> Task | None:
    """What of a training is not done, or was done where its predictions are not at hand and not averaged yet."""

    def missing(forget: str) -> bool:
        cell = task.cell(forget)
        if key_of({**cell, "split": task.split, "seed": task.seed}) not in found:
            return True
        lost = task.way == "ordinary" and task.split == 0 and not task.outputs(forget).exists()
        return lost and found.get(key_of(cell), {}).get("seeds") != seeds

    forget = tuple(filter(missing, task.forget))
    return replace(task, forget=forget) if forget else None


def main() -> None:
    """Measure what is missing, and make the page."""
    given = {"data": DATA, "models": MODELS, "forget": REQUESTS, "ways": WAYS}
    sizes = {"seeds": 5, "deletions": 24, "device": "cpu", "jobs": 1}
    asked = arguments(__doc__, "ladder_matrix", **given, **sizes).parse_args()
    found = read(asked.out)
    todo = [task for task in (left(t, asked.seeds, found) for t in wanted(asked)) if task is not None]
    # The dearest first, so that no process is left with a long one at the end.
    todo.sort(key=lambda t: (t.data != "pubmed", t.way == "ordinary", t.model not in ("gat", "gin")))
    for task, lines, calibration in each(measure, todo, asked.jobs):
        lines += [line for f in task.forget if (line := averaged(task, f, asked.seeds)) is not None]
        found |= {key_of(line): line for line in lines}
        # No other file: another process may be at work on it.
        mine = sorted((key for key in found if key[:2] == (task.way, task.device)), key=str)
        write_lines(asked.out / f"{task.way}-{task.device}.jsonl", (found[key] for key in mine))
        append(asked.out / f"calibrations-{asked.device}.jsonl", calibration)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

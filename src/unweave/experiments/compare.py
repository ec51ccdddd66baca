"""Compare methods on one data set, model and kind of request, with every control.

Each seed decides a split, a request and a training. ``none``, ``retrain`` and a retrain from another seed
are always among the rows, and fine-tuning gets as long as the method under test, or as many passes.

Seed-averaged figures (``mean_gap_closed``) need one graph and many trainings, so the split and request
of the first seed are also trained from every other seed.

A request for what is memorised most (``memorised:0.05``) is drawn by models that saw half of the labels each: the
hardest nodes to forget.

A poisoned request (``flipped:0.2``, ``crossed:0.5``, ``triggered:0.1``) trains on wrong labels, on wrong edges or on a
backdoor, and asks to forget exactly those, or a part of them (``flipped:0.2@0.5``); its rows also say how much of the
lost F1 a method recovers, and how often the attack succeeds before and after (:mod:`unweave.experiments.poison`).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch

from unweave._core.cost import find_device
from unweave._core.writing import write_whole
from unweave.auditing.audit import FULL
from unweave.auditing.evidence import Evidence
from unweave.auditing.verdict import verdict_of
from unweave.errors import DataError, MethodError
from unweave.experiments.making import MakeData, MakeModel, data_maker, model_maker, name_of
from unweave.experiments.poison import is_poisoned
from unweave.experiments.trial import CONTROLS, OTHER_SEED, Matched, Setting, Trial
from unweave.methods import available
from unweave.methods.registry import make, parse
from unweave.objective.scores import closed, gap, named
from unweave.receipt.receipt import Receipt
from unweave.receipt.record import environment
from unweave.run.calibrate import DELETIONS
from unweave.training.adam import Progress
from unweave.training.recipe import Recipe

__all__ = ["CONTROLS", "OTHER_SEED", "Comparison", "compare"]

MATCHED: dict[Matched, str] = {"seconds": "as long as", "passes": "for as many passes as"}


@dataclass(frozen=True)
class Comparison:
    """The result: one row a method, in the format that every table uses.

    Attributes:
        config: What was compared.
        environment: Versions and device.
        rows: One dictionary a method.
        receipts: The receipt of each method for the first seed.
    """

    config: dict[str, Any]
    environment: dict[str, Any]
    rows: list[dict[str, Any]]
    receipts: dict[str, Receipt] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {"config": self.config, "environment": self.environment, "rows": self.rows}

    def save(self, path: str | Path) -> Path:
        """Write the JSON document."""
        return write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @property
    def metric(self) -> str:
        """What the models are judged by, as tables head it."""
        return named(self.config["metric"])

    def row(self, method: str) -> dict[str, Any]:
        """The row of a method."""
        return next(row for row in self.rows if row["method"] == method)


def compare(
    data: str | MakeData,
    model: str | MakeModel,
    forget: str,
    *,
    methods: Sequence[str] = ("none", "finetune", "if", "gif", "retrain"),
    seeds: int = 5,
    epochs: int | None = None,
    lr: float = 0.01,
    weight_decay: float | None = None,
    forgettable: bool = False,
    averaged: bool = True,
    matched: Matched = "seconds",
    deletions: int | None = None,
    audit: bool = False,
    jobs: int = 1,
    device: str = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train, forget by every method, retrain, and score.

    Args:
        data: Name of a data set, or a function that gives the graph split by a seed.
        model: Name of a built-in model, or a function of (features, classes) that builds one.
        forget: Random request, e.g. ``"edges:0.05"``, or a poisoned one, ``"flipped:0.2"``, ``"crossed:0.5"`` or
            ``"triggered:0.1"``; ``"flipped:0.2@0.5"`` asks to forget half of what was poisoned;
            ``"memorised:0.05"`` takes the training nodes that are memorised most.
        methods: Names, with options where they differ from the defaults (``"gif(steps=3)"``); the controls are added
            where they are missing. Fine-tuning gets as long as the last one.
        seeds: How many.
        epochs: Of the training and of retraining; by default as many as validation asks for on the first split, and 100
            before a polish. The result says where more of them would have made a better model.
        lr: Learning rate; smaller where training, with epochs left to validation, loses what it had learnt.
        weight_decay: Weight decay; as :func:`unweave.train` has it by default, chosen on the first split.
        forgettable: Train every model, retrained ones too, to a minimum.
        averaged: Also train the first split from every seed, for ``mean_gap_closed``; nearly doubles the work.
        matched: Whether fine-tuning gets as long as the last method, or as many passes over the graph, which are the
            same on every machine; costs are ratios of the same.
        deletions: Simulated deletions by which every run is calibrated, where ``auto`` is among the methods; the run is
            then prepared for all of them. Each is a training more. By default 24, and none for models that are trained
            to a minimum, where ``auto`` knows what to do without.
        audit: Also put the model of every method through the tests of :func:`unweave.audit`; 64 more trainings a seed.
        jobs: Processes that train the models of an audit.
        device: ``cpu`` or ``cuda``.
        root: Data folder.
        progress: Called with (trials done, trials).
    """
    tested = [m for m in dict.fromkeys(method.strip() for method in methods) if m not in CONTROLS]
    order = ["none", "finetune", *tested, "retrain"]
    unknown = sorted({parse(name)[0] for name in order} - set(available()))
    if unknown:
        raise MethodError(f"unknown method {unknown[0]!r}; known: {', '.join(available())}")
    for name in order:
        make(*parse(name))  # an option that makes no sense is to be known before hours of training
    if seeds < 1:
        raise DataError(f"seeds must be at least 1, got {seeds}")
    if deletions is None:
        deletions = 0 if forgettable else DELETIONS
    where = find_device(device)
    recipe = Recipe(
        epochs=100 if epochs is None else epochs, lr=lr, weight_decay=weight_decay or 0.0, forgettable=forgettable
    )
    makers = data_maker(data, root), model_maker(model, forgettable)
    setting = Setting(*makers, forget, {name: name for name in tested}, recipe, where, deletions=deletions, jobs=jobs)
    setting = replace(setting, matched=matched)
    if weight_decay is None:
        weight_decay = setting.chosen_decay()
        setting = replace(setting, recipe=replace(recipe, weight_decay=weight_decay))

    ended = True
    if not forgettable and epochs is None:
        chosen, ended = setting.chosen_training()
        setting = replace(setting, recipe=chosen)
    elif not forgettable:
        ended = setting.ended()
    plan = [(s, s) for s in range(seeds)] + [(0, s) for s in range(1, seeds) if averaged]
    setting.warm_up()
    trials: dict[tuple[int, int], Trial] = {}
    for done, (split_seed, train_seed) in enumerate(plan, start=1):
        audited = audit and split_seed == train_seed
        trials[split_seed, train_seed] = replace(setting, audit=FULL if audited else None).trial(split_seed, train_seed)
        if progress is not None:
            progress(done, len(plan))
    own = [trials[s, s] for s in range(seeds)]
    same_graph = [trials[0, s] for s in range(seeds)] if averaged else []
    rows = [_row(name, own, same_graph) for name in [*order, OTHER_SEED]]
    if is_poisoned(forget):
        _add_recovery(rows, own)
    for row in rows if audit else ():
        row["audit"] = _audited([t.evidence[row["method"]] for t in own if row["method"] in t.evidence])
    return Comparison(
        config={
            "data": name_of(data),
            "model": name_of(model),
            "forget": forget,
            "seeds": seeds,
            "epochs": setting.recipe.epochs,
            "training_ended": ended,
            "lr": setting.recipe.lr,
            "weight_decay": weight_decay,
            "forgettable": forgettable,
            "device": device,
            "metric": own[0].metric,
            **({"deletions": deletions} if any(parse(name)[0] == "auto" for name in tested) else {}),
            "finetune": f"{MATCHED[matched]} {tested[-1]}" if tested else "for 10 epochs",
            "matched": matched,
        },
        environment=environment(torch.device(device)),
        rows=rows,
        receipts=own[0].receipts,
    )


def _row(name: str, own: list[Trial], same_graph: list[Trial]) -> dict[str, Any]:
    """Mean and spread over the seeds; ``None`` where a figure is not defined."""
    figures = [t.figures[name] for t in own if name in t.figures]
    row: dict[str, Any] = {"method": name}
    for key in (own[0].metric, "gap_closed"):
        row[f"{key}_mean"], row[f"{key}_std"] = _mean_std([f[key] for f in figures])
    row["gap_closed"] = [f["gap_closed"] for f in figures]
    row["mean_gap_closed"] = _averaged(name, same_graph)
    for key in (
        "forget_gap_closed",
        "param_gap_closed",
        "residual_influence",
        "seconds",
        "prepare_seconds",
        "cost",
        "passes",
        "peak_mib",
    ):
        row[f"{key}_mean"] = _mean_std([f[key] for f in figures])[0]
    costs = [f["cost"] for f in figures if f["cost"] is not None]
    row["cost_median"] = median(costs) if costs else None
    row["failures"] = len(own) - len(figures)
    row["failure"] = next((t.failures[name] for t in own if name in t.failures), None)
    row["over_finetune"] = _difference(name, "finetune", own)
    return row


def _add_recovery(rows: list[dict[str, Any]], own: list[Trial]) -> None:
    """How well each method gets rid of the poison.

    ``recovery`` is the share of the F1 it cost that comes back, ``None`` where it cost nothing; ``attack_before`` and
    ``attack`` are how often the attack succeeds with the trained model and after.
    """
    f1 = {row["method"]: row["f1_mean"] for row in rows}
    lost = f1["retrain"] - f1["none"]
    for row in rows:
        known = row["f1_mean"] is not None and lost > 0
        row["recovery"] = (row["f1_mean"] - f1["none"]) / lost if known else None
        row["attack_before"] = _mean_std([t.attack_before for t in own])[0]
        attacks = [t.figures[row["method"]]["attack"] for t in own if row["method"] in t.figures]
        row["attack"], row["attack_std"] = _mean_std(attacks)


def _audited(found: list[tuple[Evidence, ...]]) -> dict[str, Any]:
    """What the audits of a method found over the seeds, by test, beside models without and with the data."""
    verdicts = [verdict_of(evidence) for evidence in found]
    tests: dict[str, list[Evidence]] = {}
    for entry in (entry for evidence in found for entry in evidence):
        tests.setdefault(entry.name, []).append(entry)
    return {
        "verdicts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        "tests": {
            name: {
                "group": entries[0].group,
                "unit": entries[0].unit,
                "value": [e.after.value for e in entries],
                **{f"{key} (mean)": fmean(e.after.more[key] for e in entries) for key in entries[0].after.more},
                "retrained_mean": fmean(r.value for e in entries for r in e.retrained),
                "trained_mean": fmean(r.value for e in entries for r in e.trained),
                "usual": [e.usual if e.side == "both" else (None, e.usual[1]) for e in entries],
                "floor": [e.floor for e in entries],
                "effect": [e.effect for e in entries],
                "finding": [e.finding for e in entries],
                "separates": sum(e.separates for e in entries),
                "power": sum(e.powerful for e in entries),
            }
            for name, entries in tests.items()
        },
    }


def _averaged(name: str, trials: list[Trial]) -> float | None:
    """Gap closed by predictions averaged over the seeds of one graph."""
    if not trials or any(name not in t.outputs for t in trials):
        return None
    remaining = trials[0].remaining
    mean = {
        m: torch.stack([t.outputs[m].double() for t in trials]).logsumexp(dim=0) - math.log(len(trials))
        for m in ("retrain", "none", name)
    }
    return closed(gap(mean["retrain"], mean[name], remaining), gap(mean["retrain"], mean["none"], remaining))


def _difference(name: str, control: str, trials: list[Trial]) -> dict[str, float] | None:
    """Gap closed beyond a control over paired seeds, with its 95 % bootstrap interval."""
    pairs = [
        (a, b)
        for t in trials
        if name in t.figures
        and control in t.figures
        and (a := t.figures[name]["gap_closed"]) is not None
        and (b := t.figures[control]["gap_closed"]) is not None
    ]
    if name == control or not pairs:
        return None
    differences = np.array([a - b for a, b in pairs])
    draws = np.random.default_rng(0).integers(len(pairs), size=(2000, len(pairs)))
    low, high = np.quantile(differences[draws].mean(axis=1), [0.025, 0.975])
    return {"mean": float(differences.mean()), "low": float(low), "high": float(high)}


def _mean_std(values: list[float | None]) -> tuple[float | None, float | None]:
    known = [v for v in values if v is not None]
    if not known:
        return None, None
    return fmean(known), stdev(known) if len(known) > 1 else 0.0

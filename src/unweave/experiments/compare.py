"""Compare methods on one data set, model and kind of request, with every control.

Each seed decides a split, a request and a training. ``none``, ``retrain`` and a retrain from another seed
are always among the rows, and fine-tuning gets as long as the method under test.

Seed-averaged figures (``mean_gap_closed``) need one graph and many trainings, so the split and request
of the first seed are also trained from every other seed.

A poisoned request (``flipped:0.2``) trains on wrong labels and asks to forget exactly those nodes; its rows also say
how much of the lost F1 a method recovers.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.data import load
from unweave.drawing import FLIPPED, stage
from unweave.errors import DataError, MethodError, ModelError, UnweaveError
from unweave.fitting import Progress, Recipe
from unweave.graph import remove
from unweave.meter import find_device
from unweave.methods import available
from unweave.methods.registry import make, parse, ready_for
from unweave.metrics import closed, gap, log_probabilities, micro_f1, parameter_gap_closed
from unweave.models import MODELS, build
from unweave.receipt import Receipt, environment
from unweave.request import Request
from unweave.run import Run
from unweave.training import train
from unweave.unlearning import Unlearned, unlearn

__all__ = ["CONTROLS", "OTHER_SEED", "Comparison", "compare"]

CONTROLS = ("none", "finetune", "retrain")
OTHER_SEED = "retrain (other seed)"
OTHER = 10_000
"""Added to a seed to get the other seed of the floor."""

MakeData = Callable[[int], Data]
MakeModel = Callable[[int, int], nn.Module]


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
        path = Path(path)
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnweaveError(f"cannot write {path}: {error}") from error
        return path

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
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float | None = None,
    forgettable: bool = False,
    averaged: bool = True,
    device: str = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Train, forget by every method, retrain, and score.

    Args:
        data: Name of a data set, or a function that gives the graph split by a seed.
        model: Name of a built-in model, or a function of (features, classes) that builds one.
        forget: Random request, e.g. ``"edges:0.05"``, or a poisoned one, ``"flipped:0.2"``.
        methods: Names, with options where they differ from the defaults (``"gif(steps=3)"``); the controls are added
            where they are missing. Fine-tuning gets as long as the last one.
        seeds: How many.
        epochs: Of the training and of retraining.
        lr: Learning rate.
        weight_decay: Weight decay; as :func:`unweave.train` has it by default, chosen on the first split.
        forgettable: Train every model, retrained ones too, to a minimum.
        averaged: Also train the first split from every seed, for ``mean_gap_closed``; nearly doubles the work.
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
    make_data = _data_maker(data, root)
    make_model = _model_maker(model, forgettable)
    where = find_device(device)
    if weight_decay is None:
        first = stage(forget, make_data(0).to(where))[0]
        chosen = train(_build(make_model, first, where), first, epochs=epochs, lr=lr, forgettable=forgettable)
        weight_decay = chosen.recipe.weight_decay
    recipe = Recipe(epochs=epochs, lr=lr, weight_decay=weight_decay, forgettable=forgettable)
    setting = _Setting(make_data, make_model, forget, order, tested, recipe, where)

    plan = [(s, s) for s in range(seeds)] + [(0, s) for s in range(1, seeds) if averaged]
    setting.warm_up()
    trials: dict[tuple[int, int], _Trial] = {}
    for done, (split_seed, train_seed) in enumerate(plan, start=1):
        trials[split_seed, train_seed] = setting.trial(split_seed, train_seed)
        if progress is not None:
            progress(done, len(plan))
    own = [trials[s, s] for s in range(seeds)]
    same_graph = [trials[0, s] for s in range(seeds)] if averaged else []
    rows = [_row(name, own, same_graph) for name in [*order, OTHER_SEED]]
    if forget.startswith(FLIPPED):
        _add_recovery(rows)
    return Comparison(
        config={
            "data": data if isinstance(data, str) else getattr(data, "__name__", "custom"),
            "model": model if isinstance(model, str) else getattr(model, "__name__", "custom"),
            "forget": forget,
            "seeds": seeds,
            "epochs": epochs,
            "lr": lr,
            "weight_decay": weight_decay,
            "forgettable": forgettable,
            "device": device,
            "finetune": f"as long as {tested[-1]}" if tested else "for 10 epochs",
        },
        environment=environment(torch.device(device)),
        rows=rows,
        receipts=own[0].receipts,
    )


@dataclass
class _Trial:
    """One training and everything measured on it, by method."""

    outputs: dict[str, Tensor] = field(default_factory=dict)
    figures: dict[str, dict[str, float | None]] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    remaining: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(frozen=True)
class _Setting:
    make_data: MakeData
    make_model: MakeModel
    forget: str
    order: list[str]
    tested: list[str]
    recipe: Recipe
    device: torch.device

    def warm_up(self) -> None:
        """Run everything once, briefly, so that no method pays for being first."""
        data, request = stage(self.forget, self.make_data(0).to(self.device))
        run = self._train(data, replace(self.recipe, epochs=3, forgettable=False))
        for name in self.order:
            try:
                self._unlearn(run, request, name)
            except UnweaveError:
                continue  # a method that cannot do this is counted where it is measured

    def trial(self, split_seed: int, train_seed: int) -> _Trial:
        data, request = stage(self.forget, self.make_data(split_seed).to(self.device), seed=split_seed)
        recipe = replace(self.recipe, seed=train_seed)
        run = self._train(data, recipe)
        trial = _Trial()
        reference = self._unlearn(run, request, "retrain")
        done: dict[str, Unlearned] = {"retrain": reference}
        seconds: float | None = None
        for name in [*self.tested, "none", "finetune"]:
            try:
                done[name] = self._unlearn(run, request, name, seconds if name == "finetune" else None)
            except UnweaveError:
                continue
            if name in self.tested:
                seconds = done[name].receipt.seconds["forget"]
        done[OTHER_SEED] = self._unlearn(run, request, "retrain", seed=train_seed + OTHER)
        removal = remove(data, request)
        touched, remaining = removal.touched, torch.ones_like(removal.touched)
        remaining[removal.nodes] = False
        trial.remaining = remaining
        target = log_probabilities(reference.model, reference.data)
        trial.outputs = {name: log_probabilities(d.model, reference.data) for name, d in done.items()}
        trial.receipts = {name: d.receipt for name, d in done.items()}
        nothing = trial.outputs["none"]
        training = reference.receipt.seconds["forget"]
        for name, result in done.items():
            outputs, receipt = trial.outputs[name], result.receipt
            # The yardstick is training alone; what the receipt of a retrain adds must not flatter others.
            ready = str(receipt.details.get("prepared", "")).startswith("after training")
            spent = receipt.seconds["forget" if receipt.method["name"] == "retrain" else "total"]
            trial.figures[name] = {
                "f1": micro_f1(outputs, data.y, reference.data.test_mask),
                "gap_closed": closed(gap(target, outputs, remaining), gap(target, nothing, remaining)),
                "forget_gap_closed": closed(gap(target, outputs, touched), gap(target, nothing, touched)),
                "param_gap_closed": parameter_gap_closed(result.model, reference.model, run.model),
                "residual_influence": receipt.residual_influence,
                "seconds": spent,
                "prepare_seconds": run.prepared.seconds if run.prepared and ready else 0.0,
                "cost": spent / training,
                "passes": float(receipt.passes),
                "peak_mib": receipt.peak_mib,
            }
        return trial

    def _train(self, data: Data, recipe: Recipe) -> Run:
        return train(_build(self.make_model, data, self.device), data, **asdict(recipe))

    def _unlearn(
        self, run: Run, request: Request, name: str, seconds: float | None = None, seed: int | None = None
    ) -> Unlearned:
        method, given = parse(name)
        options = ready_for(method, run.prepared) | given | ({} if seconds is None else {"seconds": seconds})
        return unlearn(
            run.model,
            run.data,
            request,
            method,
            weight_decay=run.recipe.weight_decay,
            seed=run.recipe.seed if seed is None else seed,
            recipe=run.recipe,
            allow_class_loss=True,
            **options,
        )


def _row(name: str, own: list[_Trial], same_graph: list[_Trial]) -> dict[str, Any]:
    """Mean and spread over the seeds; ``None`` where a figure is not defined."""
    figures = [t.figures[name] for t in own if name in t.figures]
    row: dict[str, Any] = {"method": name}
    for key in ("f1", "gap_closed"):
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
    row["over_finetune"] = _difference(name, "finetune", own)
    return row


def _add_recovery(rows: list[dict[str, Any]]) -> None:
    """Of the F1 that the poison cost, the share that each method brings back; ``None`` where it cost nothing."""
    f1 = {row["method"]: row["f1_mean"] for row in rows}
    lost = f1["retrain"] - f1["none"]
    for row in rows:
        known = row["f1_mean"] is not None and lost > 0
        row["recovery"] = (row["f1_mean"] - f1["none"]) / lost if known else None


def _averaged(name: str, trials: list[_Trial]) -> float | None:
    """Gap closed by predictions averaged over the seeds of one graph."""
    if not trials or any(name not in t.outputs for t in trials):
        return None
    remaining = trials[0].remaining
    mean = {
        m: torch.stack([t.outputs[m].double() for t in trials]).logsumexp(dim=0) - math.log(len(trials))
        for m in ("retrain", "none", name)
    }
    return closed(gap(mean["retrain"], mean[name], remaining), gap(mean["retrain"], mean["none"], remaining))


def _difference(name: str, control: str, trials: list[_Trial]) -> dict[str, float] | None:
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


def _build(make: MakeModel, data: Data, device: torch.device) -> nn.Module:
    classes = int(data.num_classes) if "num_classes" in data else int(data.y.max()) + 1
    return make(data.num_features, classes).to(device)


def _data_maker(data: str | MakeData, root: str | Path | None) -> MakeData:
    if callable(data):
        return data
    return lambda seed: load(data, seed=seed, root=root)


def _model_maker(model: str | MakeModel, forgettable: bool) -> MakeModel:
    if callable(model):
        return model
    if model not in MODELS:
        raise ModelError(f"unknown model {model!r}; known: {', '.join(MODELS)}")
    return lambda features, classes: build(model, features, classes, forgettable=forgettable)

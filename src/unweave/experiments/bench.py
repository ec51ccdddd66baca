"""What a request costs: retraining, the published procedure, fine-tuning and gif, timed in turns in one process.

Every round runs each method once, so that a passing load falls on all of them; ratios are taken within a round and
their median is reported. The first round warms up. Quality stands beside every time: gap closed against one
retraining from the same seed, and F1 on the test nodes, read once at the end.
"""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from unweave._core.cost import Meter, find_device
from unweave._core.writing import write_whole
from unweave.curvature.preparation import prepare
from unweave.curvature.prepared import Prepared
from unweave.errors import DataError, UnweaveError
from unweave.experiments.floor import Machine, Work, measure_machine, work_of_a_pass
from unweave.experiments.making import MakeData, MakeModel, data_maker, model_for, model_maker, name_of
from unweave.experiments.paper.experiment import PUBLISHED_SCALES
from unweave.experiments.poison import stage
from unweave.graph.removal import remove
from unweave.inspection.inspect import inspect
from unweave.methods.registry import make
from unweave.models import MODELS
from unweave.models.structure import by_messages
from unweave.objective.scores import closed, gap, log_probabilities, micro_f1
from unweave.receipt.record import environment
from unweave.request import Request
from unweave.run.run import Run
from unweave.run.train import train_run
from unweave.training.adam import Progress
from unweave.unlearning import Unlearned, unlearn

__all__ = ["PREPARED", "PUBLISHED", "Bench", "bench"]

PUBLISHED = "gif-published"
"""The published procedure on PyG's layers, as it is published."""

SPED_UP = "gif-published, fast layers"
"""The same on the layers that all others here use."""

PREPARED = "gif, prepared"
METHODS = ("retrain", "finetune", PUBLISHED, SPED_UP, "gif", PREPARED)
ADAM = "adam alone"
"""The epochs of a retraining without its polish."""

LEAST_ROUNDS = 5

PATIENCE = 60.0
"""Seconds after which the published procedure, far the slowest, sits out the rounds that are left."""


@dataclass(frozen=True)
class Bench:
    """What was measured.

    Attributes:
        config: What was asked.
        environment: Versions and device.
        machine: Bandwidth in bytes a second and floating-point operations a second, as measured.
        once: What is done once: ratios of times, and passes. ``prepare_of_training``; ``inspect_of_training``, all
            nodes and edges scored for the validation loss, where there are validation nodes; for a forgettable model,
            whose training includes the polish, also ``polish_of_adam`` and ``prepare_of_adam``, against its epochs
            alone.
        rows: One dictionary a method; where one fails, the time it takes to fail, and why.
    """

    config: dict[str, Any]
    environment: dict[str, Any]
    machine: dict[str, float]
    once: dict[str, Any]
    rows: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return vars(self)

    def row(self, method: str) -> dict[str, Any]:
        """The row of a method."""
        return next(row for row in self.rows if row["method"] == method)

    def save(self, path: str | Path) -> Path:
        """Write the JSON document."""
        return write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


@dataclass
class _Stage:
    """A trained model, a request, and what methods are timed on."""

    run: Run
    request: Request
    ready: Prepared
    meter: Meter
    scale: float = PUBLISHED_SCALES[-1]
    budget: float | None = None

    def forget(self, method: str) -> Unlearned:
        """One method, once."""
        run, options = self.run, dict[str, Any]()
        name = {ADAM: "retrain", PREPARED: "gif", SPED_UP: PUBLISHED}.get(method, method)
        if method == ADAM:
            options["forgettable"] = False
        if method == PREPARED:
            options["prepared"] = self.ready
        if name == PUBLISHED:
            options["scale"] = self.scale
        if method == "finetune" and self.budget is not None:
            options["seconds"] = self.budget
        with by_messages() if method == PUBLISHED else nullcontext():
            return unlearn(
                run.model,
                run.data,
                self.request,
                make(name, options, run.recipe),
                weight_decay=run.recipe.weight_decay,
                seed=run.recipe.seed,
                recipe=run.recipe,
                allow_class_loss=True,
            )

    def find_scale(self) -> None:
        """The least of the scales that the tables try with which the published recursion does not diverge.

        Where all do, the largest: it is timed until it fails, mostly in its last iteration.
        """
        for self.scale in PUBLISHED_SCALES:
            try:
                self.forget(SPED_UP)
            except UnweaveError:
                continue
            return

    def timed(self, method: str) -> tuple[Unlearned | UnweaveError, float]:
        """A method's result, or why it failed, and the seconds from holding the request to holding that."""
        start = self.meter.now()
        try:
            done = self.forget(method)
        except UnweaveError as error:
            return error, self.meter.now() - start
        seconds = self.meter.now() - start
        # The yardstick is training alone; what the receipt of a retrain adds must not flatter others.
        return done, done.receipt.seconds["forget"] if method in ("retrain", ADAM) else seconds


def bench(
    data: str | MakeData = "demo",
    model: str | MakeModel = "gcn",
    forget: str = "edges:0.05",
    *,
    repeats: int = LEAST_ROUNDS,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float | None = None,
    forgettable: bool = False,
    seed: int = 0,
    device: str = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Bench:
    """Train, prepare, and time every method in turns.

    Args:
        data: Name of a data set, or a function that gives the graph split by a seed.
        model: Name of a built-in model, or a function of (features, classes) that builds one; the floor is known for
            built-in models only.
        forget: Random request.
        repeats: Rounds that count, at least 5.
        epochs: Of the training and of retraining.
        lr: Learning rate.
        weight_decay: As :func:`unweave.train` has it by default.
        forgettable: Train, and retrain, to a minimum.
        seed: Of the split, the request and the training.
        device: ``cpu`` or ``cuda``.
        root: Data folder.
        progress: Called with (rounds done, rounds), the first of them to warm up.
    """
    if repeats < LEAST_ROUNDS:
        raise DataError(f"repeats must be at least {LEAST_ROUNDS}, got {repeats}: a median of fewer says little")
    where = find_device(device)
    graph, request = stage(forget, data_maker(data, root)(seed).to(where), seed=seed)
    module = model_for(model_maker(model, forgettable), graph)
    run = train_run(module, graph, seed=seed, epochs=epochs, lr=lr, weight_decay=weight_decay, forgettable=forgettable)
    meter = Meter(where)
    work = _work(run)
    machine = measure_machine(where)
    stand = _Stage(run, request, _prepare(run), meter)
    stand.find_scale()
    rounds = _Rounds(stand, [*METHODS, *([ADAM] if forgettable else [])])
    for done in range(repeats + 1):
        rounds.go(warm=not done)
        if progress is not None:
            progress(done + 1, repeats + 1)
    return Bench(
        config={
            "data": name_of(data),
            "model": name_of(model),
            "forget": forget,
            "forgettable": forgettable,
            "repeats": repeats,
            "epochs": epochs,
            "lr": lr,
            "weight_decay": run.recipe.weight_decay,
            "seed": seed,
            "device": device,
            "published_scale": stand.scale,
        },
        environment=environment(where),
        machine={"bytes_per_second": machine.bandwidth, "operations_per_second": machine.rate},
        once=rounds.once(),
        rows=rounds.rows(machine, work),
    )


class _Rounds:
    """Seconds of every round by method, and the last result of each."""

    def __init__(self, stand: _Stage, methods: list[str]) -> None:
        self.stand = stand
        self.methods = methods
        self.seconds: dict[str, list[float]] = {name: [] for name in (*methods, "prepare", "inspect")}
        self.inspect_passes = 0.0
        self.peaks: dict[str, float] = {}
        self.results: dict[str, Unlearned] = {}
        self.failures: dict[str, str] = {}

    def go(self, *, warm: bool) -> None:
        """Every method once; fine-tuning gets as long as the prepared gif of the round before."""
        for name in self.methods:
            if name == PUBLISHED and sum(self.seconds[name]) > PATIENCE:
                continue
            done, seconds = self.stand.timed(name)
            self._note(name, seconds, warm=warm)
            if isinstance(done, UnweaveError):
                self.failures[name] = str(done)
                continue
            self.results[name] = done
            if not warm:
                self.peaks[name] = max(self.peaks.get(name, 0.0), done.receipt.peak_mib)
            if name == PREPARED:
                self.stand.budget = done.receipt.seconds["forget"]
        start = self.stand.meter.now()
        _prepare(self.stand.run)
        self._note("prepare", self.stand.meter.now() - start, warm=warm)
        self._inspect(warm=warm)

    def _inspect(self, *, warm: bool) -> None:
        """Score all nodes and edges; no more rounds than patience allows, and none where that cannot be done."""
        run, start = self.stand.run, self.stand.meter.now()
        if sum(self.seconds["inspect"]) > PATIENCE or "inspect" in self.failures:
            return
        try:
            found = inspect(run.model, run.data, weight_decay=run.recipe.weight_decay, prepared=self.stand.ready)
            for kind in ("nodes", "edges"):
                found.scores(kind)
            self.inspect_passes = found.passes
        except UnweaveError as error:
            self.failures["inspect"] = str(error)
            return
        self._note("inspect", self.stand.meter.now() - start, warm=warm)

    def _note(self, name: str, seconds: float, *, warm: bool) -> None:
        if not warm:
            self.seconds[name].append(seconds)

    def against(self, name: str, other: str) -> float:
        """The median over the rounds that both were in of the time of one over that of another."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[other], strict=False))

    def once(self) -> dict[str, Any]:
        """What is done once, against the training it follows."""
        run = self.stand.run
        polish = int(run.metrics.get("polish_passes", 0))
        found: dict[str, Any] = {
            "prepare_of_training": self.against("prepare", "retrain"),
            "prepare_passes": self.stand.ready.passes,
            "training_passes": 2 * run.recipe.epochs + polish,
            "stationarity": self.stand.ready.stationarity,
        }
        if self.seconds["inspect"]:
            found["inspect_of_training"] = self.against("inspect", "retrain")
            found["inspect_passes"] = self.inspect_passes
        if ADAM in self.results:
            whole, adam = self.seconds["retrain"], self.seconds[ADAM]
            found["prepare_of_adam"] = self.against("prepare", ADAM)
            found["polish_of_adam"] = median((w - a) / a for w, a in zip(whole, adam, strict=True))
            found["polish_passes"] = polish
        return found

    def rows(self, machine: Machine, work: Work | None) -> list[dict[str, Any]]:
        """One row a method. This is where test labels are read."""
        run, reference = self.stand.run, self.results["retrain"]
        kept = torch.ones(int(run.data.num_nodes), dtype=torch.bool, device=run.data.x.device)
        kept[remove(run.data, self.stand.request).nodes] = False

        def outputs(model: nn.Module) -> Tensor:
            return log_probabilities(model, reference.data)

        target, nothing = outputs(reference.model), outputs(run.model)
        rows: list[dict[str, Any]] = []
        for name in METHODS:
            row: dict[str, Any] = {
                "method": name,
                "failure": self.failures.get(name),
                "seconds": median(self.seconds[name]),
                "rounds": self.seconds[name],
                "cost": self.against(name, "retrain"),
                "faster_than_published": self.against(PUBLISHED, name),
                "faster_than_sped_up": self.against(SPED_UP, name),
            }
            if name not in self.failures:
                done = self.results[name]
                found, passes = outputs(done.model), done.receipt.passes
                floor = None if work is None else machine.seconds(work * passes)
                row |= {
                    "passes": passes,
                    "floor_seconds": floor,
                    "times_the_floor": None if floor is None else row["seconds"] / floor,
                    "peak_mib": self.peaks[name],
                    "gap_closed": closed(gap(target, found, kept), gap(target, nothing, kept)),
                    "f1": micro_f1(found, run.data.y, reference.data.test_mask),
                    "prepared": done.receipt.details.get("prepared"),
                }
            rows.append(row)
        return rows


def _prepare(run: Run) -> Prepared:
    return prepare(run.model, run.data, weight_decay=run.recipe.weight_decay)


def _work(run: Run) -> Work | None:
    return work_of_a_pass(run.model, run.data) if type(run.model) in MODELS.values() else None

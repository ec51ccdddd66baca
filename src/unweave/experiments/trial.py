"""One training, one request, every method, and everything that is measured on it.

A trial is the unit of every comparison: ``none``, ``retrain`` and a retrain from another seed are always in it, and
fine-tuning gets as long as the last method under test, or as many passes over the graph.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from time import perf_counter
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.tuning import TUNING
from unweave.auditing.after.hard import memorised_request
from unweave.auditing.case import Size, build_case
from unweave.auditing.evidence import Evidence
from unweave.auditing.examination import Examination
from unweave.auditing.population import Upbringing
from unweave.errors import RequestError, UnweaveError
from unweave.experiments.making import MakeData, MakeModel, model_for
from unweave.experiments.poison import Poisoned, attack_success, is_poisoned, poison, stage
from unweave.graph.draw import MEMORISED
from unweave.graph.removal import remove
from unweave.methods import Method
from unweave.methods.ladder.auto import Auto
from unweave.methods.registry import make, parse, ready_for
from unweave.methods.replay import Replay
from unweave.methods.retrace import Retrace
from unweave.objective.parameters import flatten
from unweave.objective.scores import (
    closed,
    gap,
    log_probabilities,
    metric_of,
    micro_f1,
    parameter_gap_closed,
    task_scores,
)
from unweave.receipt.receipt import Receipt
from unweave.request import Request
from unweave.run.calibrate import DELETIONS
from unweave.run.run import Run
from unweave.run.train import train_run
from unweave.training.fit import ORDINARY_DECAY
from unweave.training.recipe import Recipe, Training
from unweave.unlearning import Unlearned, unlearn

__all__ = [
    "CONTROLS",
    "OTHER_SEED",
    "Matched",
    "Setting",
    "Trial",
]

CONTROLS = ("none", "finetune", "retrain")
OTHER_SEED = "retrain (other seed)"
OTHER = 10_000
"""Added to a seed to get the other seed of the floor."""

Matched = Literal["seconds", "passes"]
"""What fine-tuning has in common with the last method under test."""


@dataclass
class Trial:
    """One training and everything measured on it, by method.

    Attributes:
        outputs: Log-probabilities of every node on the remaining graph.
        figures: The figures of each method that did not fail.
        failures: Why a method failed.
        receipts: What each method says of itself.
        remaining: The nodes that remain.
        metric: What models of the task are judged by: F1, AUC, recall at 20.
        f1_before: F1 of the trained model on the graph it was trained on, before anything was removed.
        evidence: What an audit finds of each method's model, where one was asked for and the architecture is the same.
        attack_before: The attack success there, of a poisoned request.
    """

    outputs: dict[str, Tensor] = field(default_factory=dict)
    figures: dict[str, dict[str, float | None]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    remaining: Tensor = field(default_factory=lambda: torch.empty(0))
    metric: str = "f1"
    f1_before: float = 0.0
    evidence: dict[str, tuple[Evidence, ...]] = field(default_factory=dict)
    attack_before: float | None = None


@dataclass(frozen=True)
class Setting:
    """What a trial is made of.

    Attributes:
        make_data: The graph split by a seed.
        make_model: An untrained model for (features, classes).
        forget: Random or poisoned request.
        methods: The methods under test by label, as a method or as a name with options. Controls are added.
        recipe: How every model is trained.
        device: Where.
        controls: Whether fine-tuning, doing nothing and another seed are measured too, or were before.
        deletions: Simulated deletions by which a run is calibrated, where ``auto`` is under test; 0 for none.
        audit: How many models to train for an audit of every method, where one is wanted.
        jobs: Processes that train those.
        matched: What fine-tuning gets as much of as the last method under test, and what costs are ratios of.
    """

    make_data: MakeData
    make_model: MakeModel
    forget: str
    methods: Mapping[str, str | Method]
    recipe: Recipe
    device: torch.device
    controls: bool = True
    deletions: int = DELETIONS
    audit: Size | None = None
    jobs: int = 1
    matched: Matched = "seconds"

    def warm_up(self) -> None:
        """Run everything once, briefly, so that no method pays for being first."""
        data, request = stage(_cheap(self.forget), self.make_data(0).to(self.device))
        run = replace(self, deletions=min(1, self.deletions)).train(
            data, replace(self.recipe, epochs=3, forgettable=False)
        )
        for name in [*self.methods, *(CONTROLS if self.controls else ())]:
            try:
                self._unlearn(run, request, name)
            except UnweaveError:
                continue  # a method that cannot do this is counted where it is measured

    def trial(self, split_seed: int, train_seed: int) -> Trial:
        """Train on a split, forget by every method, retrain, and score."""
        for how in self.methods.values():
            if isinstance(how, str):
                make(*parse(how))  # a method that does not exist has not failed
        data, request, poisoned = self._stage(split_seed)
        return self.measure(self.train(data, replace(self.recipe, seed=train_seed)), request, poisoned)

    def measure(self, run: Run, request: Request, poisoned: Poisoned | None = None) -> Trial:
        """Forget a request by every method, retrain, and score."""
        data = run.data
        reference, _ = self._unlearn(run, request, "retrain")
        trial = Trial(f1_before=micro_f1(log_probabilities(run.model, data), data.y, data.test_mask))
        trial.metric = metric_of(data)
        trial.attack_before = None if poisoned is None else attack_success(run.model, data, poisoned)
        removal = remove(data, request)
        touched, trial.remaining = removal.touched, torch.ones_like(removal.touched)
        trial.remaining[removal.nodes] = False
        target = log_probabilities(reference.model, reference.data)
        nothing = log_probabilities(run.model, reference.data)
        models: dict[str, nn.Module] = {}

        def note(name: str, result: Unlearned, prepared: float) -> float:
            """Score a result and let its model go; returns what the method took."""
            outputs, receipt = log_probabilities(result.model, reference.data), result.receipt
            # The yardstick is training alone; what the receipt of a retrain adds must not flatter others.
            spent = receipt.seconds["forget" if receipt.method["name"] == "retrain" else "total"]
            kept = trial.remaining
            trial.outputs[name], trial.receipts[name] = outputs, receipt
            # A model of another architecture has its own retrained models, and would be taken for one that remembers.
            if self.audit is not None and flatten(result.model).shape == flatten(run.model).shape:
                models[name] = result.model
            trial.figures[name] = {
                trial.metric: _judged(trial.metric, result.model, outputs, reference.data),
                "gap_closed": closed(gap(target, outputs, kept), gap(target, nothing, kept)),
                "forget_gap_closed": closed(gap(target, outputs, touched), gap(target, nothing, touched)),
                "param_gap_closed": parameter_gap_closed(result.model, reference.model, run.model),
                "residual_influence": receipt.residual_influence,
                "seconds": spent,
                "prepare_seconds": prepared,
                "cost": None,
                "passes": float(receipt.passes),
                "peak_mib": receipt.peak_mib,
                **_scale(receipt),
                **({} if poisoned is None else {"attack": attack_success(result.model, reference.data, poisoned)}),
            }
            return receipt.seconds["forget"]

        note("retrain", reference, 0.0)
        spent: dict[Matched, float] = {}
        for name in [*self.methods, *(("none", "finetune") if self.controls else ())]:
            as_much = self._as_much(spent, trial) if name == "finetune" and spent else {}
            try:
                took = note(name, *self._unlearn(run, request, name, as_much))
            except UnweaveError as error:
                trial.failures[name] = str(error)
                continue
            if name in self.methods:
                spent = {"seconds": took, "passes": trial.figures[name]["passes"] or 0.0}
        if self.controls:
            note(OTHER_SEED, *self._unlearn(run, request, "retrain", seed=run.recipe.seed + OTHER))
        # Two retrainings, one at each end of the trial, so that a passing load does not flatter what lies between.
        training = fmean(
            trial.figures[name][self.matched] or 0.0 for name in ("retrain", OTHER_SEED) if name in trial.figures
        )
        for figures in trial.figures.values():
            figures["cost"] = (figures[self.matched] or 0.0) / training
        if self.audit is not None:
            how = Upbringing(run.model, run.training)
            case = build_case(data, request, how, self.audit, seed=run.recipe.seed, jobs=self.jobs)
            examination, before = Examination(case), case.subject(run.model)
            trial.evidence = {name: examination.of(before, case.subject(model)) for name, model in models.items()}
        return trial

    def _as_much(self, spent: Mapping[Matched, float], trial: Trial) -> dict[str, float]:
        """The options of fine-tuning, which gets as much as another method took."""
        if self.matched == "seconds":
            return {"seconds": spent["seconds"]}
        around = trial.figures["none"]["passes"] or 0.0  # every method takes these
        return {"epochs": max(1, round((spent["passes"] - around) / 2))}

    def _stage(self, seed: int) -> tuple[Data, Request, Poisoned | None]:
        """The graph to train on and the request of a seed, and what was poisoned, if anything."""
        clean = self.make_data(seed).to(self.device)
        kind, _, share = self.forget.strip().partition(":")
        if kind == MEMORISED:
            how = Upbringing(model_for(self.make_model, clean), Training.by(self.recipe))
            return clean, memorised_request(how, clean, _share(self.forget, share), seed=seed, jobs=self.jobs), None
        if not is_poisoned(self.forget):
            return (*stage(self.forget, clean, seed=seed), None)
        poisoned = poison(self.forget, clean, seed=seed)
        return poisoned.data, poisoned.request, poisoned

    def chosen_decay(self) -> float:
        """The weight decay that :func:`unweave.train` chooses on the first split."""
        if not self.recipe.forgettable:
            return ORDINARY_DECAY
        data = stage(_cheap(self.forget), self.make_data(0).to(self.device))[0]
        options = {key: value for key, value in asdict(self.recipe).items() if key != "weight_decay"}
        chosen = train_run(model_for(self.make_model, data), data, examine=False, **options).recipe.weight_decay
        assert isinstance(chosen, float)
        return chosen

    def chosen_training(self) -> tuple[Recipe, bool]:
        """The recipe whose epochs leave a model best on validation, on the first split, and whether that was the end.

        Its learning rate is smaller where training lost again what it had learnt.
        """
        data = stage(_cheap(self.forget), self.make_data(0).to(self.device))[0]
        options = {key: value for key, value in asdict(self.recipe).items() if key != "epochs"}
        run = train_run(model_for(self.make_model, data), data, examine=False, **options)
        assert run.recipe is not None
        recipe = replace(self.recipe, epochs=run.recipe.epochs, lr=run.recipe.lr)
        return recipe, bool(run.metrics.get("training_ended", True))

    def ended(self) -> bool:
        """Whether half as many epochs again leave a model no better on the validation nodes of the first split."""
        data = stage(_cheap(self.forget), self.make_data(0).to(self.device))[0]
        if data.get("val_mask") is None:
            return True  # nothing tells otherwise
        epochs = self.recipe.epochs
        longer = replace(self.recipe, epochs=epochs + max(10, epochs // 2))
        now, then = (
            train_run(model_for(self.make_model, data), data, examine=False, **asdict(recipe)).metrics.get(
                "val_f1", 0.0
            )
            for recipe in (self.recipe, longer)
        )
        error: float = (now * (1 - now) / max(int(data.val_mask.sum()), 1)) ** 0.5
        return then - now <= error

    def train(self, data: Data, recipe: Recipe) -> Run:
        """A model trained by a recipe, with what the methods under test need of it.

        For ``replay`` its checkpoints; for ``retrace`` and ``auto`` those that serve the ladder, and the run is
        prepared, and calibrated for ``auto``, which then serves the other methods too.
        """
        named = [make(*parse(how)) for how in self.methods.values() if isinstance(how, str)]
        shares = [how.share for how in named if isinstance(how, Replay) and how.share < 1]
        climbs, walks = (any(isinstance(how, kind) for how in named) for kind in (Auto, (Auto, Retrace)))
        states = [*shares, *(TUNING.ladder.shares if walks else ())]
        run = train_run(model_for(self.make_model, data), data, checkpoints=states, examine=False, **asdict(recipe))
        if climbs and self.deletions:
            return run.calibrate(self.deletions)
        return run.prepare() if walks and run.prepared is None else run

    def _unlearn(
        self,
        run: Run,
        request: Request,
        name: str,
        options: Mapping[str, float] = MappingProxyType({}),
        seed: int | None = None,
    ) -> tuple[Unlearned, float]:
        """The result of a method, and the seconds of what was done once before any request."""
        how = self.methods.get(name, name)
        if isinstance(how, str):
            named, given = parse(how)
            states = () if named == "retrain" else run.checkpoints  # the yardstick is training alone
            kept = ready_for(named, prepared=run.prepared, checkpoints=states, calibration=run.calibration)
            how = make(named, kept | given | dict(options), run.recipe)
        start = perf_counter()
        model = how.setup(run.model, run.data, run.recipe)
        prepared = perf_counter() - start if model is not run.model else 0.0
        done = unlearn(
            model,
            run.data,
            request,
            how,
            weight_decay=run.recipe.weight_decay,
            seed=run.recipe.seed if seed is None else seed,
            recipe=run.recipe,
            allow_class_loss=True,
        )
        if run.prepared and (
            str(done.receipt.details.get("prepared", "")).startswith("after training") or done.receipt.ladder
        ):
            prepared += run.prepared.seconds
        if run.calibration and done.receipt.ladder:
            prepared += run.calibration.seconds
        return done, prepared


def _cheap(forget: str) -> str:
    """A request of the same size that needs no models to be drawn."""
    kind, _, share = forget.strip().partition(":")
    return f"nodes:{_share(forget, share):g}" if kind == MEMORISED else forget


def _share(forget: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"cannot read {forget!r}; write e.g. {MEMORISED}:0.05, alone") from None


def _judged(metric: str, model: nn.Module, outputs: Tensor, data: Data) -> float | None:
    """The score of a model on what is held out to test; ``None`` where nothing is."""
    if metric == "f1":
        return micro_f1(outputs, data.y, data.test_mask)
    return task_scores(model, data).get(f"test_{metric}")


def _scale(receipt: Receipt) -> dict[str, float | None]:
    """The scale of the paper's recursion, where that was used."""
    settings = receipt.solve["settings"] if receipt.solve else {}
    return {"scale": settings["scale"]} if "scale" in settings else {}

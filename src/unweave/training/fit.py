"""Train a model from scratch by a recipe that can be repeated exactly."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.certificate.release import certifiable, release
from unweave.curvature.preparation import check_calls, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.objective.checks import check_data, check_model
from unweave.objective.losses import AnyLoss, Loss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, flatten, load_flat
from unweave.objective.parts.bounded import objective_within
from unweave.objective.scores import score_outputs, task_scores, validation
from unweave.training.adam import Adam, Progress, reinitialise, seeded
from unweave.training.agreement import FIRST_PHASE, descend, examined
from unweave.training.checkpoints import Checkpoint
from unweave.training.ending import Ended, put_back, train_until_enough
from unweave.training.minimum import polish_objective, refuse_no_decay
from unweave.training.path import traced, walkable
from unweave.training.recipe import Recipe
from unweave.training.resuming import Resume

__all__ = ["CERTIFIED_DECAY", "ORDINARY_DECAY", "Trained", "check_shares", "train_model"]


ORDINARY_DECAY = 1e-4

CERTIFIED_DECAY = 1e-3
"""Weight decay of a certified model. It is not chosen on the data, so that it tells nothing of them."""


@dataclass(frozen=True)
class Trained:
    """What training gives.

    Attributes:
        model: The module that was given, trained in place.
        recipe: How.
        metrics: Scores on the three masks, and what training took.
        checkpoints: States that it can be resumed from.
        prepared: What makes requests cheap, where it was trained to forget.
    """

    model: nn.Module
    recipe: Recipe
    metrics: Mapping[str, float]
    checkpoints: tuple[Checkpoint, ...] = ()
    prepared: Prepared | None = None


@dataclass(frozen=True)
class _Job:
    """What is trained, in place, and who is told.

    Attributes:
        model: Any module.
        data: The graph.
        loss: Per-node loss.
        forward: How the module is called.
        shares: States to keep, as shares of the training that are left there.
        examine: Whether to find out if another seed ends at the same minimum.
        progress: Called with (done, total).
        memory_mib: What evaluating the model may hold at a time.
        resume: Where states are kept while it goes on.
    """

    model: nn.Module
    data: Data
    loss: Loss
    forward: Forward
    shares: Sequence[float]
    examine: bool
    progress: Progress | None
    memory_mib: float | None
    resume: Resume | None = None

    def objective(self, decay: float | Mapping[str, float]) -> Objective:
        """What is minimised, with a meter of its own."""
        meter, how = Meter(self.data.x.device), (self.loss, self.forward)
        return objective_within(self.model, self.data, decay, *how, meter, self.memory_mib)

    def scores(self, objective: Objective) -> dict[str, float]:
        """Of the model as it is."""
        found = score_outputs(objective.predict(self.model), self.data, self.loss)
        return found | task_scores(self.model, self.data)


def train_model(
    model: nn.Module,
    data: Data,
    *,
    seed: int = 0,
    epochs: int | None = None,
    lr: float = 0.01,
    weight_decay: float | Mapping[str, float] | None = None,
    forgettable: bool = False,
    checkpoints: Sequence[float] = (),
    certify: tuple[float, float] | None = None,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    examine: bool = False,
    memory_mib: float | None = None,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train ``model`` in place, from scratch; the arguments are those of :func:`unweave.train`."""
    check_shares(checkpoints)
    memory_mib = ranks.budget(memory_mib)
    loss = as_loss(loss)
    check_data(data)
    check_model(model, data, trained=False)
    if certify is not None and forgettable:
        raise ModelError("a certified model is trained to its minimum already; leave forgettable (--forgettable) out")
    if certify is not None and checkpoints:
        raise ModelError("a certified model has no path of training to replay; leave checkpoints (--checkpoints) out")
    if certify is not None and memory_mib not in (None, math.inf):
        raise ModelError("a certified model is trained on the whole graph at once; leave memory_mib (--memory-mib) out")
    with seeded(seed, data.x.device):
        reinitialise(model)
        if memory_mib is None:  # in blocks, whoever finds those does
            check_calls(model, data, loss, forward)
    first = FIRST_PHASE if epochs is None else epochs
    job = _Job(model, data, loss, forward, checkpoints, examine, progress, memory_mib)
    if resume is not None:
        if not checkpoints:
            raise ModelError("resume goes on from states that are kept; say which with checkpoints (--checkpoints)")
        job = replace(job, resume=Resume(resume))
    if certify is not None:
        chosen = CERTIFIED_DECAY if weight_decay is None else weight_decay
        return _certify(job, Recipe(seed, first, lr, chosen, certify=certify))
    if forgettable:
        recipe = Recipe(seed, first, lr, 0.0 if weight_decay is None else weight_decay, True)
        return _fit_to_one_minimum(job, recipe) if weight_decay is None else _fit_to_minimum(job, recipe)
    recipe = Recipe(seed, first, lr, ORDINARY_DECAY if weight_decay is None else weight_decay)
    until_enough = epochs is None and validation(data, loss).numel() > 0
    return _fit_until_enough(job, recipe) if until_enough else _fit(job, recipe)


def check_shares(shares: Sequence[float]) -> None:
    """Shares of a training that some of it is left of."""
    if not (isinstance(shares, Sequence) and all(isinstance(s, int | float) and 0 < s < 1 for s in shares)):
        raise ModelError(
            f"checkpoints must be shares of the training above 0 and below 1, e.g. (0.05, 0.2), got {shares!r}; the "
            "whole training can always be replayed"
        )


def _fit(job: _Job, recipe: Recipe) -> Trained:
    """Adam for as many epochs as the recipe says."""
    objective, told = job.objective(recipe.weight_decay), job.progress
    tell = None if told is None else lambda done, _: told(done, recipe.epochs)
    states = descend(objective, shares=job.shares, resume=job.resume, progress=tell, **_how(recipe))
    kept = traced(states, objective) if walkable(job.model) else tuple(states)
    metrics = job.scores(objective) | {"train_seconds": objective.meter.seconds["train"]}
    return Trained(job.model, recipe, metrics, checkpoints=kept)


def _fit_until_enough(job: _Job, recipe: Recipe) -> Trained:
    """Adam for as long as validation says; the recipe has the epochs that gave the best model.

    Where steps were so long that all was lost again that had been learnt, a third of the learning rate is tried, and
    the recipe has that if it gave the better model.
    """
    objective = job.objective(recipe.weight_decay)
    meter = objective.meter

    def fitted(lr: float) -> Ended:
        with seeded(recipe.seed, meter.device), meter.phase("train"):
            return train_until_enough(Adam(lr, objective), job.model, objective, job.progress)

    ended = found = fitted(lr := recipe.lr)
    for _ in range(TUNING.ending.slower):
        if not found.lost:
            break
        found = fitted(lr := lr / 3)
        if found.better_than(ended):
            ended, recipe = found, replace(recipe, lr=lr)
    put_back(job.model, ended.tensors)
    recipe = replace(recipe, epochs=ended.epochs)
    told = {"epochs_looked_at": float(ended.looked), "training_ended": float(ended.enough)}
    told |= {"training_lost": 1.0} if ended.lost else {}
    if job.shares:  # their epochs are known only now
        again = _fit(replace(job, progress=None), recipe)
        return replace(again, metrics=dict(again.metrics) | told)
    return Trained(job.model, recipe, job.scores(objective) | told | {"train_seconds": meter.seconds["train"]})


@dataclass(frozen=True)
class _Reached:
    """A minimum, before anything is known of it.

    Attributes:
        objective: With the model there.
        before: Scores before the polish.
        states: From which shares of the first phase can be repeated.
        descended: Passes of the first phase.
        report: Of the polish.
    """

    objective: Objective
    before: Mapping[str, float]
    states: Sequence[Checkpoint]
    descended: float
    report: Mapping[str, Any]


def _fit_to_minimum(job: _Job, recipe: Recipe) -> Trained:
    """Adam, then a polish; and, to examine whether there is one minimum, another seed after a deletion."""
    return _examined(job, recipe, _reach(job, recipe))


def _reach(job: _Job, recipe: Recipe) -> _Reached:
    """Adam, then a polish."""
    objective, told = job.objective(recipe.weight_decay), job.progress
    meter = objective.meter
    refuse_no_decay(objective)
    total = 2 * (recipe.epochs + TUNING.polish.usual)
    tell = None if told is None else lambda done, _: told(done, total)
    states = descend(objective, shares=job.shares, resume=job.resume, progress=tell, **_how(recipe))
    descended, before = meter.passes, job.scores(objective)
    tell = None if told is None else lambda done, _: told(min(recipe.epochs + done, total // 2), total)
    with meter.phase("polish"):
        report = polish_objective(objective, progress=tell)
    return _Reached(objective, before, states, descended, report)


def _examined(job: _Job, recipe: Recipe, reached: _Reached) -> Trained:
    """What makes requests cheap at a minimum, and whether it is one."""
    objective, report, model, told = reached.objective, reached.report, job.model, job.progress
    meter = objective.meter

    def prepare() -> Prepared:
        with meter.phase("polish"):
            return prepare_objective(objective, flatten(model))

    how = _how(replace(recipe, seed=recipe.seed + 1))
    prepared, same = examined(objective, prepare, **how) if job.examine else (prepare(), None)
    whole = reached.descended + report["passes"]
    luck = None if same is None else same.seeds
    prepared = prepared.examined(None if same is None else same.value, whole, luck)
    if told is not None:
        told(total := 2 * (recipe.epochs + TUNING.polish.usual), total)
    metrics = job.scores(objective)
    metrics |= {f"{key}_before_polish": value for key, value in reached.before.items() if key.endswith("_f1")}
    metrics |= {
        "gradient_norm": report["gradient_norm"],
        "gradient_norm_before_polish": report["gradient_norm_before"],
        "stationarity": prepared.stationarity,
        "bend": prepared.bend,
        **({} if report["smallest_curvature"] is None else {"smallest_curvature": report["smallest_curvature"]}),
        "polish_evaluations": report["evaluations"],
        "polish_products": report["products"],
        "polish_passes": report["passes"],
        "train_seconds": meter.seconds["train"],
        "polish_seconds": meter.seconds["polish"],
    }
    if same is not None:
        metrics |= {"agreement": same.value, "seed_gap": same.seeds, "deletion_gap": same.deletion}
    return Trained(model, recipe, metrics, checkpoints=tuple(reached.states), prepared=prepared)


def _certify(job: _Job, recipe: Recipe) -> Trained:
    """Minimise the perturbed objective from zero parameters."""
    assert recipe.certify is not None
    objective = job.objective(recipe.weight_decay)
    meter = objective.meter
    with meter.phase("train"):
        done = release(certifiable(objective), None, recipe.certify, dtype=objective.mu.dtype)
        load_flat(job.model, done.theta)
    metrics = job.scores(objective) | done.figures
    metrics |= {"distance": done.certificate["distance"], "train_seconds": meter.seconds["train"]}
    return Trained(job.model, recipe, metrics)


def _fit_to_one_minimum(job: _Job, recipe: Recipe) -> Trained:
    """With the decay that validation chooses, or where seeds do not agree a larger one that is nearly as good.

    Where none that was tried makes seeds agree, larger ones follow for as long as validation allows; in the end the one
    is taken with which seeds differ least.
    """
    chosen = _chosen_decays(job, recipe)
    judged = job.loss.classes and bool(validation(job.data, job.loss).numel())  # else nothing says when to stop
    further = sorted(decay for decay in TUNING.polish.decays if judged and decay > max(chosen))
    done, best, right = None, -math.inf, None
    for decay in (*chosen, *further):
        own = job if done is None else replace(job, model=duplicate(job.model))
        there = replace(recipe, weight_decay=decay)
        reached = _reach(own, there)
        now = _right(own, reached.objective)
        if right is None:
            right = now
        elif decay in further and float((right.double() - now.double()).mean()) > _given_up(now, right):
            break  # before anybody examines it
        found = _examined(own, there, reached)
        assert found.prepared is not None
        same = found.prepared.agreement
        if done is None or (same is not None and same > best):
            done, best = found, -math.inf if same is None else same
        if same is None or same >= TUNING.polish.sought:
            break
    assert done is not None
    if done.model is not job.model:
        job.model.load_state_dict(done.model.state_dict())
    return replace(done, model=job.model)


def _right(job: _Job, objective: Objective) -> Tensor:
    """Which validation nodes the model has right."""
    nodes = validation(job.data, job.loss)
    if not job.loss.classes or not nodes.numel():
        return torch.ones(1, dtype=torch.bool)
    right: Tensor = objective.predict(job.model)[nodes].argmax(dim=1) == job.data.y[nodes]
    return right


def _how(recipe: Recipe) -> dict[str, Any]:
    """What the first phase needs of a recipe, beside the weight decay."""
    return {"seed": recipe.seed, "epochs": recipe.epochs, "lr": recipe.lr}


def _decays(model: nn.Module, data: Data) -> tuple[float, ...]:
    """The weight decays to choose from, the largest first: by the length of the features that a model takes."""
    length = 1.0 if getattr(model, "unit", False) else float(torch.linalg.vector_norm(data.x)) / data.num_nodes**0.5
    known, largest = TUNING.polish.decays, TUNING.polish.unit_decay * max(length, 1e-30)
    return known[min(range(len(known)), key=lambda n: abs(math.log(known[n] / largest))) :]


def _chosen_decays(job: _Job, recipe: Recipe) -> list[float]:
    """The decay with the lowest validation loss, then larger ones of nearly as good an F1.

    Decays are tried from the largest on, until one leaves a model that knows something and the next is no better. The
    loss tells decays apart where F1 is still a matter of a few nodes.
    """
    nodes, decays = validation(job.data, job.loss), _decays(job.model, job.data)
    if not job.loss.classes or not nodes.numel():
        return [decays[0]]
    labels = job.data.y[nodes]
    right: dict[float, Tensor] = {}
    loss: dict[float, float] = {}
    best = None
    for decay in decays:
        objective = job.objective(decay)
        descend(objective, **_how(recipe))
        polish_objective(objective, evaluations=TUNING.polish.choosing)
        outputs = objective.predict(job.model)[nodes]
        right[decay] = outputs.argmax(dim=1) == labels
        # Where decay leaves nothing, what is left may still be in the right order: that is no reason to choose it.
        loss[decay] = float(job.loss(outputs, labels).mean()) if _knows(outputs, labels, job.loss) else math.inf
        if best is not None and loss[decay] >= loss[best]:
            break
        best = decay if loss[decay] < math.inf else None
    if best is None:
        return [decays[0]]
    lost = {
        d: float((right[best].double() - right[d].double()).mean()) for d in loss if best < d and loss[d] < math.inf
    }
    return [best, *sorted(d for d in lost if lost[d] <= _given_up(right[d], right[best]))]


def _given_up(one: Tensor, best: Tensor) -> float:
    """Validation F1 that may be given up for seeds that agree; few nodes tell less of it."""
    return max(TUNING.polish.given_up, 2 * _error(one, best))


def _knows(outputs: Tensor, labels: Tensor, loss: Loss) -> bool:
    """Whether outputs lower the loss by something beside that of outputs which are all the same."""
    told, nothing = (float(loss(some, labels).mean()) for some in (outputs, torch.zeros_like(outputs)))
    return told < (1 - TUNING.polish.knows) * nothing


def _error(one: Tensor, other: Tensor) -> float:
    """Standard error of the difference of two F1 on the same nodes: only where one is right and one wrong counts."""
    return math.sqrt(int((one != other).sum())) / one.numel()

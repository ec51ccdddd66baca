"""Train a model from scratch by a recipe that can be repeated exactly."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.certificate.release import certifiable, release
from unweave.curvature.preparation import check_calls, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.objective.checks import check_data, check_model
from unweave.objective.decay import decay_vector
from unweave.objective.losses import AnyLoss, Loss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.scores import score
from unweave.training.adam import Adam, Progress, reinitialise, seeded
from unweave.training.checkpoints import Checkpoint, resume_at, train_through
from unweave.training.path import traced, walkable
from unweave.training.polish import polish_objective, refuse_no_decay
from unweave.training.recipe import Recipe

__all__ = ["CERTIFIED_DECAY", "FORGETTABLE_DECAY", "ORDINARY_DECAY", "OTHER_DECAYS", "Trained", "train_model"]


ORDINARY_DECAY = 1e-4

FORGETTABLE_DECAY = 1e-2
"""Weight decay of a forgettable model, unless validation speaks against it: enough to leave one minimum that every seed
finds, on most graphs."""

CERTIFIED_DECAY = 1e-3
"""Weight decay of a certified model. It is not chosen on the data, so that it tells nothing of them."""

OTHER_DECAYS = (3e-2, 3e-3, 1e-3)

EVIDENCE = 0.75
"""Standard errors of the validation F1 by which another decay must be better."""


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


def train_model(
    model: nn.Module,
    data: Data,
    *,
    seed: int = 0,
    epochs: int = 100,
    lr: float = 0.01,
    weight_decay: float | Mapping[str, float] | None = None,
    forgettable: bool = False,
    checkpoints: Sequence[float] = (),
    certify: tuple[float, float] | None = None,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    progress: Progress | None = None,
) -> Trained:
    """Train ``model`` in place, from scratch; the arguments are those of :func:`unweave.train`."""
    _check_shares(checkpoints)
    loss = as_loss(loss)
    check_data(data)
    check_model(model, data, trained=False)
    if certify is not None and forgettable:
        raise ModelError("a certified model is trained to its minimum already; leave forgettable (--forgettable) out")
    if certify is not None and checkpoints:
        raise ModelError("a certified model has no path of training to replay; leave checkpoints (--checkpoints) out")
    device = data.x.device
    with seeded(seed, device):
        reinitialise(model)
        check_calls(model, data, loss, forward)
    if certify is not None:
        chosen = CERTIFIED_DECAY if weight_decay is None else weight_decay
        return _certify(model, data, Recipe(seed, epochs, lr, chosen, certify=certify), loss, forward)
    if weight_decay is None and forgettable:
        chosen = _choose_decay(model, data, Recipe(seed, epochs, lr, 0.0, True), loss, forward)
    else:
        chosen = ORDINARY_DECAY if weight_decay is None else weight_decay
    return _fit(model, data, Recipe(seed, epochs, lr, chosen, forgettable), loss, forward, checkpoints, progress)


def _check_shares(shares: Sequence[float]) -> None:
    if not (isinstance(shares, Sequence) and all(isinstance(s, int | float) and 0 < s < 1 for s in shares)):
        raise ModelError(
            f"checkpoints must be shares of the training above 0 and below 1, e.g. (0.05, 0.2), got {shares!r}; the "
            "whole training can always be replayed"
        )


def _fit(
    model: nn.Module,
    data: Data,
    recipe: Recipe,
    loss: Loss,
    forward: Forward,
    shares: Sequence[float] = (),
    progress: Progress | None = None,
) -> Trained:
    meter = Meter(data.x.device)
    objective = Objective(model, data, loss, decay_vector(model, recipe.weight_decay), forward, meter)
    if recipe.forgettable:
        refuse_no_decay(objective)
    total = recipe.epochs + (TUNING.polish.evaluations if recipe.forgettable else 0)
    tell = None if progress is None else lambda done, _: progress(done, total)
    trainer = Adam(recipe.lr, objective.decay, loss, forward, meter, tell)
    stops = sorted({resume_at(share, recipe.epochs) for share in shares} - {0})
    with seeded(recipe.seed, meter.device), meter.phase("train"):
        *states, _ = train_through(trainer, model, data, None, [*stops, recipe.epochs])
        walks = walkable(model) and not recipe.forgettable
        kept = traced(states, objective) if walks else tuple(states)
    done = Trained(model, recipe, {}, checkpoints=kept)
    if not recipe.forgettable:
        metrics = score(model, data, loss, forward)
        return replace(done, metrics=metrics | {"train_seconds": meter.seconds["train"]})
    ordinary = copy.deepcopy(model)
    with meter.phase("polish"):
        tell = None if progress is None else lambda done, _: progress(recipe.epochs + done, total)
        report = polish_objective(objective, evaluations=TUNING.polish.evaluations, progress=tell)
        prepared = prepare_objective(objective, flatten(model))
    metrics = score(model, data, loss, forward)
    before = score(ordinary, data, loss, forward)
    metrics |= {f"{key}_before_polish": value for key, value in before.items() if key.endswith("_f1")}
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
    return replace(done, metrics=metrics, prepared=prepared)


def _certify(model: nn.Module, data: Data, recipe: Recipe, loss: Loss, forward: Forward) -> Trained:
    """Minimise the perturbed objective from zero parameters."""
    assert recipe.certify is not None
    meter = Meter(data.x.device)
    objective = Objective(model, data, loss, decay_vector(model, recipe.weight_decay), forward, meter)
    with meter.phase("train"):
        done = release(certifiable(objective), None, recipe.certify, dtype=objective.mu.dtype)
        load_flat(model, done.theta)
    metrics = score(model.eval(), data, loss, forward) | done.figures
    metrics |= {"distance": done.certificate["distance"], "train_seconds": meter.seconds["train"]}
    return Trained(model, recipe, metrics)


def _choose_decay(model: nn.Module, data: Data, recipe: Recipe, loss: Loss, forward: Forward) -> float:
    """The usual decay, or the best one where validation nodes show that it is clearly better."""
    if not loss.classes or data.get("val_mask") is None:
        return FORGETTABLE_DECAY
    known = int((data.val_mask & (data.y >= 0)).sum())
    if not known:
        return FORGETTABLE_DECAY
    found = {}
    for decay in (FORGETTABLE_DECAY, *OTHER_DECAYS):
        found[decay] = _fit(model, data, replace(recipe, weight_decay=decay), loss, forward).metrics["val_f1"]
    best = max(found, key=lambda decay: found[decay])
    error = (found[best] * (1 - found[best]) / known) ** 0.5
    return best if found[best] > found[FORGETTABLE_DECAY] + EVIDENCE * error else FORGETTABLE_DECAY

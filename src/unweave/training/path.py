"""The path that training took, by its checkpoints: where it was, how far an epoch moved it, and what pulled it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.curvature.preparation import checked_objective
from unweave.errors import MethodError
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, trained
from unweave.objective.running_stats import running
from unweave.training.checkpoints import Checkpoint, in_order

__all__ = [
    "NOT_WALKABLE",
    "Motion",
    "is_traced",
    "motion_at",
    "pull_at",
    "trace_path",
    "traced",
    "walkable",
    "weights_at",
]

ADAMS = ("Adam", "AdamW")

NOT_WALKABLE = (
    "retrace compares gradients in eval mode, and a model with running statistics (BatchNorm) is trained by others; "
    "use method='replay'"
)


def trace_path(
    checkpoints: Sequence[Checkpoint],
    model: nn.Module,
    data: Data,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
) -> tuple[Checkpoint, ...]:
    """Checkpoints of a training of one's own with what ``retrace`` needs beside them: one gradient for each.

    :func:`unweave.train` does it by itself. Do it before anything is forgotten, on the graph of the training. The loop
    must minimise the mean loss of the training nodes, with the parameters in the order of the model.

    Args:
        checkpoints: The states of the training.
        model: The trained module; it stays as it is.
        data: The graph it was trained on.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it.
    """
    if not walkable(model):
        raise MethodError(NOT_WALKABLE)
    decay = as_weight_decay(weight_decay, model)
    objective = checked_objective(duplicate(model), data, decay, as_loss(loss), forward)
    return traced(in_order(checkpoints), objective)


def traced(states: Iterable[Checkpoint], objective: Objective) -> tuple[Checkpoint, ...]:
    """States with the gradient of the mean loss and decay at each, on the graph that they were trained on.

    Raises:
        MethodError: How the optimiser moved the parameters is not known.
    """
    found = []
    for state in states:
        motion_at(state, objective)
        found.append(replace(state, gradient=pull_at(state, objective).cpu()))
    return tuple(found)


def is_traced(states: Sequence[Checkpoint]) -> bool:
    """Whether all states there are know what pulled them."""
    return bool(states) and all(state.gradient is not None for state in states)


def walkable(model: nn.Module) -> bool:
    """Whether a gradient in eval mode is what pulls training on: not where statistics of the whole graph take part."""
    return not running(model)


def weights_at(state: Checkpoint, model: nn.Module) -> Tensor:
    """The trained parameters in a state as one vector, where those of a module are."""
    state.check_model(model)
    names = trained(model)
    device = next(iter(names.values())).device
    return torch.cat([state.model[name].reshape(-1) for name in names]).to(device)


def pull_at(state: Checkpoint, objective: Objective, away: Tensor | float = 0.0) -> Tensor:
    """∇(L/n) in a state, or some way from it."""
    theta = weights_at(state, objective.model) + away
    return objective.evaluate(theta)[1] / objective.mass


UNMOVED = 1e-30
"""Rate of a parameter that no gradient ever reached, as those of a relation that leads away from the examples."""


@dataclass(frozen=True)
class Motion:
    """How an optimiser moves the parameters.

    Attributes:
        rates: How far a step moves each for a gradient of one: lr / (√v̂ + ε) for Adam, lr / (1 − momentum) for SGD.
        lengths: How far a step moves each at most: lr for Adam, which divides a gradient by its own size.
        steps: Steps done so far: as the optimiser counts them, or one an epoch.
    """

    rates: Tensor
    lengths: Tensor
    steps: int


def motion_at(state: Checkpoint, objective: Objective) -> Motion:
    """How the optimiser of a state moves the parameters."""
    optimisers = [(name, part) for name, part in state.parts if isinstance(part, Mapping) and "param_groups" in part]
    if len(optimisers) != 1 or optimisers[0][0] not in (*ADAMS, "SGD"):
        have = ", ".join(name for name, _ in optimisers) or "none"
        raise MethodError(
            f"retrace knows how {', '.join(ADAMS)} and SGD move a model, and the checkpoint of epoch {state.epoch} was "
            f"taken with the optimiser: {have}; use method='replay'"
        )
    name, optimiser = optimisers[0]
    groups = optimiser["param_groups"]
    numbers = [iter(group["params"]) for group in groups]
    model = objective.model
    frozen_too = sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    rates, lengths, counts, offset = [], [], set[int](), 0
    for parameter in model.parameters() if frozen_too else trained(model).values():
        which = _group(groups, float(objective.decay[min(offset, objective.decay.numel() - 1)]))
        number = next(numbers[which], None)
        known = optimiser["state"].get(number, {})
        if not parameter.requires_grad:
            continue
        if number is not None and not known and name in ADAMS:  # no gradient ever reached it
            rate, length = torch.full(parameter.shape, UNMOVED), float(groups[which]["lr"])
        else:
            rate, length = _moves(name, groups[which], known, parameter)
        rates.append(rate.reshape(-1))
        lengths.append(torch.full_like(rates[-1], length))
        counts.add(int(known.get("step", state.epoch)))
        offset += parameter.numel()
    return Motion(torch.cat(rates).to(objective.decay), torch.cat(lengths).to(objective.decay), max(counts))


def _group(groups: Sequence[Mapping[str, Any]], decay: float) -> int:
    """Which of an optimiser's groups a parameter is in: they are told apart by their weight decay."""
    found = [n for n, group in enumerate(groups) if math.isclose(group["weight_decay"], decay, rel_tol=1e-5)]
    if len(groups) == 1:
        return 0
    if len(found) == 1:
        return found[0]
    raise MethodError(
        f"of {len(groups)} groups of the optimiser {len(found)} have the weight decay {decay:.3g} of a parameter, so "
        "that retrace cannot tell how that is moved; use one group, or method='replay'"
    )


def _moves(name: str, group: Mapping[str, Any], state: Mapping[str, Any], parameter: Tensor) -> tuple[Tensor, float]:
    """The rates of one parameter, and how far a step moves it at most."""
    if name == "SGD":
        rate = group["lr"] * (1 - group["dampening"]) / (1 - group["momentum"])
        return torch.full(parameter.shape, rate), math.inf
    square = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if square is None or square.shape != parameter.shape:
        raise MethodError(
            f"the {name} of a checkpoint knows other parameters than the model has, or in another order; retrace needs "
            "one that was given model.parameters()"
        )
    corrected = square / (1 - group["betas"][1] ** float(state["step"]))
    return group["lr"] / (corrected.sqrt() + group["eps"]), float(group["lr"])

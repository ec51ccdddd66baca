"""The path that training took, by its checkpoints: where it was, how far an epoch moved it, and what pulled it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.checkpoints import Checkpoint, in_order
from unweave.errors import MethodError
from unweave.losses import Loss, cross_entropy
from unweave.objective import Forward, Objective, WeightDecay, call, duplicate, trained
from unweave.prepared import checked_objective

__all__ = ["is_traced", "pull_at", "rates_at", "trace_path", "traced", "weights_at"]


def trace_path(
    checkpoints: Sequence[Checkpoint],
    model: nn.Module,
    data: Data,
    *,
    weight_decay: WeightDecay,
    loss: Loss = cross_entropy,
    forward: Forward = call,
) -> tuple[Checkpoint, ...]:
    """Checkpoints of a training of one's own with what ``retrace`` needs beside them: one gradient for each.

    :func:`unweave.train` does it by itself. Do it before anything is forgotten, on the graph of the training.

    Args:
        checkpoints: The states of the training.
        model: The trained module; it stays as it is.
        data: The graph it was trained on.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it.
    """
    objective = checked_objective(duplicate(model), data, weight_decay, loss, forward)
    return traced(in_order(checkpoints), objective)


def traced(states: Iterable[Checkpoint], objective: Objective) -> tuple[Checkpoint, ...]:
    """States with the gradient of the mean loss and decay at each, on the graph that they were trained on."""
    return tuple(
        replace(state, gradient=pull_at(state, objective, weights_at(state, objective.model)).cpu()) for state in states
    )


def is_traced(states: Sequence[Checkpoint]) -> bool:
    """Whether all states there are know what pulled them."""
    return bool(states) and all(state.gradient is not None for state in states)


def weights_at(state: Checkpoint, model: nn.Module) -> Tensor:
    """The trained parameters in a state as one vector, where those of a module are."""
    state.check_model(model)
    names = trained(model)
    device = next(iter(names.values())).device
    return torch.cat([state.model[name].reshape(-1) for name in names]).to(device)


def pull_at(state: Checkpoint, objective: Objective, theta: Tensor) -> Tensor:
    """∇(L/n) at θ, with the buffers that the module had in a state."""
    if dict(objective.model.named_buffers()):
        model = duplicate(objective.model)
        for name, buffer in model.named_buffers():
            buffer.copy_(state.model[name])
        objective = objective.of(model)
    return objective.evaluate(theta)[1] / objective.nodes.numel()


def rates_at(state: Checkpoint, objective: Objective) -> Tensor:
    """How far an epoch moves each parameter for a gradient of one, by the optimiser of a state.

    lr / (√v̂ + ε) for Adam and its kin, lr / (1 − momentum) for SGD.
    """
    optimisers = [(name, part) for name, part in state.parts if isinstance(part, Mapping) and "param_groups" in part]
    if len(optimisers) != 1:
        raise MethodError(f"the checkpoint of epoch {state.epoch} has no optimiser, which retrace needs; use 'replay'")
    ((name, optimiser),) = optimisers
    rates, offset = [], 0
    numbers = [iter(group["params"]) for group in optimiser["param_groups"]]
    for parameter in trained(objective.model).values():
        which = _group(optimiser["param_groups"], float(objective.decay[offset]))
        group = optimiser["param_groups"][which]
        known = optimiser["state"].get(next(numbers[which], None), {})
        rates.append(_rate(name, group, known, parameter).reshape(-1))
        offset += parameter.numel()
    return torch.cat(rates).to(objective.decay)


def _group(groups: Sequence[Mapping[str, Any]], decay: float) -> int:
    """Which of an optimiser's groups a parameter is in: they are told apart by their weight decay."""
    found = [n for n, group in enumerate(groups) if math.isclose(group["weight_decay"], decay, rel_tol=1e-5)]
    if len(groups) == 1 or len(found) == 1:
        return found[0] if len(groups) > 1 else 0
    raise MethodError(
        f"of {len(groups)} groups of the optimiser {len(found)} have the weight decay {decay:.3g} of a parameter, so "
        "that retrace cannot tell how that is moved; use one group, or method='replay'"
    )


def _rate(name: str, group: Mapping[str, Any], state: Mapping[str, Any], parameter: Tensor) -> Tensor:
    square = state.get("exp_avg_sq")
    if square is not None and square.shape == parameter.shape:
        corrected = square / (1 - group["betas"][1] ** float(state["step"]))
        return group["lr"] / (corrected.sqrt() + group["eps"])  # type: ignore[no-any-return]
    buffer = state.get("momentum_buffer", parameter)
    if square is None and "momentum" in group and (buffer is None or buffer.shape == parameter.shape):
        return torch.full(parameter.shape, group["lr"] / (1 - group["momentum"]))
    raise MethodError(
        f"retrace knows how Adam and SGD move what model.parameters() has, and not what this state of {name} tells; "
        "use method='replay'"
    )

"""Compute once, after training, what every request needs."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.curvature.damping import Damping, rehearsed_damping
from unweave.curvature.prepared import Prepared, stationarity
from unweave.curvature.products import products
from unweave.curvature.solvers import krylov, random_like
from unweave.graph.view import GraphView
from unweave.objective.checks import (
    check_data,
    check_deterministic,
    check_labels,
    check_logits,
    check_model,
    check_outputs,
    check_scores,
)
from unweave.objective.decay import AnyDecay, WeightDecay, as_weight_decay, decay_vector
from unweave.objective.losses import AnyLoss, Loss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.localising import find_locality

__all__ = ["bend", "check_calls", "checked_objective", "prepare", "prepare_objective", "rank_for"]


def bend(objective: Objective, theta: Tensor) -> float:
    """The smallest Hessian eigenvalue at θ that a short search meets, as a share of the largest."""
    operator = products("hessian", objective.at(theta))
    operator.record()
    ends = krylov(operator, random_like(theta), products=TUNING.spectrum.bend_products).values
    return float(ends[-1]) / max(float(ends.abs().max()), 1e-30)


def prepare(
    model: nn.Module,
    data: Data | GraphView,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    rank: int | None = None,
    memory_mib: float | None = None,
) -> Prepared:
    """Compute once, after training, what every request needs.

    Args:
        model: The trained module.
        data: The graph it was trained on, or a view of it.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it.
        rank: Eigenpairs to keep; by default 32, or one and a half for each class where that is more.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph; it is then
            done in blocks of nodes. ``data.x`` may be a memory map.
    """
    own = duplicate(model)
    decay = as_weight_decay(weight_decay, model)
    objective = checked_objective(own, data, decay, as_loss(loss), forward, memory_mib)
    return prepare_objective(objective, flatten(own), rank=rank)


def checked_objective(
    model: nn.Module,
    graph: Data | GraphView,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    memory_mib: float | None = None,
) -> Objective:
    """The objective of a trained module, once the module and the graph have passed every check."""
    memory_mib = ranks.budget(memory_mib)
    device = (graph.base if isinstance(graph, GraphView) else graph).x.device
    if memory_mib is not None:
        return bounded_objective(model, graph, weight_decay, loss, forward, Meter(device), memory_mib)
    data = graph.data if isinstance(graph, GraphView) else graph
    check_data(data)
    check_model(model, data)
    outputs = check_calls(model, data, loss, forward, trained=True)
    objective = Objective(model, data, loss, decay_vector(model, weight_decay), forward, Meter(device))
    objective.node_losses(outputs)  # says what is wrong with the loss, if anything is
    return objective


def check_calls(model: nn.Module, data: Data, loss: Loss, forward: Forward, *, trained: bool = False) -> Tensor:
    """Call a module twice in eval mode: outputs that fit graph and labels, and the same both times; returns them."""
    with torch.no_grad():
        first = check_outputs(forward(model.eval(), data), data)
        check_labels(data, loss, first)
        if trained:
            check_scores(data, loss, first)
        check_logits(model, data, loss, forward, first)
        check_deterministic(first, forward(model, data))
    return first


def rank_for(objective: Objective) -> int:
    """Eigenpairs that are worth keeping: some for each class, where there are classes."""
    labels = objective.labels
    classes = int(labels.max()) + 1 if objective.loss.classes and labels.dim() == 1 and labels.numel() else 0
    return max(TUNING.spectrum.rank, math.ceil(TUNING.spectrum.per_class * classes))


def prepare_objective(objective: Objective, theta: Tensor, *, rank: int | None = None) -> Prepared:
    """The same for an objective that has been checked already, at parameters its module holds."""
    start, passes = objective.meter.now(), objective.meter.passes
    locality = objective.locality if isinstance(objective, Blocks) else find_locality(objective)
    if objective.written_out:
        objective.record(theta)  # for the requests to come as well
    value, gradient = objective.evaluate(theta)
    operator, rank = products("gauss-newton", objective.at(theta)), rank or rank_for(objective)
    operator.record()
    space = krylov(operator, random_like(theta), products=rank + TUNING.spectrum.spare)
    del operator  # as large as what comes next
    curvature = space.low_rank(rank)
    del space
    flat = stationarity(curvature, gradient, value) <= TUNING.minimum.gain
    found = Prepared(
        curvature=curvature,
        bend=bend(objective, theta) if flat else 0.0,
        gradient=gradient,
        slope=gradient / objective.mass,
        objective=value,
        parameters=tensor_digest(objective.model.named_parameters()),
        locality=locality,
        edges=objective.stored_edges,
        nodes=objective.nodes.numel(),
        mass=objective.mass,
    )
    damping = Damping(0.0) if found.at_minimum else rehearsed_damping(objective, theta, gradient, curvature)
    return replace(
        found,
        damping=damping.value,
        raised=damping.raised,
        left=damping.left,
        seconds=objective.meter.now() - start,
        passes=round(objective.meter.passes - passes),
    )

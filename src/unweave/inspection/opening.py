"""Check what is to be inspected, and solve the one system that its scores need."""

import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave._core.memory import MIB, check_memory
from unweave._core.tuning import TUNING
from unweave.curvature.preparation import checked_objective, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import DataError, MethodError, ModelError
from unweave.inspection.direction import TOLERANCE, find_direction
from unweave.inspection.quantity import AnyQuantity, quantity_of
from unweave.inspection.scores import Scores
from unweave.inspection.subject import Subject
from unweave.models import GCN, SAGE, SGC, SIGN
from unweave.models.reach import Reach, find_reach
from unweave.objective.checks import check_kind
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import duplicate, flatten
from unweave.tasks.task import Task
from unweave.training.adam import Progress

__all__ = ["open_scores"]

MEMORY_MIB = 512.0
"""MiB that are taken by default, on a CPU: much less than a model and its graph as a rule."""

FEW = 100
"""Training nodes below which one of them is more than a hundredth of what a model was trained on."""

FREE = 0.25
"""The share of what is free on a GPU that is taken there: who asks for little at a time waits for most of it."""


def open_scores(
    model: nn.Module,
    data: Data,
    of: AnyQuantity,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    prepared: Prepared | None = None,
    hops: int | None = None,
    memory_mib: float | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Scores that are computed when they are asked for; the arguments are those of :func:`unweave.inspect`."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    if memory_mib is not None:
        check_memory(memory_mib)
    if isinstance(check_kind(data), Task):
        raise DataError(
            f"{type(data).__name__} is the graph of a task; inspect scores plain graphs of nodes, a "
            "torch_geometric.data.Data, and no other so far"
        )
    if hops is not None and not (isinstance(hops, int) and hops >= 0):
        raise ModelError(f"hops must be a whole number of at least 0, got {hops!r}")
    own = duplicate(model).eval()
    if prepared is not None and prepared.parameters != tensor_digest(own.named_parameters()):
        raise MethodError("prepared= belongs to other parameters; call unweave.prepare on this model")
    with torch.enable_grad():
        decay = as_weight_decay(weight_decay, model)
        objective = checked_objective(own, data, decay, as_loss(loss), forward)
        objective.meter.passes += 2  # the checks call the model twice
        theta = flatten(own)
        if prepared is not None and prepared.pending is None:
            prepared.refuse_another(objective.evaluate(theta)[0])
        seen: list[Tensor] = []
        with torch.no_grad():
            reach = find_reach(own, lambda: seen.append(forward(own, data)))
        objective.meter.passes += 1
        reach = reach if hops is None else Reach(hops, flow=reach.flow, source=f"{hops} hops given")
        quantity = quantity_of(of, data, objective.loss, seen[0])
        if prepared is None:
            prepared = prepare_objective(objective, theta)
        prepared = prepared.to(theta.device)
        leaf = theta.clone().requires_grad_()
        value = quantity.value(objective.outputs(leaf), data)
        (slope,) = torch.autograd.grad(value, leaf)
        objective.meter.passes += 2
        if not bool(torch.isfinite(slope).all()) or not bool(slope.any()):
            raise ModelError(
                f"{quantity.title} has no finite slope in the parameters that is not zero: was the node forgotten, or "
                "does the quantity not depend on the model?"
            )
        direction = find_direction(objective, theta, slope, prepared)
    width = seen[0][0].numel()
    memory = _usual(theta.device) if memory_mib is None else float(memory_mib)
    subject = Subject(objective, theta, quantity, direction, prepared, reach, memory, width, progress)
    return Scores(subject, float(value.detach()), _doubts(subject), decay)


def _usual(device: torch.device) -> float:
    """MiB that are taken where nobody said."""
    return FREE * torch.cuda.mem_get_info(device)[0] / MIB if device.type == "cuda" else MEMORY_MIB


def _doubts(subject: Subject) -> list[str]:
    """Why scores may not be trusted."""
    found, prepared, direction = [], subject.prepared, subject.direction
    if not prepared.at_minimum:
        found.append(
            "the model was not trained to a minimum: what retraining does is then partly luck, and scores tell what "
            "an influence step would do. Train with forgettable=True and enough weight decay, or use unweave.polish"
        )
    elif prepared.agreement is not None and prepared.agreement < TUNING.polish.agreement:
        found.append(
            f"another training would not give the same model (agreement {prepared.agreement:.2f} of 1), so that "
            "retraining without an item may do something else; widen the model, or give it more weight decay"
        )
    elif direction.curvature != "hessian":
        found.append("the Hessian bends down at these parameters; its Gauss-Newton matrix stood in for it")
    trained = subject.objective.nodes.numel()
    if trained < FEW:
        found.append(
            f"the model was trained on {trained} nodes only, so that an item is no small part of what it knows: the "
            "largest scores may be far off. Confirm them"
        )
    objective = subject.objective
    loops = int((objective.data.edge_index[0] == objective.data.edge_index[1]).sum())
    if loops and type(objective.model) in (GCN, SAGE, SGC, SIGN):
        found.append(
            f"the graph has {loops:,} self loop{'s' * (loops != 1)}, with which scores of a built-in model take many "
            "times as long, and those of columns are of their slopes alone; without them they would not"
        )
    if direction.report.relative_residual > 10 * TOLERANCE:
        left = direction.report.relative_residual
        found.append(f"the system behind the scores was solved only to a relative residual of {left:.2g}")
    if subject.leverage_mib > subject.memory_mib:
        found.append(
            "scores are of one linear step, and the largest may go too far: to know how training nodes answer takes "
            f"{math.ceil(subject.leverage_mib):,} MiB; give memory_mib={math.ceil(subject.leverage_mib)}"
        )
    return found

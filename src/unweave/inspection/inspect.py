"""Inspect a model: what did which part of the graph do to it?"""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave._core.memory import check_memory
from unweave._core.tuning import TUNING
from unweave.curvature.preparation import checked_objective, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import DataError, MethodError, ModelError
from unweave.inspection.direction import TOLERANCE, Direction, find_direction
from unweave.inspection.inspection import Inspection
from unweave.inspection.quantity import AnyQuantity, quantity_of
from unweave.inspection.subject import Subject
from unweave.models.reach import Reach, find_reach
from unweave.objective.checks import check_kind
from unweave.objective.decay import AnyDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import duplicate, flatten
from unweave.tasks.task import Task

__all__ = ["MEMORY_MIB", "inspect"]

MEMORY_MIB = 256.0
"""MiB that a chunk of removals takes by default: much less than a model and its graph as a rule."""


def inspect(
    model: nn.Module,
    data: Data,
    of: AnyQuantity = "validation",
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    prepared: Prepared | None = None,
    hops: int | None = None,
    memory_mib: float = MEMORY_MIB,
) -> Inspection:
    """Predict what a quantity would be without each node, label, edge and feature of the graph. Nothing is removed.

    One system is solved for the quantity. Its solution gives the effect of every item that is asked for afterwards,
    all of a kind in one go: what happens as messages stop flowing, and what training without it does.

    Args:
        model: The trained module; it stays as it is.
        data: The graph it was trained on.
        of: ``"validation"``, the mean loss of the validation nodes; ``"node:17"``, the margin of its prediction, or its
            output where that is a number; ``"class:3"``, the mean loss of the validation nodes of a class; a
            :class:`~unweave.inspection.quantity.Gap` between two groups; or a function (outputs, data) → a number.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it, when not as ``model(x, edge_index[, edge_weight])``.
        prepared: What :func:`unweave.prepare` computed for this model; without it the curvature is computed for this.
        hops: Message-passing steps of the model, where its layers do not tell.
        memory_mib: MiB that the removals that are worked on side by side may take.

    Raises:
        UnweaveError: Model, graph or quantity cannot be used; nothing was done then.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"a model is a torch.nn.Module, got {type(model).__name__}")
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
        objective = checked_objective(own, data, as_weight_decay(weight_decay, model), as_loss(loss), forward)
        objective.meter.passes += 2  # the checks call the model twice
        theta = flatten(own)
        seen: list[Tensor] = []
        with torch.no_grad():
            reach = find_reach(own, lambda: seen.append(forward(own, data)))
        objective.meter.passes += 1
        reach = reach if hops is None else Reach(hops, flow=reach.flow, source=f"{hops} hops given")
        quantity = quantity_of(of, data, objective.loss, seen[0])
        if prepared is None:
            prepared = prepare_objective(objective, theta)
        leaf = theta.clone().requires_grad_()
        value = quantity.value(objective.outputs(leaf), data)
        (slope,) = torch.autograd.grad(value, leaf)
        objective.meter.passes += 2
        if not bool(torch.isfinite(slope).all()) or not bool(slope.any()):
            raise ModelError(f"{quantity.title} has no finite slope in the parameters that is not zero")
        direction = find_direction(objective, theta, slope, prepared.to(theta.device))
    subject = Subject(objective, theta, quantity, direction, prepared, reach, float(memory_mib))
    return Inspection(subject, float(value.detach()), _doubts(prepared, direction))


def _doubts(prepared: Prepared, direction: Direction) -> list[str]:
    """Why scores may not be trusted."""
    found = []
    if not prepared.at_minimum:
        found.append(
            "the model was not trained to a minimum: what retraining does is then partly luck, and scores tell what "
            "an influence step would do. Train with forgettable=True, or bring it to a minimum with unweave.polish"
        )
    elif prepared.agreement is not None and prepared.agreement < TUNING.polish.agreement:
        found.append(
            f"another training would not give the same model (agreement {prepared.agreement:.2f} of 1), so that "
            "retraining without an item may do something else; widen the model, or give it more weight decay"
        )
    elif direction.curvature != "hessian":
        found.append("the Hessian bends down at these parameters; its Gauss-Newton matrix stood in for it")
    if direction.report.relative_residual > 10 * TOLERANCE:
        left = direction.report.relative_residual
        found.append(f"the system behind the scores was solved only to a relative residual of {left:.2g}")
    return found

"""What a receipt tells of a request and of a method's answer to it: each part of it is found out here."""

import math
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave.certificate.bound import Linear, bound_of, bounded, examine, local, none, uncertified
from unweave.changes import Change
from unweave.errors import DivergenceError
from unweave.graph.alteration import Alteration
from unweave.graph.region import Region
from unweave.graph.removal import Removal
from unweave.methods.base import Method, Outcome
from unweave.methods.changing import Asked
from unweave.methods.problem import Problem
from unweave.models.reach import describe
from unweave.objective.checks import probabilities
from unweave.objective.objective import Objective, Point
from unweave.objective.parts.blocks import Blocks
from unweave.receipt.changed import ADDED_OF_TYPE, OF_TYPE
from unweave.tasks.task import Task

__all__ = [
    "asked_of",
    "blocks_of",
    "certificate_of",
    "graph_of",
    "options_of",
    "quality_of",
    "region_of",
    "types_in",
    "untouched",
]

SAME = 1e-6
"""Relative difference up to which two values of an objective are the same but for rounding."""


PULL = 3.0
"""How many times harder than the training data a weight decay may pull where training ended. At a minimum the two are
the same, and before it the data pulls harder: after 30 to 400 epochs of Adam on Cora 0.01 to 0.7 times. AdamW's decay
taken for such a number pulled 1.4 to 2,400 times as hard."""


def asked_of(asked: Asked) -> dict[str, Any]:
    """What a receipt has of a request as it was received; of a change all but its values."""
    return {
        "kind": "change" if isinstance(asked, Change) else "request",
        "id": asked.id,
        "note": asked.note,
        "asked": asked.outline() if isinstance(asked, Change) else asked.content(),
        "request_digest": asked.digest,
    }


def untouched(model: nn.Module) -> dict[str, Any]:
    """What a receipt has of the parameters of a model that it leaves as it is."""
    digest = tensor_digest(model.named_parameters())
    return {"digest_before": digest, "digest_after": digest}


def graph_of(region: Region, problem: Problem) -> dict[str, Any]:
    """Size of the graph before and after, for the receipt."""
    removal = problem.removal
    left = removal.graph if isinstance(removal.graph, Task) else None
    return {
        **({} if left is None else {"types": dict(left.describe())}),
        "nodes": region.mask.numel(),
        "undirected": removal.undirected,
        "stored_edges_before": removal.stored_edges_before,
        "stored_edges_after": removal.stored_edges,
        "training_nodes_before": problem.original.nodes.numel(),
        "training_nodes_after": problem.remaining.nodes.numel(),
    }


def types_in(removal: Removal) -> dict[str, int]:
    """How many nodes of each type went and came, for the receipt; nothing where there is one type only."""
    base = removal.graph if isinstance(removal.graph, Data) else removal.graph.base
    if not isinstance(base, Task):
        return {}
    went = {f"{OF_TYPE}{name}": number for name, number in base.count(removal.nodes).items()}
    came = base.count(removal.added) if isinstance(removal, Alteration) else {}
    return went | {f"{ADDED_OF_TYPE}{name}": number for name, number in came.items()}


def region_of(region: Region, problem: Problem) -> dict[str, Any]:
    """The region, for the receipt."""
    return {
        **describe(region.reach),
        "sizes": list(region.sizes),
        "nodes": int(region.mask.sum()),
        "training_nodes": int(region.mask[problem.original.nodes].sum()),
    }


def options_of(method: Method) -> dict[str, Any]:
    """The options of a method, for the receipt."""
    plain = (str, int, float, bool, type(None))
    return {
        key: value if isinstance(value, plain) else getattr(value, "__qualname__", type(value).__name__)
        for key, value in vars(method).items()
    }


def blocks_of(problem: Problem) -> dict[str, Any]:
    """How the graph was looked at in blocks, where it was."""
    return {"in_blocks": problem.remaining.describe()} if isinstance(problem.remaining, Blocks) else {}


def quality_of(problem: Problem, outcome: Outcome, point: Point, *, local: bool) -> dict[str, Any]:
    """How well the returned model solves the local problem, where that is asked, and warnings where it does not."""
    objective = {"remaining_after": point.value, "function_change": problem.function_change(point)}
    twice = _softmax_doubts(problem, point)
    if not local:
        return {"residual_influence": None, "objective": objective, "warnings": twice}
    size, plain = float(problem.forgotten_gradient.norm()), problem.local()
    left, change = float(plain.gradient(point).norm()), plain.change(point)
    if not math.isfinite(left + change):
        raise DivergenceError("the model's derivatives are not finite at the new parameters; use more damping")
    return {
        "residual_influence": left / size if size > 0 else None,
        "objective": objective | {"local_change": change},
        "warnings": [*twice, *_decay_doubts(problem), *(_doubts(problem, outcome, point) if size > 0 else [])],
    }


def _softmax_doubts(problem: Problem, point: Point) -> list[str]:
    """A warning where the loss takes a softmax of what is one already, as torch's would, without a word."""
    loss = problem.original.loss
    if not loss.classes or not probabilities(point.held().outputs):
        return []
    return [
        f"the model's outputs are probabilities, and {loss.name} took a softmax of them again, as torch's does; if it "
        "was trained on their logarithms, give those: forward=lambda model, data: model(data.x, data.edge_index).log()"
    ]


def _decay_doubts(problem: Problem) -> list[str]:
    """A warning where no training that adds such a weight decay to its gradient would have ended here."""
    pull = problem.original.mu * problem.theta
    data, decay = float((problem.original_gradient - pull).norm()), float(pull.norm())
    if decay <= PULL * data:
        return []
    return [
        f"the weight decay pulls {_times(decay, data)} as hard as all training data where this model stands, so that "
        "training did not end at a minimum of this objective: it fits the data so closely that they hardly pull any "
        "more, or it had another decay. AdamW's is no such number: give weight_decay=optimiser"
    ]


def _times(one: float, other: float) -> str:
    """How many times as large one number is as another."""
    return f"{one / other:,.0f} times" if one < 1e6 * other else "more than a million times"


def _doubts(problem: Problem, outcome: Outcome, point: Point) -> list[str]:
    """A warning where a step did not solve the problem that it set itself, as far as the finished model tells."""
    if outcome.solve is None and not outcome.checked:
        return []
    local = outcome.solved or problem.local()
    size, left = (float(g.norm()) for g in (problem.remaining_gradient - local.slope, local.gradient(point)))
    change = local.change(point)
    # Of the gradient of L' there may have been little or nothing to begin with, so that it tells nothing.
    little = SAME * abs(problem.remaining_value)
    if not (change > 0 or left > size if outcome.bent is None else change > little):
        return []
    what = f"changed the local objective by {change:+.3g} and its gradient from {size:.3g} to {left:.3g}"
    return [
        f"the step did not solve its own problem: it {what}. This request is beyond an influence step on this model; "
        "use more damping, or method='finetune' or 'retrain'"
    ]


def certificate_of(remaining: Objective, outcome: Outcome) -> dict[str, Any]:
    """What is proved about the new model. One that plainly cannot be certified is not looked at again for it."""
    if outcome.certificate is not None:
        return outcome.certificate
    found: Linear | str | None = uncertified(remaining)
    if found is None:
        passes = remaining.meter.passes
        with remaining.meter.phase("certify"):
            found = examine(remaining, outcome.theta)
            if isinstance(found, Linear):
                told = bounded(found, bound_of(found, outcome.theta), float(outcome.theta.norm()))
                return told | {"passes": round(remaining.meter.passes - passes)}
    assert isinstance(found, str)
    return none(found) if outcome.bent is None else local(*outcome.bent, found)

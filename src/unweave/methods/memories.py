"""What a model that has forgotten still remembers beside its trained parameters, for the receipt.

Running statistics are carried over to the remaining graph; everything else is named, not touched, as nobody here knows
what it means.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unweave.graph.removal import Removal
from unweave.methods.base import Outcome
from unweave.methods.problem import Problem
from unweave.methods.rows import tables_left
from unweave.models.shards import Shards
from unweave.objective.parameters import tensors_on, trained
from unweave.objective.running_stats import foreign, running
from unweave.receipt.traces import Trace, trace

__all__ = ["memories"]


def memories(model: nn.Module, before: nn.Module, problem: Problem, outcome: Outcome) -> list[Trace]:
    """Name all that may still remember.

    Args:
        model: The model with its new parameters and its statistics.
        before: The model before.
        problem: What was asked.
        outcome: What the method gave.
    """
    return [
        *_statistics(model, outcome),
        *_frozen(model),
        *_rows(model, problem.removal, outcome, dict(tensors_on(before))),
    ]


def _statistics(model: nn.Module, outcome: Outcome) -> list[Trace]:
    """What became of running statistics; those of the old graph remember what was removed."""
    norms = running(model)
    names = ", ".join(norms)
    if not names:
        return []
    if outcome.buffers is None and outcome.refresh:
        why = "moved by what a pass on the remaining graph gives beside one on the old graph; all nodes share them"
        moved, kept = (", ".join(name for name in norms if foreign(norms[name]) is own) for own in (False, True))
        other = "they still come from the old graph: this layer keeps them in a way of its own"
        found = [trace("running statistics", moved, "rewritten", why)] if moved else []
        return [*found, trace("running statistics", kept, "kept", other)] if kept else found
    if outcome.buffers is not None and outcome.anew:
        return [trace("running statistics", names, "rewritten", "training began anew")]
    why = "still come from" if outcome.buffers is None else "went on from those of"
    return [trace("running statistics", names, "kept", f"they {why} the old graph")]


def _frozen(model: nn.Module) -> list[Trace]:
    """Parameters that were not trained."""
    known = trained(model)
    names = [name for name, _ in model.named_parameters() if name not in known]
    some = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    return [trace("frozen parameters", some, "kept", "they are not trained and keep what they learnt")] if names else []


def _rows(model: nn.Module, removal: Removal, outcome: Outcome, before: Mapping[str, Tensor]) -> list[Trace]:
    """Parameters, buffers and other tensors that have a row for every node."""
    found = []
    parameters, buffers, gone = dict(model.named_parameters()), dict(model.named_buffers()), removal.nodes
    for name, value in tensors_on(model):
        if not value.dim() or value.size(0) != removal.touched.numel() or isinstance(model, Shards):
            continue  # shards tell of their own partition
        if name in parameters and (outcome.anew or value.dim() < 2):  # a bias may be as long by accident
            continue
        what = "a parameter" if name in parameters else "a buffer" if name in buffers else "a tensor"
        why = "it has a row for every node; what it holds may come from what was removed"
        old = before.get(name)
        if gone.numel() and old is not None and old.shape == value.shape and _same(old, value, gone):
            why = "it has a row for every node, and keeps that of a deleted node as it was"
        elif gone.numel() and name in parameters:
            why = "it has a row for every node; the row of a deleted node is still in it"
        found.append(trace(what, name, "kept", why))
    why = "it has a row for every node, and keeps that of a deleted node"
    return [*found, *(trace("a parameter", name, "kept", why) for name in tables_left(model, removal))]


def _same(old: Tensor, value: Tensor, rows: Tensor) -> bool:
    """Whether some rows are as they were."""
    return torch.equal(*(held.index_select(0, rows).to_dense() for held in (old, value)))

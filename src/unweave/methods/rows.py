"""Embedding tables have a row for every node: of a node that is deleted the row goes too."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from unweave.graph.index import among
from unweave.graph.removal import Removal
from unweave.methods.base import Outcome
from unweave.methods.problem import Problem
from unweave.objective.checks import rounding
from unweave.objective.objective import Point
from unweave.objective.parameters import flatten, trained
from unweave.tasks.task import Task

__all__ = ["embedded_rows", "passes_for_rows", "tables_left", "without_rows"]


def without_rows(outcome: Outcome, problem: Problem, *, local: bool) -> tuple[Outcome, int]:
    """The outcome with the rows of deleted nodes set to zero, and how many of these the request deleted.

    Nothing that remains uses such a row, so zero is where weight decay leaves it; what it had pulled on other rows is
    forgotten by the method. Ids do not shift, so the row stays in its place, without content. Whether a parameter is
    such a table is tried: no output of an example that remains may change. Rows that earlier requests emptied stay so:
    the curvature of training, which steps begin with, knows of them.

    Args:
        outcome: What a method gave.
        problem: What the request posed.
        local: Whether the method moves θ by the gradient there.
    """
    theta, count = _as_empty(outcome.theta, problem) if local else outcome.theta, 0
    point = None
    before: Tensor | None = None
    for choices in _tables(problem.remaining.model, problem.removal):
        if before is None:
            known = outcome.point if outcome.buffers is None else None
            before = _shown(problem, known or _looked(problem, outcome.theta, local))
        for entries in choices:
            emptied = theta.clone()
            emptied[entries.flatten()] = 0
            there = _looked(problem, emptied, local)
            if bool(((_shown(problem, there) - before).abs() <= rounding(before)).all()):
                theta, point, count = emptied, there, count + entries.size(0)
                break
    return (outcome if theta is outcome.theta else replace(outcome, theta=theta, point=point)), count


def passes_for_rows(problem: Problem) -> int:
    """Passes that emptying rows of tables takes: a look at the outputs without them, and its gradient."""
    task = problem.remaining.task
    return 2 if task is not None and task.tables(problem.remaining.model) else 0


def _as_empty(theta: Tensor, problem: Problem) -> Tensor:
    """θ with the rows of tables at zero that were there, and that nothing pulls at."""
    task = problem.remaining.task
    tables = {} if task is None else task.tables(problem.remaining.model)
    if not tables:
        return theta
    there = problem.remaining.split((problem.theta != 0) | (problem.remaining_gradient != 0))
    left, moved = theta.clone(), problem.remaining.split(theta)
    idle = {name: ~there[name].any(dim=1) & moved[name].any(dim=1) for name in tables if name in there}
    for name, rows in idle.items():
        problem.remaining.split(left)[name][rows] = 0
    return left if any(bool(rows.any()) for rows in idle.values()) else theta


def embedded_rows(model: nn.Module, removal: Removal) -> tuple[Tensor, int]:
    """Where the rows of deleted nodes lie in θ, of ``nn.Embedding`` alone, which needs no trial; how many rows."""
    names = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    found = [choices[0] for choices in _tables(model, removal, names) if len(choices) == 1]
    none = torch.zeros(0, dtype=torch.long, device=removal.nodes.device)
    return torch.cat([none, *(entries.flatten() for entries in found)]), sum(entries.size(0) for entries in found)


def tables_left(model: nn.Module, removal: Removal) -> list[str]:
    """Names of the embeddings that still have something in the row of a deleted node."""
    theta = flatten(model)
    return [
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        and any(bool(theta[at].any()) for choices in _tables(model, removal, {f"{name}.weight"}) for at in choices)
    ]


def _looked(problem: Problem, theta: Tensor, local: bool) -> Point:
    """L' at some parameters, with its gradient where the method moves by it."""
    with torch.set_grad_enabled(local):
        return problem.remaining.look(theta) if local else problem.remaining.at(theta)


def _shown(problem: Problem, point: Point) -> Tensor:
    """Outputs of the examples that remain."""
    data = problem.removal.data
    kept = torch.stack([data[name] for name in ("train_mask", "val_mask", "test_mask") if name in data]).any(dim=0)
    return point.outputs.detach()[kept]


def _tables(model: nn.Module, removal: Removal, names: set[str] | None = None) -> Iterator[list[Tensor]]:
    """For each parameter that may be a table, where the rows of deleted nodes may lie in θ: ``[rows, columns]``."""
    base = removal.graph if isinstance(removal.graph, Task) else getattr(removal.graph, "base", None)
    if not isinstance(base, Task) or not removal.nodes.numel():
        return
    tables, gone, start = base.tables(model), removal.nodes.sort().values, 0
    for name, parameter in trained(model).items():  # in the order of θ
        if name in tables and (names is None or name in names):
            rows = [among(nodes, gone).nonzero().flatten() for nodes in tables[name]]
            columns = torch.arange(parameter[0].numel(), device=gone.device)
            found = [start + some[:, None] * columns.numel() + columns for some in rows if some.numel()]
            if found:
                yield found
        start += parameter.numel()

"""Embedding tables have a row for every node: of a node that is deleted the row goes too."""

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.index import among
from unweave.methods.base import Outcome
from unweave.methods.problem import Problem
from unweave.objective.parameters import trained
from unweave.tasks.task import Task

__all__ = ["without_rows"]


def without_rows(outcome: Outcome, problem: Problem) -> tuple[Outcome, int]:
    """The outcome with the rows of deleted nodes set to zero, and how many these are.

    Nothing that remains uses such a row, so zero is where weight decay leaves it; what it had pulled on other rows is
    forgotten by the method. Ids do not shift, so the row stays in its place, without content.
    """
    places = _places(problem)
    if not places:
        return outcome, 0
    theta = outcome.theta.clone()
    theta[torch.cat([entries.flatten() for entries in places])] = 0
    return replace(outcome, theta=theta, point=None), sum(entries.size(0) for entries in places)


def _places(problem: Problem) -> list[Tensor]:
    """Where the rows of deleted nodes lie in θ: for each table ``[rows, columns]``."""
    objective, nodes = problem.remaining, problem.removal.nodes
    graph = problem.removal.graph
    if not isinstance(graph if isinstance(graph, Data) else graph.base, Task) or not nodes.numel():
        return []
    task = problem.removal.data
    assert isinstance(task, Task)
    tables, found, start = task.tables(objective.model), [], 0
    for name, parameter in trained(objective.model).items():
        if name in tables:
            rows = among(tables[name], nodes.sort().values).nonzero().flatten()
            width = parameter[0].numel()
            entries = start + rows[:, None] * width + torch.arange(width, device=rows.device)
            found += [entries] if rows.numel() else []
        start += parameter.numel()
    return found

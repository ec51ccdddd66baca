"""Who feels a request: what it does to the predictions of the nodes that remain, predicted and actual."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unweave.methods.problem import Problem

__all__ = ["NodeChange", "changed_by"]


@dataclass(frozen=True)
class NodeChange:
    """What becomes of the prediction of one node that remains.

    Attributes:
        node: Its id.
        hops: Steps from the nearest node that the request names; ``None`` out of reach.
        label: The class that it was predicted as, where the loss is of classes.
        before: The probability of that class before; the output that moves most, where there are no classes.
        predicted: The same after the one step that is explained.
        actual: The same after the request was carried out; ``None`` where no model was given that has forgotten.
    """

    node: int
    hops: int | None
    label: int | None
    before: float
    predicted: float
    actual: float | None

    def __str__(self) -> str:
        where = f" ({self.hops} hop{'s' * (self.hops != 1)})" if self.hops else ""
        what = f" class {self.label}" if self.label is not None else " output"
        actual = "" if self.actual is None else f", {self.actual:.3f} actual"
        return f"{self.node}{where}{what} {self.before:.3f} → {self.predicted:.3f} predicted{actual}"


def changed_by(problem: Problem, x: Tensor, after: nn.Module | None, hops: Tensor, top: int) -> list[NodeChange]:
    """The nodes that remain whose predictions move most.

    Args:
        problem: The request on the graph.
        x: The step that is explained.
        after: The model that has forgotten, where there is one.
        hops: Of every node from what the request names.
        top: How many.
    """
    classes = problem.original.loss.classes
    with torch.no_grad():
        found = [problem.original.outputs(problem.theta), problem.remaining.outputs(problem.theta + x)]
    found += [] if after is None else [problem.remaining.predict(after)]
    rows = [values.detach().double().reshape(values.size(0), -1) for values in found]
    if classes:
        rows = [values.softmax(dim=1) for values in rows]
    moved = (rows[-1] - rows[0]).abs()
    moved[problem.removal.nodes] = 0  # those of examples that went along too
    column = rows[0].argmax(dim=1) if classes else moved.argmax(dim=1)
    values = [value.gather(1, column[:, None]).flatten() for value in rows]
    size = moved.gather(1, column[:, None]).flatten()
    return [
        NodeChange(
            node=node,
            hops=int(hops[node]) if hops[node] >= 0 else None,
            label=int(column[node]) if classes else None,
            before=float(values[0][node]),
            predicted=float(values[1][node]),
            actual=None if after is None else float(values[2][node]),
        )
        for node in size.argsort(descending=True, stable=True)[:top].tolist()
        if size[node] > 0
    ]

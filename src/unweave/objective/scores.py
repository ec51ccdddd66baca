"""How good a model is and how near to the retrained one: one definition of each figure.

All models are evaluated on the remaining graph. 1 means indistinguishable from retraining, 0 as good as
doing nothing, below 0 worse.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave.graph.edit import MASKS
from unweave.graph.view import GraphView, labels_of
from unweave.objective.losses import Loss, cross_entropy, mean_of
from unweave.objective.objective import Forward, call
from unweave.objective.parameters import flatten
from unweave.objective.parts.bounded import predict
from unweave.tasks.task import Task

__all__ = [
    "closed",
    "gap",
    "log_probabilities",
    "metric_of",
    "micro_f1",
    "named",
    "parameter_gap_closed",
    "score",
    "score_outputs",
    "task_scores",
    "validation",
]


def log_probabilities(
    model: nn.Module, graph: Data | GraphView, forward: Forward = call, *, memory_mib: float | None = None
) -> Tensor:
    """log softmax of the outputs of every node, in eval mode; in blocks of nodes where memory is bounded."""
    return F.log_softmax(predict(model, graph, forward, cross_entropy, memory_mib), dim=-1)


def micro_f1(outputs: Tensor, labels: Tensor, mask: Tensor) -> float:
    """Micro-averaged F1 over the nodes of a mask; for one label a node this is the accuracy."""
    return float((outputs[mask].argmax(dim=-1) == labels[mask]).double().mean())


def gap(retrained: Tensor, other: Tensor, mask: Tensor) -> float:
    """Mean over the nodes of a mask of KL(p_retrained ‖ p_other), both given as log-probabilities.

    Probabilities that were rounded sum to 1 up to 1e-7, by which alone a divergence can be off, below 0 too: one edge
    may change less. So they are made to sum to 1 again.
    """
    p, q = (F.log_softmax(each[mask].double(), dim=-1) for each in (retrained, other))
    return float((p.exp() * (p - q)).sum(dim=-1).mean())


def closed(gap_method: float, gap_none: float) -> float | None:
    """1 − gap(method) / gap(none); ``None`` where doing nothing leaves no gap to close."""
    return None if gap_none <= 0 else 1 - gap_method / gap_none


def parameter_gap_closed(model: nn.Module, retrained: nn.Module, start: nn.Module) -> float | None:
    """1 − ‖θ − θ_retrain‖ / ‖θ0 − θ_retrain‖; ``None`` for a model of another architecture."""
    found, target = flatten(model), flatten(retrained)
    if found.shape != target.shape:
        return None
    return closed(float((found - target).norm()), float((flatten(start) - target).norm()))


def score(
    model: nn.Module,
    graph: Data | GraphView,
    loss: Loss = cross_entropy,
    forward: Forward = call,
    *,
    memory_mib: float | None = None,
) -> dict[str, float]:
    """The final score: mean loss, and for classes micro-F1, on the training, validation and test nodes."""
    outputs = predict(model, graph, forward, loss, memory_mib)
    return score_outputs(outputs, labels_of(graph), loss) | task_scores(model, graph)


def score_outputs(outputs: Tensor, data: Data, loss: Loss) -> dict[str, float]:
    """The same from the outputs of all nodes; of the graph only labels and masks are used."""
    scores: dict[str, float] = {}
    for name in MASKS:
        mask = data.get(name)
        if mask is not None and loss.classes:
            mask = mask & (data.y >= 0)  # a hidden label cannot be scored
        if mask is None or not bool(mask.any()):
            continue
        part = name.removesuffix("_mask")
        scores[f"{part}_loss"] = float(mean_of(loss(outputs[mask], data.y[mask]), loss.mass(data.y[mask])))
        if loss.classes:
            scores[f"{part}_f1"] = micro_f1(outputs, data.y, mask)
    return scores


def metric_of(graph: Data) -> str:
    """What models of a graph are judged by: one of their scores, without the part it is of."""
    return graph.metric if isinstance(graph, Task) else "f1"


def named(metric: str) -> str:
    """What people call it."""
    return {"f1": "F1", "auc": "AUC"}.get(metric, metric)


def task_scores(model: nn.Module, graph: Data | GraphView) -> dict[str, float]:
    """What the graph of a task has to say of a model beside that, such as recall; nothing of any other graph."""
    if not isinstance(graph.base if isinstance(graph, GraphView) else graph, Task):
        return {}
    data = graph.data if isinstance(graph, GraphView) else graph
    return dict(data.scores(model.eval()))


def validation(data: Data, loss: Loss) -> Tensor:
    """Validation nodes, those of a classifier with a label that is known."""
    mask = data.get("val_mask")
    if mask is None:
        return torch.empty(0, dtype=torch.long, device=data.x.device)
    known: Tensor = mask & (data.y >= 0) if loss.classes else mask
    return known.nonzero().flatten()

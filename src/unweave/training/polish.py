"""Bring a trained model to a minimum of its objective, so that it can forget.

The theory of influence assumes that training ended at a minimum. Dropout, early stopping and a tiny weight decay leave
a point whose gradient is large and whose place is mostly luck; then an influence step cannot reproduce retraining,
because retraining itself is luck. At a minimum different seeds agree on the function, and a few quasi-Newton steps
on the remaining graph do what retraining would.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave.curvature.preparation import checked_objective, prepare_objective
from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.objective.decay import AnyDecay, WeightDecay, as_weight_decay
from unweave.objective.losses import AnyLoss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, flatten
from unweave.objective.scores import score_outputs, validation
from unweave.training.adam import Progress
from unweave.training.agreement import FIRST_PHASE, FIRST_RATE, Agreement, examined, shortcomings
from unweave.training.minimum import polish_objective, refuse_no_decay

__all__ = ["Polished", "polish"]


@dataclass(frozen=True)
class Polished:
    """A model at a minimum.

    Attributes:
        model: A new model; the caller's is untouched.
        prepared: The state that makes its requests cheap.
        weight_decay: Of the objective, as a value: an optimiser's is translated, and does not serve a copy again.
        warnings: What the user should know.
        report: Gradient norms before and after, :attr:`Prepared.stationarity`, the smallest curvature met along a
            step, F1 before and after on the masks there are, gradients, curvature products and passes spent.
    """

    model: nn.Module
    prepared: Prepared
    report: dict[str, Any]
    weight_decay: WeightDecay
    warnings: tuple[str, ...] = ()


def polish(
    model: nn.Module,
    data: Data,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    evaluations: int | None = None,
    examine: bool = True,
    memory_mib: float | None = None,
    progress: Progress | None = None,
) -> Polished:
    """Minimise L0 in eval mode from where training ended, by prepared quasi-Newton steps.

    Args:
        model: The trained module.
        data: The graph it was trained on.
        weight_decay: What it was trained with; above 0, or the minimum may lie at infinity.
        loss: Per-node loss it was trained with.
        forward: How to call it.
        evaluations: At most so many gradients; by default as many as pay.
        examine: Whether to train another one from a new start, by full-batch Adam and a polish, to know whether the
            minimum is one (``prepared.agreement``); on a small graph up to five. Where weights cannot be drawn anew
            that stays unknown.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph; it is then
            done in blocks of nodes. ``data.x`` may be a memory map.
        progress: Called with (gradients done, gradients at most).
    """
    own = duplicate(model)
    loss = as_loss(loss)
    decay = as_weight_decay(weight_decay, model)
    objective = checked_objective(own, data, decay, loss, forward, memory_mib)
    refuse_no_decay(objective)
    before = score_outputs(objective.outputs(flatten(own)).detach(), data, loss)
    report = polish_objective(objective, evaluations=evaluations, progress=progress)
    prepared, same = _examined(objective) if examine else (prepare_objective(objective, flatten(own)), None)
    luck = None if same is None else same.seeds
    prepared = prepared.examined(None if same is None else same.value, report["passes"], luck)
    scores = score_outputs(objective.outputs(flatten(own)).detach(), data, loss)
    report |= {"stationarity": prepared.stationarity} | scores
    report |= {f"{key}_before": value for key, value in before.items()}
    told = shortcomings(prepared, before, scores, validation(data, loss).numel())
    return Polished(own, prepared, report, decay, told)


def _examined(objective: Objective) -> tuple[Prepared, Agreement | None]:
    """What is known of a minimum, and beside it what other starts lead to, where any can be tried."""

    def prepare() -> Prepared:
        return prepare_objective(objective, flatten(objective.model))

    try:
        return examined(objective, prepare, seed=1, epochs=FIRST_PHASE, lr=FIRST_RATE)
    except ModelError:  # a parameter that nobody can draw anew, or a decay for every entry
        return prepare(), None

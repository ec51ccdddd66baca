"""A trainer of one's own whose models end as the first one did: after as many epochs, and at a minimum."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave.objective.decay import WeightDecay
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward
from unweave.objective.parts.bounded import objective_within
from unweave.training.adam import refuse_spoilt
from unweave.training.checkpoints import Checkpoint
from unweave.training.minimum import polish_objective
from unweave.training.recipe import AnyTrainer
from unweave.training.trainer import ERASED, as_trainer

__all__ = ["as_before"]


def as_before(
    trainer: AnyTrainer | str | None,
    epochs: int,
    decay: WeightDecay,
    *,
    loss: Loss,
    forward: Forward,
    polish: Mapping[str, Any] | None,
) -> AnyTrainer | str | None:
    """The same trainer, with a polish where its training ends, if there was one; ``None`` where there is none.

    Args:
        trainer: The user's own, of either form.
        epochs: Where a training that can stop and go on ends.
        decay: Of the objective.
        loss: Likewise.
        forward: How the model is called.
        polish: Options of the first one; ``None`` where there was none.
    """
    if trainer is None:
        return None
    own = as_trainer(trainer)
    if polish is None and (not own.states or own.until == epochs):
        return trainer  # as it is, so that it can be stored: it ends by itself where the first one did

    def to_minimum(model: nn.Module, data: Data) -> None:
        if polish is None:
            return
        refuse_spoilt(model, ERASED)
        meter, memory = Meter(data.x.device), polish.get("memory_mib")
        objective = objective_within(model, data, decay, loss, forward, meter, memory)
        polish_objective(objective, evaluations=polish.get("evaluations"))

    def whole(model: nn.Module, data: Data) -> None:
        own.train(model, data, epochs)
        to_minimum(model, data)

    def by_states(model: nn.Module, data: Data, start: Checkpoint | None = None, until: int = epochs) -> Checkpoint:
        state = own.resumable("a replay")(model, data, start, until)
        if until == epochs:
            to_minimum(model, data)
        return state

    found = by_states if own.states else whole
    found.__qualname__ = own.name if polish is None else f"{own.name}, then a polish"
    return found

"""Rehearse a deletion: how near would this model come to retraining, and is retraining itself anything but luck?"""

from dataclasses import dataclass, replace

import torch

from unweave.errors import DataError, ModelError
from unweave.graph.draw import draw
from unweave.objective.parameters import duplicate
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.run.forget import forget as forget_request
from unweave.run.state import State
from unweave.run.wish import Wish
from unweave.training.recipe import AnyTrainer

__all__ = ["Rehearsal", "rehearse"]

GOOD, PARTLY = 0.9, 0.5


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsed deletion showed.

    Attributes:
        forget: What was drawn and forgotten.
        gap_closed: Of the gap to the model retrained with the same seed, what ``gif`` closed: 0 as doing nothing, 1
            that very model. ``None`` where the deletion changes nothing.
        other_seed: The same for a model retrained from another seed: how far seeds agree on what remains.
        cost: Seconds of ``gif`` / seconds of retraining.
        retrain_seconds: What retraining took.
        forgettable: Whether the run was trained to a minimum already.
    """

    forget: str
    gap_closed: float | None
    other_seed: float | None
    cost: float
    retrain_seconds: float
    forgettable: bool = False

    @property
    def verdict(self) -> str:
        """What to do about it, in a sentence."""
        if self.gap_closed is None:
            return "this deletion changes nothing; rehearse a larger one"
        if self.gap_closed >= GOOD:
            return "this model can forget: requests like this one need no retraining"
        remedy = "with more weight decay (1e-2 or 3e-2)" if self.forgettable else "with forgettable=True"
        if self.gap_closed >= PARTLY:
            return (
                f"this model forgets in part: train it {remedy}, or retrain where a request must be forgotten entirely"
            )
        return f"this model cannot forget requests like this one: retrain for them, or train it {remedy}"


def rehearse(state: State, forget: str, *, seed: int, trainer: AnyTrainer | str | None) -> Rehearsal:
    """Forget a random request, retrain without it, and compare; see :meth:`unweave.Run.rehearse`."""
    if seed < 0:
        raise DataError(f"seed must be at least 0, got {seed}")
    if not state.loss.classes:
        raise ModelError(
            "only class probabilities can be compared in a rehearsal; retrain and compare outputs yourself"
        )
    if trainer is None:
        state.training.require("a rehearsal, which compares with a retrained model,")
    request = draw(forget, state.data, seed=seed)
    done = forget_request(state, request, Wish(allow_class_loss=True))
    options = {} if trainer is None else {"trainer": trainer}

    def retrain(seed: int) -> State:
        from_seed = replace(state, seed=seed, prepared=None)
        return forget_request(from_seed, request, Wish("retrain", allow_class_loss=True, options=options))

    reference, other = retrain(state.seed), retrain(state.seed + 1)
    remaining = torch.ones(state.data.num_nodes, dtype=torch.bool, device=state.data.x.device)
    remaining[list(request.nodes)] = False
    target = log_probabilities(reference.model, reference.data, state.forward)
    distances = [
        gap(target, log_probabilities(model, reference.data, state.forward), remaining)
        for model in (duplicate(state.model), done.model, other.model)  # outputs are taken in eval mode
    ]
    spent = reference.receipts[-1].seconds["forget"]
    recipe = state.training.recipe
    return Rehearsal(
        forget=forget,
        gap_closed=closed(distances[1], distances[0]),
        other_seed=closed(distances[2], distances[0]),
        cost=done.receipts[-1].seconds["total"] / spent,
        retrain_seconds=spent,
        forgettable=recipe is not None and recipe.forgettable,
    )

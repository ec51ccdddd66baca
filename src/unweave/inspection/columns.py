"""The effect of removing columns of features, all of them in one pass.

Under weight decay a model knows features by their inner products, Σ_j a_j x_j x_jᵀ with all a_j = 1: to scale a column
by √a_j is to count it a_j times. Removing it takes a_j to 0, and its effect is taken along that line,

    effect_j = −∂q*/∂a_j = −½ Σ_v x_vj ∂Φ/∂x_vj,     Φ = q − ⟨s, ∇L⟩

where q* is the quantity at the minimum and Φ carries how that moves. Along the scale itself the line would be twice as
steep as the way is long: a column that becomes smaller takes its weights with it.
"""

import copy

import torch
from torch import Tensor

from unweave.inspection.ripples import Ripples
from unweave.inspection.subject import Subject

__all__ = ["score_columns"]


def score_columns(subject: Subject) -> Tensor:
    """The predicted change of the quantity by setting each column of x to zero for all nodes."""
    if subject.followed and subject.quantity.function is None:  # which may read the features too
        engine = subject.engine
        assert isinstance(engine, Ripples)
        return -engine.fading() / 2
    data = copy.copy(subject.data)
    data.x = subject.data.x.detach().clone().requires_grad_()
    loss, quantity, mask = subject.objective.loss, subject.quantity, data.train_mask
    with torch.enable_grad():
        after, before = subject.outputs_with_slopes(data)
        labels = data.y[mask]
        pull = (loss(after[mask], labels) - loss(before[mask], labels)).sum() / (2 * subject.h)
        value = (quantity.value(after, data) + quantity.value(before, data)) / 2
        (slope,) = torch.autograd.grad(value - pull, data.x)
    found: Tensor = -(slope * data.x.detach()).sum(dim=0).double() / 2
    return found

"""The effect of removing columns of features, all of them at once.

Under weight decay a model knows features by their inner products, Σ_j a_j x_j x_jᵀ with all a_j = 1: to scale a column
by √a_j is to count it a_j times. Its effect begins along that line,

    slope_j = −∂q*/∂a_j = −½ Σ_v x_vj ∂Φ/∂x_vj,     Φ = q − ⟨s, ∇L⟩

where q* is the quantity at the minimum and Φ carries how that moves. Along the scale itself the line would be twice as
steep as the way is long: a column that becomes smaller takes its weights with it.

The line bends. To be without a column is to have weights w_j = 0 on it, and the minimum under that changes q by
−s_jᵀ (H⁻¹)_jj⁻¹ w_j (Hassibi and Stork, 1993). With M the weight decay and U_j = (1 − M^½ H⁻¹ M^½)_jj, which is how far
data decide on w_j, that is −(M^½ s_j)ᵀ (1 + U_j + …) M^½ w_j. The first term is the slope; the second is added, from
the samples that tell how nodes move (:mod:`unweave.inspection.leverage`).

The quantity bends too: by ½ ρ (M^½ w_j)ᵀ (U_j + …) M^½ w_j, as though the nodes that it counts moved as training nodes
do, with ρ the curvature of the quantity by the outputs, as a share of that of the training loss. A frequent word moves
the outputs of so many nodes that this may be more than all else. Its first term is added, from the same samples.
"""

import copy

import torch
from torch import Tensor

from unweave.inspection.counted import curvature
from unweave.inspection.leverage import find_held
from unweave.inspection.ripples import Ripples
from unweave.inspection.subject import Subject

__all__ = ["score_columns"]

TRIED = 3
"""Columns by which it is checked which weights read them."""


def score_columns(subject: Subject) -> Tensor:
    """The predicted change of the quantity by setting each column of x to zero for all nodes."""
    return _slopes(subject) + _bends(subject)


def _slopes(subject: Subject) -> Tensor:
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


def _bends(subject: Subject) -> Tensor:
    """What the line and the quantity do beyond their slopes; nothing where nobody knows."""
    objective, leverage, columns = subject.objective, subject.leverage, subject.data.x.size(1)
    found = torch.zeros(columns, dtype=torch.float64, device=subject.theta.device)
    names = [] if leverage is None or subject.direction.damping else _reading(subject)
    if not names:
        return found
    assert leverage is not None
    root = objective.mu.sqrt().expand_as(subject.theta)

    def by_column(vector: Tensor) -> Tensor:
        parts = objective.split(vector)
        return torch.cat([parts[name] for name in names]).double()

    w, s = by_column(root * subject.theta), by_column(root * subject.direction.s)
    share = _curved(subject)
    for row in find_held(objective, subject.theta, leverage):
        held = by_column(row * (root > 0))
        along = (held * w).sum(dim=0)
        found += along * (share / 2 * along - (held * s).sum(dim=0))
    return found


def _curved(subject: Subject) -> float:
    """ρ."""
    objective, outputs = subject.objective, subject.whole[0]
    labels = objective.data.y[objective.nodes]
    of_training = curvature(lambda rows: objective.loss(rows, labels).sum(), outputs[objective.nodes])
    return subject.counted.curvature() / of_training if of_training > 0 else 0.0


def _reading(subject: Subject) -> list[str]:
    """The weights that read columns of features, ``[…, columns]``; none where that is not so simple."""
    if subject.followed:
        assert isinstance(subject.engine, Ripples)
        return list(subject.engine.first)
    objective, data = subject.objective, subject.objective.data
    shapes = {name: value.shape for name, value in objective.split(subject.theta).items()}
    names = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] == data.x.size(1)]
    read = (data.x != 0).any(dim=0).nonzero().flatten()[:TRIED] if names else data.edge_index[0][:0]
    with torch.no_grad():
        for column in read.tolist():
            less = copy.copy(data)
            less.x = data.x.index_fill(1, read.new_tensor([column]), 0)
            theta = subject.theta.clone()
            for name in names:
                objective.split(theta)[name][:, column] = 0
            one, two = subject.outputs_at(subject.theta, less), subject.outputs_at(theta, data)
            if not torch.allclose(one, two, rtol=1e-4, atol=1e-5):
                return []
    return names if read.numel() else []

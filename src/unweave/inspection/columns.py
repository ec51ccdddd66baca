"""The effect of removing columns of features, all of them at once.

Under weight decay a model knows features by their inner products, Σ_j a_j x_j x_jᵀ with all a_j = 1: to scale a column
by √a_j is to count it a_j times. Its effect begins along that line,

    slope_j = −∂q*/∂a_j = −½ Σ_v x_vj ∂Φ/∂x_vj,     Φ = q − ⟨s, ∇L⟩

where q* is the quantity at the minimum and Φ carries how that moves. Along the scale itself the line would be twice as
steep as the way is long: a column that becomes smaller takes its weights with it.

The line bends. To be without a column is to have weights w_j = 0 on it, and the minimum under that changes q by
−s_jᵀ (H⁻¹)_jj⁻¹ w_j (Hassibi and Stork, 1993). With M the weight decay and U_j = (1 − M^½ H⁻¹ M^½)_jj, which is how far
data decide on w_j, that is −(M^½ s_j)ᵀ (1 + U_j (1 − U_j)⁻¹) M^½ w_j. The first term is the slope; the second is added.

The quantity bends too, along the way to that minimum: by ½ δᵀ ∇²q δ, δ = −H⁻¹ M^½ y and y = (1 − U_j)⁻¹ M^½ w_j. A
frequent word moves the outputs of so many nodes that this may be more than all else.

U_j is taken in the plane of M^½ w_j and M^½ s_j, and y along M^½ w_j. Columns share solves: of Σ_j ±M^½ w_j with random
signs, U gives each column U_j M^½ w_j and what the others add to it, which has no sign of its own. That tells as much
as fifty samples that know nothing of the columns (SIGN on PubMed: a sixth of their spread, or less). What bends comes
from samples r of the outputs that are counted, as what others add would be more than it: with ∇²q = Jᵀ A Aᵀ J the
square of M^½ H⁻¹ Jᵀ A r along M^½ w_j.
"""

import copy
import math

import torch
from torch import Tensor

from unweave._core.memory import MIB
from unweave.inspection.bends import eigh_of_many
from unweave.inspection.ripples import Ripples
from unweave.inspection.solves import Solves
from unweave.inspection.subject import Subject

__all__ = ["score_columns"]

GROUPS = 16
"""Of columns that share solves. 4 leave too much to chance where data decide on nearly all of a column's weights, as of
frequent words: the order of a GCN's columns on DBLP was right to 0.950 to 0.963 with 4, and to 0.970 to 0.974 with 16;
64 tell no more than 16 (SIGN on Cora)."""

SAMPLES = 32
"""Of what bends, which is known to a quarter of it then. With 16 the order of a GCN's columns on PubMed was right to
0.942 to 0.968, by chance."""

FLAT = 1e-6
"""What 1 − U_j is at least, where it is known exactly: a column that data decide on alone has none."""

TRIED = 3
"""Columns by which it is checked which weights read them."""

FEW = 100
"""With fewer columns a warning is given: of an SGC and a GCN on 400 nodes the order of 8 and 24 dense ones was right to
0.12 to 0.95, and that of 100 words to 0.98 and more."""


def score_columns(subject: Subject) -> tuple[Tensor, list[str]]:
    """The predicted change of the quantity by setting each column of x to zero for all nodes, and why to doubt it."""
    blocks = (subject.objective.nodes.numel() + int(subject.counted.mask.sum())) * subject.width**2 * 8 / MIB
    found, doubts, columns = _slopes(subject), list[str](), subject.objective.data.x.size(1)
    if columns < FEW:
        doubts.append(
            f"the graph has {columns} columns only, so that a column is no small part of what the model knows: their "
            "scores may be far off. Confirm them"
        )
    names, mu = _reading(subject), subject.objective.split(subject.objective.mu.expand_as(subject.theta))
    if bare := [name for name in names if not bool(mu[name].all())]:
        doubts.append(
            f"{' and '.join(bare)} read the columns without weight decay, which their scores rely on: do not believe "
            "these. Confirm them, or train with weight decay on all weights"
        )
    if not names:
        doubts.append(
            "columns are scored by their slopes alone, and the largest may be far off: no weights were found that do "
            "nothing but read them. Confirm them"
        )
    elif blocks > subject.memory_mib:
        doubts.append(
            "columns are scored by their slopes alone, and the largest may be far off: what follows takes "
            f"{math.ceil(blocks):,} MiB; give memory_mib={math.ceil(blocks)}"
        )
    elif not subject.direction.damping:
        found = found + _bends(subject, names)
    return found, doubts


def _slopes(subject: Subject) -> Tensor:
    if subject.followed and subject.quantity.function is None:
        engine = subject.engine
        assert isinstance(engine, Ripples)
        return -engine.fading() / 2
    objective = subject.objective
    data = copy.copy(objective.data)
    data.x = data.x.detach().clone().requires_grad_()
    objective.meter.passes += 4
    with torch.enable_grad():  # differences along s would count every kink of a ReLU between two points in full
        point = objective.anew(objective.model, data).at(subject.theta)
        (gradient,) = torch.autograd.grad(point.losses.sum(), point.theta, create_graph=True)
        value = subject.quantity.value(point.outputs, objective.data)
        (slope,) = torch.autograd.grad(value - gradient @ subject.direction.s, data.x)
    found: Tensor = -(slope * data.x.detach()).double().sum(dim=0) / 2
    return found


def _bends(subject: Subject, names: list[str]) -> Tensor:
    """What the line and the quantity do beyond their slopes."""
    root = subject.objective.mu.sqrt().expand_as(subject.theta)
    plane = torch.stack([_by_column(subject, names, root * each) for each in (subject.theta, subject.direction.s)])
    sizes = plane.norm(dim=1).clamp(min=torch.finfo(plane.dtype).tiny)
    plane /= sizes[:, None]
    with torch.enable_grad():
        solves = Solves(subject.objective, subject.theta, subject.prepared, 0.0)
        held, unsure = _held(subject, names, plane, solves, GROUPS)
        bent = _bent(subject, names, plane[0], solves)
    more = _resolved(plane, held, unsure)
    bent *= (1 + more[:, 0, 0]).square() / 2
    found: Tensor = sizes[0] * (sizes[0] * bent - sizes[1] * more[:, 0, 1])
    return found


def _held(subject: Subject, names: list[str], plane: Tensor, solves: Solves, groups: int) -> tuple[Tensor, float]:
    """U_j in the plane, ``[columns, 2, 2]``, and how far off that is by chance.

    How w_j acts on s_j is found twice: the other way round, other columns come in by other amounts.

    Args:
        subject: What is inspected.
        names: The weights that read columns.
        plane: M^½ w_j and M^½ s_j, each of length 1, ``[2, weights, columns]``.
        solves: Of this model.
        groups: Of columns that share a solve.
    """
    generator, columns = torch.Generator().manual_seed(0), plane.size(2)
    signs = (2 * torch.randint(2, (columns,), generator=generator) - 1).to(plane)
    member = (torch.randperm(columns, generator=generator) % groups).to(plane.device)
    root, held = solves.ridge.sqrt().expand_as(subject.theta), plane.new_zeros(columns, 2, 2)
    for some in torch.split(torch.arange(min(groups, columns), device=plane.device), subject.solved_at_once):
        mine = signs * (member == some[:, None])
        for side in range(2):
            given = torch.stack([_spread(subject, names, each * plane[side]) for each in mine])
            for each, row in zip(mine, given - root * solves.solve(root * given)[0], strict=True):
                held[:, :, side] += (each * _by_column(subject, names, row) * plane).sum(dim=1).T
    apart = held[:, 0, 1] - held[:, 1, 0]
    return (held + held.mT) / 2, float(apart.square().mean() / 2) ** 0.5


def _bent(subject: Subject, names: list[str], w: Tensor, solves: Solves) -> Tensor:
    """M^½ H⁻¹ ∇²q H⁻¹ M^½ along M^½ w_j, as far as q bends by the outputs.

    Nothing of a function of the user's, and of what bends both ways, as a gap does, where chance would be more than it.
    """
    nodes, factor, way = subject.counted.bends()
    found, generator = w.new_zeros(w.size(1)), torch.Generator().manual_seed(0)
    if not way:
        return found
    point, root = subject.objective.at(subject.theta), solves.ridge.sqrt().expand_as(subject.theta)
    for some in torch.split(torch.arange(SAMPLES), subject.solved_at_once):
        noise = torch.stack([torch.randn(factor.shape[:2], generator=generator, dtype=factor.dtype) for _ in some])
        pulled = []
        for rows in (factor @ noise.to(factor)[..., None])[..., 0]:
            u = torch.zeros_like(point.outputs)
            u[nodes] = rows.reshape(u[nodes].shape).to(u)
            pulled.append(torch.autograd.grad(point.outputs, point.theta, u, retain_graph=True)[0])
        subject.objective.meter.passes += some.numel()
        for row in root * solves.solve(torch.stack(pulled))[0]:
            found += way / SAMPLES * (_by_column(subject, names, row) * w).sum(dim=0).square()
    return found


def _resolved(plane: Tensor, held: Tensor, unsure: float) -> Tensor:
    """U_j (1 − U_j)⁻¹ = U_j + U_j (1 − U_j)⁻¹ U_j in the plane, with 1 − U_j no smaller than it is known."""
    left, axes = eigh_of_many(torch.einsum("iwc,jwc->cij", plane, plane) - held)
    along = held @ axes
    found: Tensor = held + (along / left.clamp(min=max(unsure, FLAT))[:, None]) @ along.mT
    return found


def _by_column(subject: Subject, names: list[str], vector: Tensor) -> Tensor:
    """The weights that read columns, ``[weights, columns]``."""
    parts = subject.objective.split(vector)
    return torch.cat([parts[name] for name in names]).double()


def _spread(subject: Subject, names: list[str], weights: Tensor) -> Tensor:
    """The vector with these weights that read columns, and with zeros elsewhere."""
    found = torch.zeros_like(subject.theta)
    parts = subject.objective.split(found)
    for name, rows in zip(names, torch.split(weights, [parts[name].size(0) for name in names]), strict=True):
        parts[name].copy_(rows)
    return found


def _reading(subject: Subject) -> list[str]:
    """The weights that read columns of features, ``[…, columns]``; none where that is not so simple."""
    if subject.followed:
        assert isinstance(subject.engine, Ripples)
        return list(subject.engine.first)
    objective, data, theta = subject.objective, subject.objective.data, subject.theta
    shapes = {name: value.shape for name, value in objective.split(theta).items()}
    names = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] == data.x.size(1)]
    read = (data.x != 0).any(dim=0).nonzero().flatten()
    matter = set[str]()
    if not names or not read.numel():
        return []

    def without(column: int, some: list[str]) -> Tensor:
        found = theta.clone()
        for name in some:
            objective.split(found)[name][:, column] = 0
        return found

    def same(one: Tensor, two: Tensor) -> bool:
        return torch.allclose(one, two, rtol=1e-4, atol=1e-5)

    with torch.no_grad():
        whole, last = subject.outputs_at(theta, data), read.numel() - 1
        for column in read[[last * number // (TRIED - 1) for number in range(min(TRIED, last + 1))]].tolist():
            less = copy.copy(data)
            less.x = data.x.index_fill(1, read.new_tensor([column]), 0)
            there = subject.outputs_at(theta, less)
            names = [name for name in names if same(subject.outputs_at(without(column, [name]), less), there)]
            matter |= {name for name in names if not same(subject.outputs_at(without(column, [name]), data), whole)}
            if not same(subject.outputs_at(without(column, names), data), there):
                return []
    return [name for name in names if name in matter]

"""The closed form for one graph convolution (Wu et al., WWW'23, section on interpretation), and its exact version.

With F the propagated features of the training nodes, rows h_i, and P = softmax(F W), everything an influence step
needs can be written down:

    gradient of node i      h_i (p_i − y_i)ᵀ
    Hessian, block j, k     Σ_i (p_ij δ_jk − p_ij p_ik) h_i h_iᵀ + δ_jk μ I

The paper keeps the blocks j = k, D_j = Σ_i p_ij (1 − p_ij) h_i h_iᵀ + μ I, and solves class by class.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave._core.tuning import TUNING
from unweave.curvature.solvers import SolveReport, conjugate_gradients, random_like
from unweave.curvature.solvers.base import relative
from unweave.errors import MethodError, ModelError, SolverError
from unweave.methods.base import Method, Outcome
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.objective.checks import rounding
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, trained

__all__ = ["ClosedForm", "Softmax", "exact_hessian", "forgotten", "read_linear"]

INSTEAD = "method 'closed-form' serves one graph convolution, outputs F W (+ bias); use method='gif' for this model"


@dataclass(frozen=True)
class Softmax:
    """A linear model with cross-entropy on one graph, at parameters W; all in float64.

    A bias is one more row of W, and what it is multiplied by one more column of F.

    Attributes:
        nodes: Ids of the training nodes.
        features: F, ``[nodes, d]``.
        probabilities: P, ``[nodes, classes]``.
        labels: Y, one-hot.
        mu: Weight decay of each entry of W, ``[d, classes]``.
    """

    nodes: Tensor
    features: Tensor
    probabilities: Tensor
    labels: Tensor
    mu: Tensor

    def gradient(self, mask: Tensor) -> Tensor:
        """Σ_i h_i (p_i − y_i)ᵀ over the training nodes in a node mask."""
        chosen = mask[self.nodes]
        return self.features[chosen].T @ (self.probabilities - self.labels)[chosen]

    def product(self, V: Tensor) -> Tensor:
        """The exact Hessian times V: Fᵀ [P∘(FV) − P·rowsum(P∘FV)] + μ∘V."""
        weighted = self.probabilities * (self.features @ V)
        bent = weighted - self.probabilities * weighted.sum(dim=1, keepdim=True)
        return self.features.T @ bent + self.mu * V

    def block(self, j: int) -> Tensor:
        """D_j."""
        p = self.probabilities[:, j, None]
        return self.features.T @ (p * (1 - p) * self.features) + torch.diag(self.mu[:, j])


def exact_hessian(at: Softmax) -> Tensor:
    """The whole Hessian, ``[d, classes, d, classes]``; for small models."""
    P = at.probabilities
    bend = torch.diag_embed(P) - P[:, :, None] * P[:, None, :]
    hessian = torch.einsum("ijk,ia,ib->ajbk", bend, at.features, at.features).contiguous()
    hessian.view(at.mu.numel(), -1).diagonal().add_(at.mu.reshape(-1))
    return hessian


@register
@dataclass(frozen=True)
class ClosedForm(Method):
    """Ŵ = W0 + H⁻¹ v for a model with one weight matrix, without damping and in float64.

    It is there to be compared with and to check others by: reading F takes one pass over each graph for every few
    features, as many as there are classes.

    Attributes:
        hessian: ``"exact"``, or ``"block-diagonal"``, the paper's: how classes compete for a node is then left out.
        graph: Where it is taken: the ``"remaining"`` graph (better) or the ``"original"`` (the paper's).
    """

    name: ClassVar[str] = "closed-form"
    hessian: Literal["exact", "block-diagonal"] = "exact"
    graph: Literal["remaining", "original"] = "remaining"

    def __post_init__(self) -> None:
        for option, allowed in (("hessian", ("exact", "block-diagonal")), ("graph", ("remaining", "original"))):
            if getattr(self, option) not in allowed:
                raise MethodError(f"{option} must be one of {', '.join(allowed)}, got {getattr(self, option)!r}")

    def forget(self, problem: Problem) -> Outcome:
        """Write down both gradients and the Hessian, and solve."""
        details: dict[str, Any] = {"hessian": self.hessian, "hessian_on": f"{self.graph} graph"}
        index, original, remaining = _pose(problem)
        if not bool(problem.forgotten_gradient.any()):
            note = "no training node's loss changes, so the parameters are already those of the remaining graph"
            return Outcome(problem.theta.clone(), details=details, warnings=(note,))
        parts = forgotten(original, remaining, problem.theta.double()[index])
        v = sum(parts.values(), torch.zeros_like(original.mu))
        solve = _by_class if self.hessian == "block-diagonal" else _exactly
        x, report = solve(original if self.graph == "original" else remaining, v)
        theta = problem.theta.clone()
        theta[index] += x.to(theta)
        return Outcome(theta, solve=report, details=details | {f"{k}_pull": float(p.norm()) for k, p in parts.items()})


def forgotten(original: Softmax, remaining: Softmax, W: Tensor) -> dict[str, Tensor]:
    """v = ∇ΔL(W), part by part: the nodes that leave the training set, the others' change, and weight decay."""
    size = int(original.nodes.max()) + 1
    stays = torch.zeros(size, dtype=torch.bool, device=W.device)
    stays[remaining.nodes] = True
    return {
        "removed": original.gradient(~stays),
        "neighbourhood": original.gradient(stays) - remaining.gradient(stays),
        "decay": (original.mu - remaining.mu) * W,
    }


def read_linear(objective: Objective, index: Tensor) -> Tensor:
    """F of the training nodes, read off the outputs for chosen parameters: as many columns a pass as there are classes.

    Args:
        objective: The model on a graph.
        index: Where the entries of W lie in θ, ``[d, classes]``.

    Raises:
        ModelError: The outputs are not F W.
    """
    like = torch.zeros(index.numel(), dtype=objective.mu.dtype, device=objective.mu.device)

    def outputs(theta: Tensor) -> Tensor:
        with torch.no_grad():
            rows: Tensor = objective.at(theta).outputs[objective.nodes]
            return rows

    constant = outputs(like)
    if bool((constant.abs() > rounding(constant)).any()):
        raise ModelError(
            f"the outputs are not zero at zero parameters (up to {float(constant.abs().max()):.3g}); if the model ends "
            f"in log_softmax, leave that out, as the loss takes logits. {INSTEAD}"
        )
    columns = []
    for rows in torch.split(index, index.size(1)):
        one = like.clone()
        one[rows.diagonal()] = 1
        columns.append(outputs(one)[:, : len(rows)])
    features = torch.cat(columns, dim=1)
    anywhere = random_like(like)
    expected, found = features @ anywhere[index], outputs(anywhere)
    off = float((expected - found).abs().max())
    if off > float(rounding(found)):
        raise ModelError(
            f"the outputs are not linear in the parameters (off by {off:.3g} at a random point). {INSTEAD}"
        )
    return features.double()


def _pose(problem: Problem) -> tuple[Tensor, Softmax, Softmax]:
    """Where W lies in θ, and the model on both graphs."""
    if problem.original.loss is not cross_entropy:
        raise ModelError("method 'closed-form' is for cross-entropy; use method='gif' for another loss")
    layouts = _layouts(problem.original.model, problem.at_original.outputs.size(1))
    index, F0 = _read_either_way(problem.original, layouts)
    F1 = read_linear(problem.remaining, index)
    W = problem.theta.double()[index]
    return index, _softmax(problem.original, F0, index, W), _softmax(problem.remaining, F1, index, W)


def _read_either_way(objective: Objective, layouts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The layout that explains the outputs, and F; a square matrix may be meant either way round."""
    for index in layouts[:-1]:
        with suppress(ModelError):
            return index, read_linear(objective, index)
    return layouts[-1], read_linear(objective, layouts[-1])


def _softmax(objective: Objective, features: Tensor, index: Tensor, W: Tensor) -> Softmax:
    labels = F.one_hot(objective.data.y[objective.nodes], W.size(1)).double()
    probabilities = (features @ W).softmax(dim=1)
    return Softmax(objective.nodes, features, probabilities, labels, objective.mu.double()[index])


def _layouts(model: nn.Module, classes: int) -> list[Tensor]:
    """Where the entries of [W; b] may lie in θ, as an index ``[d, classes]`` for each way round that fits."""
    named = {name: tuple(p.shape) for name, p in trained(model).items()}
    sizes = [p.numel() for p in trained(model).values()]
    device = next(model.parameters()).device
    pieces = torch.split(torch.arange(sum(sizes), device=device), sizes)
    matrices = [piece.view(shape) for piece, shape in zip(pieces, named.values(), strict=True) if len(shape) == 2]
    biases = [piece for piece, shape in zip(pieces, named.values(), strict=True) if shape == (classes,)]
    fits = [way for matrix in matrices for way in (matrix.T, matrix) if way.size(1) == classes]
    if len(matrices) != 1 or len(biases) > 1 or len(matrices) + len(biases) != len(named) or not fits:
        raise ModelError(f"the model has parameters {named}, not one weight matrix for {classes} classes. {INSTEAD}")
    return [torch.cat([weight, *(bias[None] for bias in biases)]) for weight in fits]


def _exactly(at: Softmax, v: Tensor) -> tuple[Tensor, SolveReport]:
    """Conjugate gradients with the closed-form product."""

    def operator(u: Tensor) -> Tensor:
        return at.product(u.view_as(v)).reshape(-1)

    exact = TUNING.baselines
    x, report = conjugate_gradients(
        operator, v.reshape(-1), tolerance=exact.exact_tolerance, iterations=exact.exact_iterations
    )
    if not report.converged:
        raise SolverError(
            f"the exact Hessian is singular or nearly so (relative residual {report.relative_residual:.2g} after "
            f"{report.iterations} iterations); train with weight_decay above 0, or use method='gif', which damps it"
        )
    return x.view_as(v), report


def _by_class(at: Softmax, v: Tensor) -> tuple[Tensor, SolveReport]:
    """D_j x_j = v_j by Cholesky, one class at a time, so that one d × d matrix is held."""
    x, left = torch.empty_like(v), torch.empty_like(v)
    for j in range(v.size(1)):
        D = at.block(j)
        factor, failed = torch.linalg.cholesky_ex(D)
        if int(failed) or float(factor.diagonal().min()) <= 1e-7 * float(factor.diagonal().max()):
            raise SolverError(
                f"the block of class {j} is singular: {at.nodes.numel()} training nodes do not determine "
                f"{v.size(0)} weights; train with weight_decay above 0, or use method='gif', which damps it"
            )
        x[:, j] = torch.cholesky_solve(v[:, j, None], factor)[:, 0]
        left[:, j] = v[:, j] - D @ x[:, j]
    report = SolveReport("cholesky", {}, v.size(1), 0, relative(left, v), None, None, None)
    return x, report

"""Products with the curvature of the objective, without ever building the matrix.

Both operators keep one graph of derivatives and reuse it for every product, so memory does not grow
with the number of products. A product costs two sweeps over the graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from unweave._core.cuda_graphs import aside, record
from unweave._core.memory import no_memory
from unweave.errors import ModelError
from unweave.objective.objective import Objective, Point
from unweave.objective.parts.blocks import BlockPoint

__all__ = ["CURVATURES", "Curvature", "GaussNewton", "Hessian", "products"]


class Curvature(ABC):
    """A symmetric matrix known by its products, ``operator(v)``, at a point.

    The weight decay's diagonal is part of it.

    Args:
        point: Where.
        check: Whether to make sure that the model can be differentiated twice.
    """

    def __init__(self, point: Point, *, check: bool = True) -> None:
        self._point = point
        self._mu = point.objective.mu
        # No function that holds this object: the graphs of derivatives would live until the garbage collector comes.
        self._recorded: Callable[[Tensor], tuple[Tensor, ...]] | None = None

    def __call__(self, v: Tensor) -> Tensor:
        """The product with a vector of the length of θ."""
        self._point.objective.meter.passes += 2
        product = self.loss_product(v) if self._recorded is None else self._recorded(v)[0]
        return product + self._mu * v

    def record(self) -> str:
        """Make every later product a replay of one recorded now, where there is a GPU; returns whether, in words.

        Recording costs the graph of derivatives once more and up to three products, so it pays for who will ask for a
        dozen.
        """
        objective, theta = self._point.objective, self._point.theta.detach()
        if theta.device.type == "cuda":
            self.__dict__.clear()  # the old graph of derivatives goes before the new one comes
            with aside(theta.device):
                type(self).__init__(self, objective.at(theta))
        found = record(lambda v: (self.loss_product(v),), theta)
        if found.whether == "yes":
            self._recorded = found.function
        objective.meter.passes += 2 * found.looks
        return found.whether

    @abstractmethod
    def loss_product(self, v: Tensor) -> Tensor:
        """The product with the curvature of the summed loss, without the weight decay."""


class Hessian(Curvature):
    """The Hessian ∇²L(θ): H v = ∇⟨∇L(θ), v⟩, by differentiating the retained gradient once more.

    Indefinite for most trained networks of more than one layer.
    """

    def __init__(self, point: Point, *, check: bool = True) -> None:
        super().__init__(point)
        if check and not point.objective.written_out:
            GaussNewton(point)  # refuses a model whose second derivatives torch would silently drop
        point.objective.meter.passes += 1
        self._gradient = _grad(point.losses.sum(), point.theta, create_graph=True)

    def loss_product(self, v: Tensor) -> Tensor:
        """H v without the weight decay."""
        if not self._gradient.requires_grad:  # the loss is linear in θ
            return torch.zeros_like(v)
        return _grad(self._gradient, self._point.theta, v, retain_graph=True)


class GaussNewton(Curvature):
    """The generalised Gauss-Newton matrix Jᵀ ∇²ℓ J, with J the Jacobian of the training nodes' outputs.

    Positive semi-definite whenever the loss is convex in the outputs, and equal to the Hessian where
    the outputs are linear in θ. J v comes from differentiating u ↦ Jᵀu, which is linear in u, so only
    reverse mode is needed and any module that can be differentiated twice will do; where J is written out
    (:mod:`unweave.models.sweep`) no derivative is taken at all.
    """

    def __init__(self, point: Point, *, check: bool = True) -> None:
        super().__init__(point)
        objective = point.objective
        objective.meter.passes += 1
        self._outputs = point.outputs.index_select(0, objective.nodes)
        self._swept = objective.swept(point.theta)
        if self._swept is None:
            self._dummy = torch.zeros_like(self._outputs, requires_grad=True)
            self._pulled = _grad(self._outputs, point.theta, self._dummy, create_graph=True)
        self._shares = torch.softmax(self._outputs.detach(), dim=-1) if self._outputs.dim() > 1 else self._outputs
        self._leaf = self._outputs.detach().requires_grad_()
        losses = objective.loss(self._leaf, objective.data.y[objective.nodes])
        self._slope = _grad(losses.sum(), self._leaf, create_graph=True)
        if check:
            self._refuse_dropped_derivatives()

    @property
    def objective(self) -> Objective:
        """What this is the curvature of."""
        return self._point.objective

    @property
    def slope(self) -> Tensor:
        """∂ℓ/∂outputs of each training node."""
        return self._slope.detach()

    def push(self, v: Tensor) -> Tensor:
        """J v: how the outputs of each training node move with θ along v."""
        return _grad(self._pulled, self._dummy, v, retain_graph=True) if self._swept is None else self._swept.push(v)

    def bend(self, u: Tensor) -> Tensor:
        """∇²ℓ u, node by node."""
        if self._swept is not None and self._point.objective.loss.plain:
            return self._shares * (u - (self._shares * u).sum(dim=-1, keepdim=True))
        if not self._slope.requires_grad:  # the loss is linear in the outputs
            return torch.zeros_like(u)
        return _grad(self._slope, self._leaf, u, retain_graph=True)

    def pull(self, u: Tensor) -> Tensor:
        """Jᵀ u."""
        if self._swept is not None:
            return self._swept.pull(u)
        return _grad(self._outputs, self._point.theta, u, retain_graph=True)

    def push_all(self, v: Tensor) -> Tensor:
        """J v of several v, ``[many, θ]``: ``[nodes, many, …]``."""
        if self._swept is not None:
            return self._swept.push_all(v)
        return torch.stack([self.push(one) for one in v], dim=1)

    def pull_all(self, u: Tensor) -> Tensor:
        """Jᵀ u of several u, ``[nodes, many, …]``: ``[many, θ]``."""
        if self._swept is not None:
            return self._swept.pull_all(u)
        return torch.stack([self.pull(one) for one in u.unbind(1)])

    def loss_product(self, v: Tensor) -> Tensor:
        """Jᵀ ∇²ℓ J v."""
        return self.pull(self.bend(self.push(v)))

    def _refuse_dropped_derivatives(self) -> None:
        """⟨u, J v⟩ = ⟨Jᵀu, v⟩ for random u and v. Jᵀ needs one derivative; J, where it is not written out, needs two.

        torch drops the second derivative of a ``once_differentiable`` function without a word where another
        path leads to θ, and the products would be wrong.
        """
        device = self._outputs.device
        generator = torch.Generator(device).manual_seed(0)
        u, v = (
            torch.randn(t.shape, generator=generator, dtype=t.dtype, device=device)
            for t in (self._outputs, self._point.theta)
        )
        pushed, pulled = self.push(v), self.pull(u)
        self._point.objective.meter.passes += 2
        left, right = float((u * pushed).sum()), float(pulled @ v)
        if abs(left - right) > torch.finfo(v.dtype).eps ** 0.5 * float(u.norm() * pushed.norm()):
            raise ModelError(_TWICE.format(f"a product and its adjoint disagree: {left:.6g} and {right:.6g}"))


CURVATURES: dict[str, type[Curvature]] = {"gauss-newton": GaussNewton, "hessian": Hessian}

_TWICE = (
    "the model cannot be differentiated twice, which influence needs ({}); is one of its operations an autograd "
    "function of its own without a second derivative? Use method='finetune' or 'retrain' for this model; of a compiled "
    "one give the module that torch.compile was given, model._orig_mod"
)


def _grad(value: Tensor, leaf: Tensor, weights: Tensor | None = None, **how: bool) -> Tensor:
    """Gradient of ⟨value, weights⟩; an operation that cuts the graph is an error, not a zero."""
    try:
        return torch.autograd.grad(value, leaf, weights, **how)[0]
    except RuntimeError as error:
        raise no_memory(error) or ModelError(_TWICE.format(error)) from error


class _Accumulated(Curvature):
    """A product with the curvature as a sum over blocks. Each is evaluated anew for every product, unless kept."""

    def __init__(self, kind: str, point: BlockPoint) -> None:
        super().__init__(point)
        self._kind, self._at = kind, point
        self._checked = False
        self._kept: dict[int, Curvature] = {}

    def __call__(self, v: Tensor) -> Tensor:
        """The product with a vector of the length of θ; the blocks count their own passes."""
        return self.loss_product(v) + self._mu * v

    def record(self) -> str:
        """Blocks differ in shape, so there is nothing to record."""
        return "no: it is done in blocks"

    def loss_product(self, v: Tensor) -> Tensor:
        """The sum of the blocks' products."""

        def product(part: Objective, block: Tensor) -> Tensor:
            with torch.enable_grad():
                operator = self._kept.get(id(part))
                if operator is None:
                    operator = CURVATURES[self._kind](part.at(self._at.theta), check=not self._checked)
                    self._checked = True
                    if self._at.objective.keeps:  # the blocks of a rank, with their graphs of derivatives
                        self._kept[id(part)] = operator
                part.meter.passes += 2
                return operator.loss_product(v)

        return self._at.total(self._kind, product)


def products(kind: str, point: Point) -> Curvature:
    """The curvature of a kind (:data:`CURVATURES`) at a point, in blocks where that was evaluated in blocks."""
    return _Accumulated(kind, point) if isinstance(point, BlockPoint) else CURVATURES[kind](point)

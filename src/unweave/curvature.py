"""Products with the curvature of the objective, without ever building the matrix.

Both operators keep one graph of derivatives and reuse it for every product, so memory does not grow
with the number of products. A product costs two sweeps over the graph.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from unweave.errors import ModelError
from unweave.objective import Point

__all__ = ["CURVATURES", "Curvature", "GaussNewton", "Hessian"]


class Curvature(ABC):
    """A symmetric matrix known by its products, ``operator(v)``, at a point.

    The weight decay's diagonal is part of it.
    """

    def __init__(self, point: Point) -> None:
        self._point = point
        self._mu = point.objective.mu

    def __call__(self, v: Tensor) -> Tensor:
        """The product with a vector of the length of θ."""
        self._point.objective.meter.passes += 2
        return self._loss_product(v) + self._mu * v

    @abstractmethod
    def _loss_product(self, v: Tensor) -> Tensor:
        """The product with the curvature of the summed loss."""


class Hessian(Curvature):
    """The Hessian ∇²L(θ): H v = ∇⟨∇L(θ), v⟩, by differentiating the retained gradient once more.

    Indefinite for most trained networks of more than one layer.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        point.objective.meter.passes += 1
        self._gradient = _differentiable_gradient(point.losses.sum(), point.theta)

    def _loss_product(self, v: Tensor) -> Tensor:
        return _retained(self._gradient, self._point.theta, v)


class GaussNewton(Curvature):
    """The generalised Gauss-Newton matrix Jᵀ ∇²ℓ J, with J the Jacobian of the training nodes' outputs.

    Positive semi-definite whenever the loss is convex in the outputs, and equal to the Hessian where
    the outputs are linear in θ. J v comes from differentiating u ↦ Jᵀu, which is linear in u, so only
    reverse mode is needed and any module that can be differentiated twice will do.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        objective = point.objective
        objective.meter.passes += 1
        self._outputs = point.outputs[objective.nodes]
        self._dummy = torch.zeros_like(self._outputs, requires_grad=True)
        self._pulled = _differentiable_gradient(self._outputs, point.theta, self._dummy)
        self._leaf = self._outputs.detach().requires_grad_()
        losses = objective.loss(self._leaf, objective.data.y[objective.nodes])
        self._slope = _differentiable_gradient(losses.sum(), self._leaf)

    def _loss_product(self, v: Tensor) -> Tensor:
        pushed = _retained(self._pulled, self._dummy, v)
        bent = _retained(self._slope, self._leaf, pushed)
        (product,) = torch.autograd.grad(self._outputs, self._point.theta, bent, retain_graph=True)
        return product


CURVATURES: dict[str, type[Curvature]] = {"gauss-newton": GaussNewton, "hessian": Hessian}


def _differentiable_gradient(value: Tensor, leaf: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gradient of ⟨value, weights⟩ that can be differentiated again."""
    gradient = _grad(value, leaf, weights, create_graph=True)
    return torch.zeros_like(leaf) if gradient is None else gradient


def _retained(gradient: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
    """∂⟨gradient, v⟩/∂leaf; zero where the gradient does not depend on the leaf."""
    product = _grad(gradient, leaf, v, retain_graph=True) if gradient.requires_grad else None
    return torch.zeros_like(leaf) if product is None else product


def _grad(value: Tensor, leaf: Tensor, weights: Tensor | None, **how: bool) -> Tensor | None:
    try:
        return torch.autograd.grad(value, leaf, weights, allow_unused=True, **how)[0]
    except RuntimeError as error:
        raise ModelError(
            f"the model cannot be differentiated twice, which influence needs: {error}; "
            "use method='finetune' or 'retrain' for this model"
        ) from error

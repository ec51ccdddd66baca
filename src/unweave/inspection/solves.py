"""Systems with the Gauss-Newton matrix, many side by side: H x = b by conjugate gradients on the prepared curvature."""

import torch
from torch import Tensor

from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.curvature.products import GaussNewton
from unweave.inspection.bends import root_of
from unweave.objective.objective import Objective

__all__ = ["Solves"]


class Solves:
    """H = Jᵀ W J + M + damping of a model on its graph.

    Attributes:
        operator: Jᵀ W J + M.
        root: W^½ of every training node, ``[nodes, outputs, outputs]``.
        ridge: M + damping.
    """

    def __init__(self, objective: Objective, theta: Tensor, prepared: Prepared, damping: float) -> None:
        """Look at the model once.

        Args:
            objective: L0.
            theta: θ0.
            prepared: Of this model.
            damping: What is added to the curvature.
        """
        point = objective.at(theta)
        outputs = point.outputs.detach().index_select(0, objective.nodes)
        self.operator, self.ridge = GaussNewton(point), objective.mu + damping
        self.root = root_of(objective.loss, outputs, objective.data.y[objective.nodes])
        self._shape, self._prepared, self._damping = outputs.shape[1:], prepared, damping

    def pull(self, rows: Tensor) -> Tensor:
        """Jᵀ W^½ of ``[nodes, many, outputs]``: ``[many, θ]``."""
        return self.operator.pull_all((rows @ self.root.mT).reshape(*rows.shape[:2], *self._shape))

    def solve(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """H⁻¹ b of ``[many, θ]``, to :attr:`Inspection.tolerance`, and J H⁻¹ b, ``[nodes, many, outputs]``."""
        meter, curvature = self.operator.objective.meter, self._prepared.curvature
        x = torch.zeros_like(residual)
        own = self.root.new_zeros(self.root.size(0), residual.size(0), self.root.size(1))
        target = TUNING.inspection.tolerance * residual.norm(dim=1)
        direction = conditioned = curvature.solve_all(residual, self._damping)
        for _ in range(TUNING.inspection.iterations):
            live = residual.norm(dim=1) > target
            if not bool(live.any()):
                break
            meter.passes += 2 * int(live.sum())
            step = self.operator.push_all(direction).reshape(own.shape)
            image = self.pull(step @ self.root) + self.ridge * direction
            old, bend = (residual * conditioned).sum(dim=1), (direction * image).sum(dim=1)
            length = torch.where(live & (bend > 0), old / bend, 0.0)[:, None]
            x, own, residual = x + length * direction, own + length * step, residual - length * image
            conditioned = curvature.solve_all(residual, self._damping)
            turn = torch.where(live & (old > 0), (residual * conditioned).sum(dim=1) / old, 0.0)
            direction = conditioned + turn[:, None] * direction
        return x, own

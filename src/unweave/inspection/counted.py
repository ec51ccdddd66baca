"""What each node adds to a quantity, by its output."""

from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.inspection.answers import flat
from unweave.inspection.bends import bends_of, eigh_of_many
from unweave.inspection.quantity import Quantity

__all__ = ["Counted"]


class Counted:
    """The nodes that a quantity counts.

    Args:
        data: The graph.
        quantity: q.
        outputs: Of all nodes.

    Attributes:
        mask: Which it counts each by itself: none of a function of the user's, which is taken by its slope.
        before: What each adds to it.
    """

    def __init__(self, data: Data, quantity: Quantity, outputs: Tensor) -> None:
        self._quantity, self._data, self._outputs = quantity, data, outputs
        weights = quantity.weights
        self.mask = torch.zeros_like(data.train_mask) if weights is None else weights != 0
        self.before = self.parts(outputs, torch.arange(outputs.size(0), device=outputs.device))

    @property
    def heeded(self) -> Tensor | None:
        """Mask of the nodes whose outputs matter to the quantity or to training; ``None`` where all may."""
        return None if self._quantity.function is not None else self.mask | self._data.train_mask

    @cached_property
    def place(self) -> Tensor:
        """Of a node among those that are counted."""
        return self.mask.cumsum(0) - 1

    def parts(self, outputs: Tensor, nodes: Tensor) -> Tensor:
        """What some nodes add to the quantity."""
        quantity = self._quantity
        if quantity.function is not None:
            return flat(outputs * self._slope[nodes]).sum(dim=1)
        assert quantity.weights is not None
        assert quantity.rows is not None
        some = quantity.weights[nodes].nonzero().flatten()
        ids = nodes[some]
        values = quantity.weights[ids] * quantity.rows(outputs[some], ids)
        return torch.zeros(nodes.numel(), dtype=values.dtype, device=nodes.device).index_put((some,), values)

    def slopes(self, outputs: Tensor, nodes: Tensor) -> Tensor:
        """The slope of what some nodes add, by their outputs, flat."""
        if not nodes.numel():
            return flat(outputs)
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.parts(leaf, nodes).sum(), leaf)
        return flat(slope)

    def bends(self) -> tuple[Tensor, Tensor, float]:
        """The nodes that are counted, A and σ: ∂²q/∂outputs² of each is σ A Aᵀ; σ is 0 where that bends both ways."""
        nodes = self.mask.nonzero().flatten()
        values, vectors = eigh_of_many(bends_of(lambda rows: self.parts(rows, nodes), self._outputs[nodes]))
        values = values * (values.abs() > torch.finfo(values.dtype).eps * values.abs().sum())  # the rest is rounding
        up, down = bool((values > 0).any()), bool((values < 0).any())
        return nodes, vectors * values.abs().sqrt()[:, None], float(up) - float(down)

    @cached_property
    def _slope(self) -> Tensor:
        """∂q/∂outputs of a function of the user's."""
        leaf = self._outputs.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self._quantity.value(leaf, self._data), leaf)
        return slope

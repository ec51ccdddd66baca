"""Outputs and derivatives of GCN and SGC written out: a sweep over the graph without autograd, in a dozen products.

Any other module is differentiated by torch; these give the same, up to rounding, and are a privilege of speed alone. On
the halo of some nodes every step computes only what the next one still reads, and outputs are those of these nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.sparse import Matrix, multiply
from unweave.models.activation import ACTIVATIONS
from unweave.models.gcn import GCN, SparseGCNConv
from unweave.models.sgc import SGC, SparseAPPNP
from unweave.models.structure import bare, constant, entering, features, normalised, serves

__all__ = ["Sweep", "Way", "sweep_of"]

Weights = Mapping[str, Tensor]


class Sweep(Protocol):
    """A model evaluated at some weights.

    Attributes:
        outputs: Of all nodes; on a halo, of those that it is made for, which come first.
    """

    outputs: Tensor

    def push(self, direction: Weights) -> Tensor:
        """How the outputs move with the weights along a direction."""
        ...

    def pull(self, u: Tensor) -> dict[str, Tensor]:
        """The gradient of ⟨outputs, u⟩ by the weights."""
        ...

    def push_all(self, directions: Weights) -> Tensor:
        """The same along several directions, ``[directions, …]``: ``[nodes, directions, outputs]``."""
        ...

    def pull_all(self, u: Tensor) -> dict[str, Tensor]:
        """The gradients for several u, ``[nodes, directions, outputs]``: ``[directions, …]``."""
        ...


Build = Callable[["_Features", Sequence[Matrix], Weights], Sweep]


class Way:
    """How a model is evaluated on a graph.

    Args:
        kind: Which model it is, with what beside weights and graph its outputs depend on.
        build: The model at some weights.
        x: The features.
        matrix: The matrix messages are passed by; the attribute too.
        steps: What each step of the model takes of it, from the first.
    """

    def __init__(self, kind: object, build: Build, x: "_Features", matrix: Matrix, steps: Sequence[Matrix]) -> None:
        self._kind, self._build, self._x, self._steps = kind, build, x, steps
        self.matrix = matrix

    def __call__(self, weights: Weights) -> Sweep:
        """The model at some weights."""
        return self._build(self._x, self._steps, weights)

    def staged(self) -> "Way":
        """The same with a matrix of its own, whose values may be replaced; not on a halo, of which it is a part."""
        assert all(step is self.matrix for step in self._steps)
        own = self.matrix.copy()
        return Way(self._kind, self._build, self._x, own, [own] * len(self._steps))

    def like(self, other: "Way") -> bool:
        """Whether nothing but the values of the matrix is different."""
        return self._kind == other._kind and self._x.same(other._x)


def sweep_of(model: nn.Module, data: Data) -> Way | None:
    """The way to evaluate a model on a graph without autograd; ``None`` where there is none.

    There is one for GCN and SGC as they are built, called as ``model(x, edge_index[, edge_weight])`` on plain tensors,
    where nobody listens to calls of their layers.
    """
    x, edge_index, edge_weight = data.x, data.edge_index, data.get("edge_weight")
    plain = all(bare(module) and "forward" not in vars(module) for module in model.modules())
    if data.get("edge_attr") is not None or not plain or not constant(x):
        return None
    kind, names, layers, count, build = _written_out(model)
    if not layers or {(name, p.requires_grad) for name, p in model.named_parameters()} != {(n, True) for n in names}:
        return None
    if not all(layer.as_built and serves(layer, x, edge_index, edge_weight) for layer in layers):
        return None
    x = entering(x, unit=bool(getattr(model, "unit", False)))
    matrix, given = normalised(edge_index, edge_weight, x.size(0), x.dtype), features(x)
    return Way(kind, build, _Features(x, given), matrix, _needed(matrix, count, data.get("halo_rings")))


def _needed(matrix: Matrix, count: int, rings: Sequence[int] | None) -> list[Matrix]:
    """What each of so many steps takes of a matrix: all of it, or on a halo the rows that the next one still reads.

    Args:
        matrix: The matrix.
        count: Steps.
        rings: How many of the first nodes lie within 0, 1, … steps of those that a halo was made for.
    """
    if rings is None or len(rings) != count + 1:
        return [matrix] * count
    ends = [*reversed(rings[:-1])]
    return [matrix.first(rows, matrix.shape[1] if n == 0 else ends[n - 1]) for n, rows in enumerate(ends)]


def _written_out(model: nn.Module) -> tuple[object, tuple[str, ...], tuple[Any, ...], int, Build]:
    """Which model it is, its parameters, its layers, its steps, and how it is evaluated."""
    if type(model) is GCN and type(model.conv1) is type(model.conv2) is SparseGCNConv:
        name = model.config["activation"]
        if name in SLOPES and model.activation is ACTIVATIONS[name]:
            return (GCN, name), GCN_WEIGHTS, (model.conv1, model.conv2), 2, partial(_GCN, name)
    if type(model) is SGC and type(model.propagate) is SparseAPPNP:
        steps = model.propagate.K
        return (SGC, steps), ("linear.weight",), (model.propagate,), steps, _SGC
    return None, (), (), 0, _SGC


class _Features:
    """X, sparse where it is sparse enough."""

    def __init__(self, x: Tensor, sparse: Matrix | None) -> None:
        self._x, self._sparse = x, sparse

    def same(self, other: "_Features") -> bool:
        """Whether these are the same tensors."""
        return self._x is other._x and self._sparse is other._sparse

    def times(self, dense: Tensor) -> Tensor:
        """X D."""
        return self._x @ dense if self._sparse is None else multiply(self._sparse, dense)

    def flipped(self, dense: Tensor) -> Tensor:
        """Xᵀ D."""
        return self._x.T @ dense if self._sparse is None else multiply(self._sparse, dense, flipped=True)

    def sent(self, matrix: Matrix, width: int) -> Tensor | None:
        """A X, where that is cheaper than A (X D) for a D of so many columns."""
        return multiply(matrix, self._x) if self._sparse is None and self._x.size(1) < width else None


class _Sent:
    """A X times something, with messages as wide as the features where those are narrower than what is asked for."""

    def __init__(self, matrix: Matrix, x: _Features, width: int) -> None:
        self._matrix, self._x = matrix, x
        self._known = x.sent(matrix, width)

    def times(self, dense: Tensor) -> Tensor:
        """A X D."""
        return multiply(self._matrix, self._x.times(dense)) if self._known is None else self._known @ dense

    def flipped(self, dense: Tensor) -> Tensor:
        """Xᵀ Aᵀ D."""
        if self._known is not None:
            return self._known.T @ dense
        return self._x.flipped(multiply(self._matrix, dense, flipped=True))


GCN_WEIGHTS = ("conv1.bias", "conv1.lin.weight", "conv2.bias", "conv2.lin.weight")


SLOPES: dict[str, Callable[[Tensor], Tensor]] = {"relu": lambda h: h > 0, "tanh": lambda h: (h * h).neg_().add_(1)}
"""How activations rise, by their own values."""


class _GCN:
    """Â σ(Â X W₁ᵀ + b₁) W₂ᵀ + b₂, of which three matrices as wide as the hidden layer are held at a time."""

    def __init__(self, activation: str, x: _Features, steps: Sequence[Matrix], weights: Weights) -> None:
        bias1, weight1, bias2, self._weight2 = (weights[name] for name in GCN_WEIGHTS)
        self._first, self._second = _Sent(steps[0], x, weight1.size(0)), steps[1]
        self._hidden = ACTIVATIONS[activation](self._first.times(weight1.T).add_(bias1))
        self.outputs = multiply(self._second, self._hidden @ self._weight2.T) + bias2
        self._slope = SLOPES[activation](self._hidden)

    def push(self, direction: Weights) -> Tensor:
        bias1, weight1, bias2, weight2 = (direction[name] for name in GCN_WEIGHTS)
        hidden = self._first.times(weight1.T).add_(bias1).mul_(self._slope)
        return multiply(self._second, hidden @ self._weight2.T + self._hidden @ weight2.T) + bias2

    def pull(self, u: Tensor) -> dict[str, Tensor]:
        last = multiply(self._second, u, flipped=True)
        hidden = (last @ self._weight2).mul_(self._slope)
        first = self._first.flipped(hidden)
        return dict(zip(GCN_WEIGHTS, (hidden.sum(0), first.T, u.sum(0), last.T @ self._hidden), strict=True))

    def push_all(self, directions: Weights) -> Tensor:
        bias1, weight1, bias2, weight2 = (directions[name] for name in GCN_WEIGHTS)
        hidden = self._first.times(weight1.flatten(0, 1).T).view(-1, *bias1.shape)
        hidden = hidden.add_(bias1).mul_(self._slope[:, None])
        sent = (self._hidden @ weight2.flatten(0, 1).T).view(-1, *bias2.shape) + hidden @ self._weight2.T
        return multiply(self._second, sent.flatten(1)).view(-1, *bias2.shape) + bias2

    def pull_all(self, u: Tensor) -> dict[str, Tensor]:
        last = multiply(self._second, u.flatten(1), flipped=True)
        hidden = (last.view(-1, *u.shape[1:]) @ self._weight2).mul_(self._slope[:, None])
        first = self._first.flipped(hidden.flatten(1))
        second = (last.T @ self._hidden).view(*u.shape[1:], -1)
        found = hidden.sum(0), first.T.reshape(*hidden.shape[1:], -1), u.sum(0), second
        return dict(zip(GCN_WEIGHTS, found, strict=True))


class _SGC:
    """Âᴷ X Wᵀ."""

    def __init__(self, x: _Features, steps: Sequence[Matrix], weights: Weights) -> None:
        self._steps, self._x = steps, x
        self.outputs = self.push(weights)

    def push(self, direction: Weights) -> Tensor:
        found = self._x.times(direction["linear.weight"].T)
        for matrix in self._steps:
            found = multiply(matrix, found)
        return found

    def pull(self, u: Tensor) -> dict[str, Tensor]:
        for matrix in reversed(self._steps):
            u = multiply(matrix, u, flipped=True)
        return {"linear.weight": self._x.flipped(u).T}

    def push_all(self, directions: Weights) -> Tensor:
        many = directions["linear.weight"]
        return self.push({"linear.weight": many.flatten(0, 1)}).view(-1, *many.shape[:2])

    def pull_all(self, u: Tensor) -> dict[str, Tensor]:
        return {"linear.weight": self.pull(u.flatten(1))["linear.weight"].reshape(*u.shape[1:], -1)}

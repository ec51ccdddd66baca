"""The built-in models as steps of propagation with functions of single rows between them.

Of these the change that a removal makes can be followed through the layers, row by row, without a copy of anything that
does not change (:mod:`unweave.inspection.ripples`). It is a privilege of speed alone; any other module is served by
:mod:`unweave.inspection.copies`.

Values are ``[rows, 1 + directions, width]``: what a row is, and how it moves with the parameters along some directions.
The latter are derivatives, carried along by the product and chain rules (forward mode): nothing is compared with itself
a little beside, so no digits are lost, and the activations are evaluated once for all directions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.data import Data

from unweave._core.sparse import Matrix, multiply
from unweave.models.activation import ACTIVATIONS
from unweave.models.gcn import GCN, SparseGCNConv
from unweave.models.sage import SAGE, SparseSAGEConv
from unweave.models.sgc import SGC, SparseAPPNP
from unweave.models.sign import SIGN, SparseMeanConv
from unweave.models.stack import Stack
from unweave.models.structure import bare, entering, features
from unweave.tasks.task import Task

__all__ = ["Form", "form_of"]

State = tuple[Tensor, ...]
"""What is known of some rows between two steps, each ``[rows, 1 + directions, width]``."""

Before = Callable[[], State]
"""The state of some rows before a step, for who needs it."""

Weights = Mapping[str, Tensor]

MANY = 2**16
"""Numbers from which features are worth a look at how sparse they are."""


class Form(ABC):
    """A model as ``enter``, then so many times ``message``, propagation and ``after``, then ``leave``.

    Args:
        weights: By name, the parameters and then each direction, ``[1 + directions, …]``.
        unit: Whether rows of features are taken at length 1.

    Attributes:
        matrix: What messages are propagated by: ``"normalised"`` for D^-½ (A + I) D^-½, ``"mean"`` for D⁻¹ A.
        steps: Steps of propagation.
        roots: Whether a row takes part in its own next step, beside what it hears.
        gains: Of every step, how far what a row sends next, or its output, moves at most as what it hears moves by 1.
        size: 1 + directions.
        first: The names of the weights that the model meets first.
        straight: From how many distances a direct way reads features, after whatever else a state has: what is to be
            sent of it, and what is to be added after each step to come.
    """

    matrix: Literal["normalised", "mean"]
    steps: int
    roots: bool = False
    gains: Sequence[float]

    def __init__(self, weights: Weights, unit: bool, first: Sequence[str], direct: tuple[float, list[str]]) -> None:
        gain, straight = direct
        self._weights, self._unit, self.first = dict(weights), unit, [*first, *straight]
        self._weights.update((name, gain * weights[name]) for name in straight)
        self.size, self.straight = next(iter(weights.values())).size(0), len(straight)

    def enter(self, x: Tensor) -> State:
        """Some rows of features, ``[rows, width]``, as the first step takes them; of a whole graph as sparse as it is.

        They are X Wᵀ of the weights that the model meets first, side by side.
        """
        weight = torch.cat([self._weights[name] for name in self.first], dim=1)
        x = entering(x, unit=self._unit)
        sparse = _sparse(x)
        flat = weight.flatten(0, 1).mT
        product = x @ flat if sparse is None else multiply(sparse, flat)
        widths = [self._weights[name].size(1) for name in self.first]
        return torch.split(product.view(-1, *weight.shape[:2]), widths, dim=-1)

    def fading(self, x: Tensor, entered: State, slopes: State) -> Tensor:
        """Σ_v x_vj ∂Φ/∂x_vj of every column j of all features, from the slopes of Φ by what they entered as.

        With E these slopes and D = E W, that is Σ_v x_vj D_vj = Σ_k W_kj (XᵀE)_jk. Where rows are taken at length 1,
        they only turn: what D has along a row goes.
        """
        weight, slope = torch.cat([self._weights[name] for name in self.first], dim=1), torch.cat(slopes, dim=-1)
        x = entering(x, unit=self._unit)
        sparse, flat = _sparse(x), slope.flatten(1)
        product = x.mT @ flat if sparse is None else multiply(sparse, flat, flipped=True)
        found = (product.view(-1, *slope.shape[1:]) * weight.permute(2, 0, 1)).sum(dim=(1, 2), dtype=torch.float64)
        if self._unit:
            along = (slope * torch.cat(entered, dim=-1)).sum(dim=(1, 2))
            found -= (x.square().mT @ along).double()
        return found

    def _product(self, rows: Tensor, names: Sequence[str]) -> Tensor:
        """Rows by some weights, side by side: (h W)˙ = ḣ W + h Ẇ."""
        weight = torch.cat([self._weights[name] for name in names], dim=1)
        moved = (rows[:, 0] @ weight[1:].flatten(0, 1).mT).view(-1, self.size - 1, weight.size(1))
        found = rows @ weight[0].mT
        found[:, 1:] += moved
        return found

    def _parted(self, step: int, state: State) -> tuple[State, State]:
        """A state before a step without the direct way, and that of the direct way."""
        left = self.straight - step if self.straight > 1 else self.straight
        return state[: len(state) - left], state[len(state) - left :]

    def _straight_on(self, step: int, heard: Tensor, width: int, state: Before) -> tuple[Tensor, State]:
        """What was heard beside so many columns of the direct way, and that way after the step."""
        if not self.straight:
            return heard, ()
        heard, passed = torch.split(heard, [heard.size(-1) - width, width], dim=-1)
        if self.straight == 1:
            return heard, (passed,)
        _, (_, own, *others) = self._parted(step, state())
        return heard, (passed + own, *others)

    @abstractmethod
    def message(self, step: int, state: State) -> Tensor:
        """What these rows send to their neighbours."""

    @abstractmethod
    def after(self, step: int, heard: Tensor, state: Before) -> State:
        """The rows once they have heard from their neighbours."""

    @abstractmethod
    def leave(self, state: State) -> Tensor:
        """The outputs of the rows."""


def _sparse(x: Tensor) -> Matrix | None:
    """Features as a sparse matrix, where they are many and that pays."""
    return features(x) if x.numel() > MANY else None


def _activated(activation: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """σ of some rows: σ(h)˙ = σ'(h) ḣ."""
    with torch.enable_grad():
        leaf = rows[:, 0] if rows.requires_grad else rows[:, 0].detach().requires_grad_()
        value = activation(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf, create_graph=rows.requires_grad)
    value = value if rows.requires_grad else value.detach()
    return torch.cat([value[:, None], rows[:, 1:] * slope[:, None]], dim=1)


def _gain(*weights: Tensor) -> float:
    """How much longer a row becomes at most by some weights side by side; activations are about 1 at their steepest."""
    return float(torch.linalg.matrix_norm(torch.cat([weight[0] for weight in weights]), 2))


class _Linear(Form):
    """Âᴷ X W."""

    matrix = "normalised"

    def __init__(self, weights: Weights, unit: bool, steps: int) -> None:
        super().__init__(weights, unit, ["linear.weight"], (1.0, []))
        self.steps, self.gains = steps, [1.0] * steps

    def message(self, step: int, state: State) -> Tensor:
        return state[0]

    def after(self, step: int, heard: Tensor, state: Before) -> State:
        return (heard,)

    def leave(self, state: State) -> Tensor:
        return state[0]


class _Wide(Form):
    """σ(Σₖ Pᵏ X Wₖ + b) V + c, by Horner's rule."""

    matrix = "mean"

    def __init__(self, weights: Weights, model: SIGN) -> None:
        self.steps, self._activation = len(model.distances) - 1, model.activation
        away = range(self.steps, -1, -1)
        straight = [f"direct.{k}.weight" for k in away if model.direct]
        first = [f"distances.{k}.weight" for k in away]
        super().__init__(weights, model.unit, first, (model.gain, straight))
        self.gains = [1.0] * (self.steps - 1) + [_gain(weights["last.weight"]) + bool(straight)]

    def message(self, step: int, state: State) -> Tensor:
        own, straight = self._parted(step, state)
        return torch.cat([own[0], *straight[:1]], dim=-1)

    def after(self, step: int, heard: Tensor, state: Before) -> State:
        heard, straight = self._straight_on(step, heard, self._weights["last.weight"].size(1), state)
        (_, own, *others), _ = self._parted(step, state())
        return (heard + own, *others, *straight)

    def leave(self, state: State) -> Tensor:
        h = _activated(self._activation, state[0] + self._weights["bias"])
        outputs = self._product(h, ["last.weight"]) + self._weights["last.bias"]
        return outputs + state[1] if self.straight else outputs


class _Stacked(Form):
    """Convolutions one after the other, each hidden layer with its own way to the output."""

    def __init__(self, weights: Weights, model: Stack, roots: bool) -> None:
        self.matrix, self.roots = "mean" if roots else "normalised", roots
        self._to, self._bias = ("lin_l.weight", "lin_l.bias") if roots else ("lin.weight", "bias")
        self._own = "lin_r.weight" if roots else None
        names = [name for name in (self._to, self._own) if name is not None]
        direct: tuple[float, list[str]] = (1.0, [])
        if model.direct is not None:
            farthest_first = reversed(range(len(model.direct.weights)))
            direct = model.direct.gain, [f"direct.weights.{n}.weight" for n in farthest_first]
        super().__init__(weights, model.unit, [f"conv1.{name}" for name in names], direct)
        self._activation = model.activation
        deeper, reads = ([f"{part}.{i}" for i in range(len(model.deeper))] for part in ("deeper", "reads"))
        self._hidden, self._reads = ["conv1", *deeper], ["conv2", *reads]
        self.steps = len(self._hidden) + 1
        nexts = ([f"{layer}.{name}" for layer in self._layers(step) for name in names] for step in range(1, self.steps))
        gains = (_gain(*(weights[name] for name in each)) for each in nexts)
        self.gains = [*(max(gain, 1.0) if self.straight else gain for gain in gains), 1.0 + bool(self.straight)]

    def _layers(self, step: int) -> list[str]:
        """The layers that a step belongs to: the read-out of the hidden layer before it, and the next hidden layer."""
        return [*([self._reads[step - 1]] if step else []), *(self._hidden[step : step + 1])]

    def _taken(self, step: int, rows: Tensor, name: str) -> Tensor:
        return self._product(rows, [f"{layer}.{name}" for layer in self._layers(step)])

    def message(self, step: int, state: State) -> Tensor:
        own, straight = self._parted(step, state)
        return torch.cat([own[0] if step == 0 else self._taken(step, own[0], self._to), *straight[:1]], dim=-1)

    def after(self, step: int, heard: Tensor, state: Before) -> State:
        classes = self._weights[f"conv2.{self._bias}"].size(-1)
        heard, straight = self._straight_on(step, heard, classes, state)
        heard = heard + torch.cat([self._weights[f"{layer}.{self._bias}"] for layer in self._layers(step)], -1)
        if self._own is not None:
            before, _ = self._parted(step, state())
            heard = heard + (before[1] if step == 0 else self._taken(step, before[0], self._own))
        if step == 0:
            return (_activated(self._activation, heard), *straight)
        outputs = heard[..., :classes] + (state()[1] if step > 1 else 0.0)
        if step == self.steps - 1:
            return (outputs + straight[0] if straight else outputs,)
        return (_activated(self._activation, heard[..., classes:]), outputs, *straight)

    def leave(self, state: State) -> Tensor:
        return state[0]


def form_of(model: nn.Module, data: Data, weights: Weights) -> Form | None:
    """A built-in model as steps of propagation, with derivatives; ``None`` for any other, or another graph.

    Args:
        model: The module.
        data: The graph.
        weights: By name, the parameters and the directions in which derivatives are taken, ``[1 + directions, …]``.
    """
    if not _fits(model, data) or {name for name, _ in model.named_parameters(remove_duplicate=False)} != set(weights):
        return None
    found: Form | None = None
    if type(model) is SGC and type(model.propagate) is SparseAPPNP and model.propagate.as_built:
        found = _Linear(weights, model.unit, int(model.propagate.K))
    elif type(model) is SIGN and type(model.step) is SparseMeanConv and _by_number(model.activation):
        as_built = model.step.aggr == "mean" and not model.step.combine_root
        found = _Wide(weights, model) if as_built else None
    elif isinstance(model, Stack) and type(model) in (GCN, SAGE) and not len(model.steps):
        layers: list[Any] = [model.conv1, model.conv2, *model.deeper, *model.reads]
        roots = type(model) is SAGE
        usual = _usual_roots if roots else _usual
        weighted = data.get("edge_weight") is not None
        as_built = all(map(usual, layers)) and _by_number(model.activation) and not (roots and weighted)
        found = _Stacked(weights, model, roots) if as_built else None
    return found


def _by_number(activation: Callable[[Tensor], Tensor]) -> bool:
    """Whether an activation is known to take each number by itself, as one that somebody put there need not."""
    return activation in ACTIVATIONS.values()


def _fits(model: nn.Module, data: Data) -> bool:
    """Whether a graph has no loops and nothing but features and weights, and the layers are as they were built."""
    plain = all(bare(part) and "forward" not in vars(part) and not is_parametrized(part) for part in model.modules())
    edges, more = data.edge_index, isinstance(data, Task) or data.get("edge_attr") is not None
    return plain and not more and data.x.dim() == 2 and not bool((edges[0] == edges[1]).any())


def _usual(layer: Any) -> bool:
    return type(layer) is SparseGCNConv and layer.as_built


def _usual_roots(layer: Any) -> bool:
    return type(layer) is SparseSAGEConv and layer.aggr == "mean" and not layer.normalize and not layer.project

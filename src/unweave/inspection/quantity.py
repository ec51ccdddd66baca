"""What is asked about: a number that a model has on a graph, whose change removals are scored by.

The ready-made ones are sums over nodes, q = Σ_v c_v ρ_v(outputs of v), so that a removal changes them only where it
changes an output. Labels of test nodes are never read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.errors import DataError, ModelError, RequestError, UnweaveError
from unweave.objective.losses import Loss

__all__ = ["AnyQuantity", "Gap", "Quantity", "quantity_of"]

Rows = Callable[[Tensor, Tensor], Tensor]
"""(outputs of some nodes, their ids) → one number each."""

Function = Callable[[Tensor, Data], Tensor]


@dataclass(frozen=True, eq=False)
class Gap:
    """The difference between two groups of nodes.

    Attributes:
        a: Mask of the first group, ``[nodes]``.
        b: Mask of the second.
        of: ``"loss"`` for the mean loss of the validation nodes of each group, or a class number for the mean
            probability of that class, over all nodes of each.
    """

    a: Tensor
    b: Tensor
    of: str | int = "loss"


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number that a model has on a graph.

    Attributes:
        name: As it was asked for.
        title: What it is, in words.
        unit: What it is measured in.
        weights: c, ``[nodes]``; of a function of the user's, none.
        rows: ρ.
        function: Of all outputs and the graph, for one of the user's.
        node: The node that it is about, where it is about one.
        worse: Whether more of it is worse, as of a loss.
        least: What it cannot be below, where that is known.
        most: What it cannot be above.
        below: What it means where it is below 0, where that means something.
    """

    name: str
    title: str
    unit: str
    weights: Tensor | None = None
    rows: Rows | None = None
    function: Function | None = None
    node: int | None = None
    worse: bool = True
    least: float = -math.inf
    most: float = math.inf
    below: str = ""

    def value(self, outputs: Tensor, data: Data, without: Tensor | None = None) -> Tensor:
        """The quantity, from the outputs of all nodes; without the part of some of them where these are given."""
        if self.function is not None:
            return self._of_function(outputs, data)
        assert self.weights is not None
        assert self.rows is not None
        weights = self.weights if without is None else self.weights.index_fill(0, without, 0)
        nodes = weights.nonzero().flatten()
        return (weights[nodes].to(outputs) * self.rows(outputs[nodes], nodes)).sum()

    def _of_function(self, outputs: Tensor, data: Data) -> Tensor:
        """What a function of the user's says, of copies: what it edits is its own."""
        assert self.function is not None
        try:
            found = self.function(outputs.clone(), data.clone())
        except UnweaveError:
            raise
        except Exception as error:
            raise ModelError(
                f"the function given as of=, {self.name}(outputs, data), raised {type(error).__name__}: {error}"
            ) from error
        return _scalar(found)


AnyQuantity = str | Gap | Function | Quantity
"""What ``of=`` takes."""


def _scalar(value: object) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ModelError(f"a quantity must be a function (outputs, data) → one floating-point number, got {got}")
    return value.reshape(())


def quantity_of(of: AnyQuantity, data: Data, loss: Loss, outputs: Tensor) -> Quantity:
    """What ``of=`` says, once it is known to make sense for this graph, loss and model.

    Args:
        of: ``"validation"``, ``"node:17"``, ``"class:3"``, a :class:`Gap`, or a function (outputs, data) → a number.
        data: The graph.
        loss: Per-node loss the model was trained with.
        outputs: The model's, of all nodes.

    Raises:
        RequestError: It is none of these, or names what there is not.
        DataError: The graph has nothing to measure it by.
    """
    if isinstance(of, Quantity):
        return of
    if isinstance(of, Gap):
        return _gap(of, data, loss, outputs)
    if isinstance(of, str):
        what, _, which = of.partition(":")
        if of == "validation":
            held = _held(data, loss)
            title, least = f"mean loss of {int(held.sum()):,} validation nodes", _least(loss)
            return Quantity(of, title, loss.unit, *_mean(held, data, loss), least=least)
        if what in ("node", "class") and which.isdecimal():
            return (_node if what == "node" else _class)(int(which), of, data, loss, outputs)
    elif callable(of):
        name = getattr(of, "__name__", type(of).__name__)
        found = Quantity(name, f"{name}(outputs, data)", "", function=of)
        slope = outputs.detach().requires_grad_()
        with torch.enable_grad():
            value = found.value(slope, data)
        if not value.requires_grad:
            raise ModelError(f"{name}(outputs, data) does not depend on the outputs, or not by torch operations")
        with torch.no_grad():
            once, twice = float(value.detach()), float(found.value(outputs.detach(), data))
        if not abs(once - twice) <= 1e-6 * max(abs(once), 1e-6):  # nor where one is undefined
            raise ModelError(
                f"{name}(outputs, data) of the same outputs was {once:.6g} and then {twice:.6g}: a quantity must not "
                "be random, nor undefined"
            )
        return found
    raise RequestError(
        f"of must be 'validation', 'node:17', 'class:3', an unweave.inspection.Gap or a function (outputs, data) → a "
        f"number, got {of!r}"
    )


def _held(data: Data, loss: Loss) -> Tensor:
    """The validation nodes whose label is there."""
    held = data.get("val_mask")
    if held is not None and loss.classes:
        held = held & (data.y >= 0)
    if held is None or not bool(held.any()):
        raise DataError(
            "the quantity is measured on validation nodes, and the graph has none; give it a val_mask with nodes that "
            "were not trained on, or ask of='node:17' or of a function of your own"
        )
    found: Tensor = held
    return found


def _least(loss: Loss) -> float:
    """What a mean of losses cannot be below; of a loss of the user's nobody knows."""
    return 0.0 if loss.classes else -math.inf


def _mean(nodes: Tensor, data: Data, loss: Loss) -> tuple[Tensor, Rows]:
    """The mean loss of some nodes."""
    return nodes.double() / int(nodes.sum()), lambda outputs, ids: loss(outputs, data.y[ids])


def _class(number: int, name: str, data: Data, loss: Loss, outputs: Tensor) -> Quantity:
    if not loss.classes:
        raise RequestError(f"of={name!r} asks for a class, and {loss.name} is no loss of classes")
    if number >= outputs.size(1):
        raise RequestError(f"of={name!r}: the model has classes 0 … {outputs.size(1) - 1}")
    held = _held(data, loss) & (data.y == number)
    if not bool(held.any()):
        raise RequestError(f"of={name!r}: no validation node has this class, so there is nothing to measure it by")
    title = f"mean loss of {int(held.sum()):,} validation nodes of class {number}"
    return Quantity(name, title, loss.unit, *_mean(held, data, loss), least=_least(loss))


def _node(node: int, name: str, data: Data, loss: Loss, outputs: Tensor) -> Quantity:
    if node >= outputs.size(0):
        raise RequestError(f"of={name!r}: the graph has nodes 0 … {outputs.size(0) - 1}")
    weights = torch.zeros(outputs.size(0), dtype=torch.float64, device=outputs.device)
    weights[node] = 1
    found = Quantity(name, "", "", weights, node=node, worse=False)
    flat = outputs[node].detach().reshape(-1)
    if loss.classes:
        first, second = flat.topk(2).indices.tolist()
        title = f"margin of node {node}: class {first}, which it is given, over class {second}"
        widest = float((outputs[:, first] - outputs[:, second]).detach().abs().max())
        below = f"it would no longer be class {first}"
        known = replace(found, title=title, unit="nats", least=-widest, most=widest, below=below)
        return replace(known, rows=lambda z, ids: z[:, first] - z[:, second])
    if flat.numel() == 1:
        return replace(found, title=f"output of node {node}", rows=lambda z, ids: z.reshape(-1))
    raise RequestError(
        f"of={name!r}: the model gives {flat.numel()} outputs that are no classes; say which by a function "
        "(outputs, data) → a number"
    )


def _gap(gap: Gap, data: Data, loss: Loss, outputs: Tensor) -> Quantity:
    size, masks = outputs.size(0), (gap.a, gap.b)
    for letter, mask in zip("ab", masks, strict=True):
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (size,):
            raise RequestError(f"Gap.{letter} must be a boolean mask of {size} nodes")
    if gap.of == "loss":
        held, what = _held(data, loss), "mean validation loss"
        masks, unit = (gap.a & held, gap.b & held), loss.unit

        def rows(z: Tensor, ids: Tensor) -> Tensor:
            return loss(z, data.y[ids])

    elif loss.classes and isinstance(gap.of, int) and 0 <= gap.of < outputs.size(1):
        column, what, unit = gap.of, f"mean probability of class {gap.of}", ""

        def rows(z: Tensor, ids: Tensor) -> Tensor:
            return torch.softmax(z, dim=-1)[:, column]

    else:
        raise RequestError(f"Gap.of must be 'loss' or the number of a class, got {gap.of!r}")
    counts = [int(mask.sum()) for mask in masks]
    if not all(counts):
        raise RequestError(
            f"each group of a Gap needs a node to measure it by, and they have {counts[0]} and {counts[1]}"
        )
    weights = masks[0].double() / counts[0] - masks[1].double() / counts[1]
    most = math.inf if gap.of == "loss" else 1.0
    title = f"gap in {what} between {counts[0]:,} and {counts[1]:,} nodes"
    return Quantity("gap", title, unit, weights, rows, least=-most, most=most)

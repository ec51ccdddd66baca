"""Graph convolutions one after the other, each hidden layer with its own way to the output."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from unweave.errors import ModelError
from unweave.models.activation import activation_of
from unweave.models.direct import Direct, gain_of
from unweave.models.sign import SparseMeanConv
from unweave.models.structure import entering

__all__ = ["Place", "Stack"]

Place = Literal["first", "between", "last"]
"""Of a layer: the first is given its inputs with the graph, the last gives the outputs."""


class Stack(nn.Module):
    """conv1, an activation, dropout and conv2; each further layer adds a read-out of its own to the outputs.

    What multiplies parameters three times has more than one minimum: under weight decay a way through three matrices
    that are all zero is one, however much it would be of use. That is why a third layer is not simply put between the
    two. With a read-out for every layer it is one more way to the output. Where it stands ``beside`` the first, on
    features from farther away, no way has more than two.

    Args:
        in_channels: Features of a node.
        out_channels: Classes.
        hidden: Hidden units.
        dropout: Probability, in training only.
        activation: One of :data:`~unweave.models.activation.ACTIVATIONS`.
        layers: Layers, at least 2.
        unit: Take every node's features at length 1. Weight decay then means the same on every graph.
        beside: Let the layers between start from the features beside the first, the third layer a step away (the mean
            over the neighbours), the fourth two, …, and not from each other.
        direct: How much a way from the features to the outputs without an activation counts
            (:class:`~unweave.models.direct.Direct`); 0 for none.
        convolution: A layer of so many inputs and outputs, at its place; by default the model's own.
    """

    layer: ClassVar[Callable[..., MessagePassing]]
    """The layer of a model that is built of one kind: of so many inputs and outputs, and ``given``."""

    roots: ClassVar[bool] = True
    """Whether a layer takes a node's own features beside its neighbours', so that the model reads every distance."""

    step: ClassVar[Callable[[], MessagePassing]] = SparseMeanConv
    """Makes a step of propagation without parameters, as a layer would take it."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 16,
        dropout: float = 0.5,
        activation: str = "relu",
        layers: int = 2,
        unit: bool = False,
        beside: bool = False,
        direct: float = 0.0,
        convolution: Callable[[int, int, Place], MessagePassing] | None = None,
    ) -> None:
        super().__init__()
        convolution = convolution or self._usual
        if layers < 2 or hidden < 1:
            raise ModelError(f"a model needs at least 2 layers and 1 hidden unit, got {layers} and {hidden}")
        self.config: dict[str, Any] = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "hidden": hidden,
            "layers": layers,
            "dropout": dropout,
            "activation": activation,
            "unit": unit,
            "beside": beside,
            "direct": gain_of(direct),
        }
        self.conv1 = convolution(in_channels, hidden, "first")
        self.conv2 = convolution(hidden, out_channels, "last")
        self.deeper = nn.ModuleList(
            convolution(in_channels, hidden, "first") if beside else convolution(hidden, hidden, "between")
            for _ in range(layers - 2)
        )
        self.reads = nn.ModuleList(convolution(hidden, out_channels, "last") for _ in range(layers - 2))
        self.steps = nn.ModuleList(SparseMeanConv() for _ in self.deeper if beside)
        read = range(layers + 1) if self.roots else [layers]
        self.direct = Direct(in_channels, out_channels, read, direct, type(self).step) if direct else None
        self.dropout, self.activation, self.unit = dropout, activation_of(activation), unit

    def _usual(self, size: int, width: int, place: Place) -> MessagePassing:
        return type(self).layer(size, width, given=place == "first")

    def through(self, x: Tensor, *graph: Tensor | None) -> Tensor:
        """Logits, ``[nodes, classes]``; ``graph`` is what every layer is given beside its inputs."""
        x = entering(x, unit=self.unit)
        h = self._between(self.conv1(x, *graph))
        outputs = self.conv2(h, *graph)
        for away, (convolution, read) in enumerate(zip(self.deeper, self.reads, strict=True)):
            h = convolution(x if self.steps else h, *graph)
            for _ in range(away + 1 if self.steps else 0):
                h = self.steps[away](h, *self._weighed(*graph))
            h = self._between(h)
            outputs = outputs + read(h, *graph)
        if self.direct is not None:
            outputs = outputs + self.direct(x, *self._weighed(*graph))
        return outputs  # type: ignore[no-any-return]

    def same_step(self) -> dict[str, str]:
        """Layers that take the same step, some beside others: what they have in common, by their names."""
        reads = {name: "reads" for name, _ in self.named_modules() if name == "conv2" or name.startswith("reads.")}
        firsts = ["conv1", *(f"deeper.{away}" for away in range(len(self.deeper)) if self.steps)]
        between = (
            [f"deeper.{away}" for away in range(len(self.deeper))] if not self.steps else ["steps"] * len(self.steps)
        )
        straight = [] if self.direct is None else [f"direct.steps.{away}" for away in range(len(self.direct.steps))]
        return (
            reads
            | dict.fromkeys(firsts, "firsts")
            | {f"steps.{away}": "steps" for away in range(len(self.steps))}
            | dict(zip(straight, ["firsts", "reads", *between], strict=False))
        )

    def _weighed(self, *graph: Tensor | None) -> tuple[Tensor | None, ...]:
        """What a step without parameters is given of what every layer is given."""
        return graph[:1]

    def _between(self, h: Tensor) -> Tensor:
        return F.dropout(self.activation(h), self.dropout, training=self.training)

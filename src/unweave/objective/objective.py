"""The training objective as a function of a flat parameter vector.

    L(θ) = Σ_{i∈D} ℓ(f_G(i; θ), y_i) + ½ Σ_k μ_k θ_k²,     μ_k = w_k · m

``w`` is the ``weight_decay`` of an optimiser that minimises the *mean* loss (:mod:`unweave.objective.decay`) and m what
that mean divides by, |D| or the sum of class weights, so that L is m times what was trained. Everything is evaluated in
eval mode: dropout off, BatchNorm with its running statistics.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property, lru_cache
from typing import NamedTuple

import torch
from torch import Size, Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.cuda_graphs import Function, record
from unweave._core.memo import remembered
from unweave.errors import DataError, ModelError
from unweave.graph.removal import remove
from unweave.models.sweep import sweep_of
from unweave.objective.derivatives import computed_once, no_derivative
from unweave.objective.losses import Loss, mean_of
from unweave.objective.parameters import split, trained
from unweave.objective.written_out import Sweeper, Swept
from unweave.request import Request
from unweave.tasks.task import Task

__all__ = ["Forward", "Held", "Objective", "Point", "call"]

Forward = Callable[[nn.Module, Data], Tensor]


def call(model: nn.Module, data: Data) -> Tensor:
    """``model(x, edge_index)``, with ``edge_weight`` and ``edge_attr`` by name where the graph has them.

    The graph of a :class:`~unweave.tasks.Task` knows by itself how a model is called.
    """
    if isinstance(data, Task):
        return data.call(model)
    present = tuple(key for key in ("edge_weight", "edge_attr") if data.get(key) is not None)
    wrong = _unfit(getattr(model.forward, "__func__", model.forward), inspect.ismethod(model.forward), present)
    if wrong:
        raise ModelError(f"{wrong.replace('MODEL', type(model).__name__)}, or pass forward=lambda model, data: …")
    # What forward raises by itself is its author's, with its own traceback.
    return model(data.x, data.edge_index, **{key: data[key] for key in present})  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _unfit(function: Callable[..., object], bound: bool, present: tuple[str, ...]) -> str:
    """What keeps a ``forward`` from being called with a graph, by the arguments it takes; empty where nothing does."""
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):  # written in another language: it will tell
        return ""
    accepted = list(takes.parameters)[bound:]
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.parameters.values())
    unused = [key for key in present if key not in accepted and not anything]
    if unused:
        names = f"the graph has {unused[0]} but MODEL.forward({', '.join(accepted)})"
        return f"{names} takes none; add the argument, delete data.{unused[0]}"
    try:
        takes.bind(*range(2 + bound), **dict.fromkeys(present))
    except TypeError as error:
        return f"MODEL cannot be called as model({', '.join(('x', 'edge_index', *present))}): {error}; write it so"
    return ""


class Objective:
    """L on one graph: the module, the training nodes, the loss and the weight decay.

    Args:
        model: The module; its parameters give only shapes and order, their values come with each call.
        data: The graph.
        loss: Per-node loss.
        decay: Weight decay of each entry of θ (:func:`~unweave.objective.decay.decay_vector`).
        forward: How the module is called.
        meter: Where passes are counted.
    """

    def __init__(self, model: nn.Module, data: Data, loss: Loss, decay: Tensor, forward: Forward, meter: Meter) -> None:
        self.model = model
        self.data = data
        self.loss = loss
        self.decay = decay
        self.forward = forward
        self.meter = meter
        self.nodes: Tensor = _where(data.train_mask)
        self.mass = loss.mass(self._targets)
        self.mu: Tensor = decay * self.mass
        self._caller = _Caller(model, forward)
        self.differentiated = False

    @cached_property
    def _shapes(self) -> dict[str, Size]:
        return {name: parameter.shape for name, parameter in trained(self.model).items()}

    @cached_property
    def _recorded(self) -> Function | None:
        """A recorded look, if there is one."""
        return None if self._sweeper is None else self._sweeper.borrowed()

    @cached_property
    def _sweeper(self) -> Sweeper | None:
        plain = self.forward is call and not isinstance(self.data, Task)
        way = sweep_of(self.model, self.data) if plain else None
        return None if way is None else Sweeper(way, self._shapes, self.nodes, self._targets, self.loss)

    @cached_property
    def _targets(self) -> Tensor:
        return _rows(self.data.y, self.nodes)

    def at(self, theta: Tensor) -> "Point":
        """Evaluate the model at θ, keeping what derivatives need."""
        return Point(self, theta)

    def of(self, model: nn.Module) -> "Objective":
        """The same objective for another module of the same architecture, with its own buffers."""
        return Objective(model, self.data, self.loss, self.decay, self.forward, self.meter)

    def anew(self, model: nn.Module, data: Data) -> "Objective":
        """The same for another module on another graph."""
        return Objective(model, data, self.loss, self.decay, self.forward, self.meter)

    kinds: tuple[str, ...] = ("edges", "nodes", "features")
    """Of what a deletion to rehearse with is drawn: the first of which there is something."""

    seen: Tensor | None = None
    """Mask of the nodes that outputs are computed for; ``None`` where they are for all."""

    @property
    def labels(self) -> Tensor:
        """Labels of all nodes."""
        labels: Tensor = self.data.y
        return labels

    @property
    def task(self) -> Task | None:
        """The graph, where it is that of a task."""
        return self.data if isinstance(self.data, Task) else None

    @property
    def stored_edges(self) -> int:
        """Stored edges of the graph."""
        return int(self.data.edge_index.size(1))

    @property
    def width(self) -> int:
        """Features of a node."""
        return int(self.data.x.size(1))

    def without(self, request: Request) -> "Objective":
        """The same objective on the graph without what a request names."""
        left = remove(self.data, request).data
        return Objective(self.model, left, self.loss, self.decay, self.forward, self.meter)

    def outputs(self, theta: Tensor) -> Tensor:
        """Model outputs of all nodes at θ, in eval mode."""
        self.model.eval()
        named = {f"model.{name}": piece for name, piece in self.split(theta).items()}
        with sdpa_kernel(SDPBackend.MATH):  # the other kernels of attention have no second derivative
            outputs: Tensor = functional_call(self._caller, named, (self.data,), tie_weights=self._tied)
        return outputs

    @cached_property
    def _tied(self) -> bool:
        """Whether a parameter has several names; torch looks for those in every call that does not say."""
        named = self.model.named_parameters
        return len(list(named(remove_duplicate=False))) != len(list(named()))

    def predict(self, model: nn.Module) -> Tensor:
        """Outputs of all nodes of a module as it is, in eval mode and without derivatives."""
        model.eval()
        with torch.no_grad():
            return self.forward(model, self.data)

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """A flat vector as the named parameters."""
        return split(self._shapes, theta)

    def swept(self, theta: Tensor) -> Swept | None:
        """The model evaluated at θ without autograd, where it is one that was written out."""
        return None if self._sweeper is None else self._sweeper.at(theta)

    def look(self, theta: Tensor) -> "Point":
        """Evaluate the model at θ with its gradient, and keep no graph of derivatives."""
        if self._sweeper is None and self._recorded is None:
            return self.at(theta).settle()
        self.meter.passes += 2
        return Point(self, theta, (self._recorded or self._look)(theta))

    def _look(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Outputs, losses and gradient of the summed loss."""
        if self._sweeper is None:
            point = self.at(theta).settle()
            return point.outputs, point.losses, point.loss_gradient()
        try:
            return self._sweeper.look(theta)
        except (RuntimeError, ValueError, IndexError, TypeError, ModelError):
            self.node_losses(self._sweeper.at(theta).all)  # says what is wrong with the loss, if that is it
            raise

    def record(self, theta: Tensor) -> str:
        """Make every later look a replay of one recorded now, where there is a GPU; returns whether, in words.

        Recording costs up to three looks, so it pays for who will take a dozen; a model that is written out is recorded
        once for the graph and for all that lose edges of it.
        """
        if self._recorded is not None:
            return "yes"
        passes = self.meter.passes
        found, whether, looks = record(self._look, theta) if self._sweeper is None else self._sweeper.record(theta)
        self._recorded = found if whether == "yes" else None
        self.meter.passes = passes + 2 * looks
        return whether

    @property
    def recorded(self) -> bool:
        """Whether a look is a replay."""
        return self._recorded is not None

    @property
    def written_out(self) -> bool:
        """Whether the model is one that is evaluated without autograd (:mod:`unweave.models.sweep`)."""
        return self._sweeper is not None

    def evaluate(self, theta: Tensor) -> tuple[float, Tensor]:
        """L(θ) and ∇L(θ)."""
        point = self.look(theta)
        return point.value, point.gradient()

    def node_losses(self, outputs: Tensor) -> Tensor:
        """The loss of each training node, from the outputs of all nodes."""
        with self._explaining(outputs):
            losses = self.loss(outputs.index_select(0, self.nodes), self._targets)
        return self._one_each(losses)

    @contextmanager
    def _explaining(self, outputs: Tensor) -> Iterator[None]:
        """Say what is wrong where the loss cannot take outputs and labels."""
        try:
            yield
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise DataError(
                f"the loss cannot take outputs of shape {tuple(outputs.shape)} with labels of shape "
                f"{tuple(self._targets.shape)} and type {self._targets.dtype}: {error}"
            ) from error

    def _one_each(self, losses: Tensor) -> Tensor:
        if losses.shape != self.nodes.shape:
            raise ModelError(
                f"the loss must give one number for each of {self.nodes.numel()} nodes, got shape "
                f"{tuple(losses.shape)}; use reduction='none', and over the outputs of a node "
                "the mean, or the sum where it was trained with the sum"
            )
        return losses

    def training_loss(self, model: nn.Module) -> Tensor:
        """The mean loss of a module as it is, in whatever mode it is in: what the optimiser sees."""
        self.meter.passes += 2
        return mean_of(self.node_losses(self.forward(model, self.data)), self.mass)

    def backward(self, model: nn.Module) -> Tensor:
        """Add the gradient of that to the parameters' own, as an optimiser takes it; returns the mean loss."""
        loss = self.training_loss(model)
        torch.autograd.backward(loss)
        return loss.detach()


class Held(NamedTuple):
    """Outputs of some nodes.

    Attributes:
        nodes: Which.
        outputs: Their outputs.
        size: How many nodes there are in all, of which other ranks have the rest.
    """

    nodes: Tensor
    outputs: Tensor
    size: int


class Point:
    """An objective evaluated at one θ; the forward pass is done once and kept.

    Attributes:
        objective: What is evaluated.
        theta: The parameters, a leaf of the graph of derivatives.
        outputs: Model outputs of all nodes.
        losses: Loss of each training node.
    """

    def __init__(self, objective: Objective, theta: Tensor, found: tuple[Tensor, ...] | None = None) -> None:
        self.objective = objective
        self.theta = theta.detach().clone().requires_grad_()
        if found is not None:
            self.outputs, self.losses, self._slope = found
            return
        self.outputs = objective.outputs(self.theta)
        objective.meter.passes += 1
        self.losses = objective.node_losses(self.outputs)

    @property
    def value(self) -> float:
        """L(θ)."""
        theta = self.theta.detach().double()
        return float(self.losses.detach().double().sum() + (self.objective.mu.double() * theta.square()).sum() / 2)

    def held(self) -> "Held":
        """What this process has of the outputs: all of them."""
        outputs = self.outputs.detach()
        return Held(torch.arange(outputs.size(0), device=outputs.device), outputs, outputs.size(0))

    def loss_change(self, known: Tensor) -> float:
        """By how much the summed loss differs from known losses of the training nodes, node by node in double."""
        return float((self.losses.detach().double() - known.double()).sum())

    def settle(self) -> "Point":
        """Take the gradient and let the graph of derivatives go: no other derivative can be taken then."""
        self._slope = self._differentiate(self.losses, keep=False)
        self.outputs, self.losses = self.outputs.detach(), self.losses.detach()
        return self

    def gradient(self) -> Tensor:
        """∇L(θ)."""
        return self._gradient

    @cached_property
    def _gradient(self) -> Tensor:
        return self._slope + self.objective.mu * self.theta.detach()

    def loss_gradient(self, mask: Tensor | None = None) -> Tensor:
        """Gradient of the summed loss, over the training nodes in a node mask where one is given."""
        return self._slope if mask is None else self._differentiate(self.losses[mask[self.objective.nodes]])

    @cached_property
    def _slope(self) -> Tensor:
        return self._differentiate(self.losses)

    def _differentiate(self, losses: Tensor, keep: bool = True) -> Tensor:
        self.objective.meter.passes += 1
        objective = self.objective
        try:
            with nullcontext() if objective.differentiated else computed_once(objective.model):
                (gradient,) = torch.autograd.grad(losses.sum(), self.theta, retain_graph=keep)
        except RuntimeError as error:
            raise no_derivative(
                objective.model,
                error,
                f"the model's output does not depend on its parameters ({error}); "
                "does forward= use the model it is given?",
            ) from error
        objective.differentiated = True
        return gradient


class _Caller(nn.Module):
    """Lets :func:`functional_call` swap the parameters of a module that is called by ``forward(model, data)``."""

    def __init__(self, model: nn.Module, how: Forward) -> None:
        super().__init__()
        self.model = model
        self.how = how

    def forward(self, data: Data) -> Tensor:
        return self.how(self.model, data)


@remembered
def _where(mask: Tensor) -> Tensor:
    """The numbers of the nodes in a mask."""
    return mask.nonzero().flatten()


@remembered
def _rows(labels: Tensor, nodes: Tensor) -> Tensor:
    """The labels of some nodes."""
    return labels[nodes]

"""What work on a part of the graph rests on, checked once for a model and its graph; and v from that part alone."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave._core.document import canonical_json, document_digest
from unweave.errors import (
    ClassLossError,
    DivergenceError,
    MethodError,
    RequestError,
)
from unweave.graph.neighbourhood import Border, halo
from unweave.graph.region import influenced_region
from unweave.graph.removal import Removal
from unweave.graph.view import GraphView, as_view, digest_of, labels_of
from unweave.models.reach import Reach
from unweave.objective.decay import decays_in
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward, Objective

__all__ = ["Locality", "Pull", "counted", "local_pull", "setting_of"]


NOTHING_LESS = "no prediction comes from less than the whole graph"
"""Why requests to a model cannot be deferred on a small or dense graph."""


@dataclass(frozen=True)
class Locality:
    """What was found out about a model on a graph, so that a request need not look at all of it.

    Attributes:
        reach: The message-passing steps of the model.
        border: How the rim of a halo comes to its degrees.
        training_nodes: How many there are.
        mass: What their mean loss divides by.
        classes: Training nodes of each class, for class labels.
        setting: Names of loss and forward, the weight decay of each parameter, and a digest of the model's buffers.
        refusal: Why no request can be carried out on a part of the graph, where none can.
        graph: The graph. It is not stored with the rest; a run has it.
        functions: Loss and forward. They are not stored either.
    """

    reach: Reach
    border: Border
    training_nodes: int
    mass: float
    classes: Mapping[str, int]
    setting: Mapping[str, str]
    refusal: str | None = None
    graph: GraphView | None = None
    functions: tuple[Loss, Forward] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the graph, as a JSON document."""
        plain = replace(self, graph=None, functions=None, classes=dict(self.classes), setting=dict(self.setting))
        return {key: value for key, value in asdict(plain).items() if key not in ("graph", "functions")}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Locality":
        """Read what :meth:`to_dict` wrote."""
        return cls(**document | {"reach": Reach(**document["reach"])})

    def on(self, graph: Data | GraphView, loss: Loss, forward: Forward, *, recount: bool = True) -> "Locality":
        """The same model on a graph of which more may be gone; where no label is, there is nothing to count anew."""
        labels = labels_of(graph)
        numbers = counted(labels.y[labels.train_mask], loss) if recount else {}
        return replace(self, graph=as_view(graph), functions=(loss, forward), **numbers)

    def knows(self, data: Data | GraphView, loss: Loss, forward: Forward) -> bool:
        """Whether these are the graph, of the same untouched tensors, and the functions this was found with."""
        same = self.functions is not None and self.functions[0] == loss and self.functions[1] is forward
        if not same or self.graph is None or not self.graph.untouched:
            return False
        return self.graph.holds(data) if isinstance(data, Data) else data is self.graph

    def view_of(self, graph: Data | GraphView) -> GraphView:
        """The view that stands for a graph, if that is the one this was found on.

        A graph made of the same tensors is known by them; of any other every byte is compared.
        """
        if self.graph is None:
            raise MethodError("prepared= knows no graph; open the run that it belongs to, or call unweave.prepare")
        self.graph.check_untouched()
        if graph is self.graph or (isinstance(graph, Data) and self.graph.holds(graph)):
            return self.graph
        if digest_of(graph) == digest_of(self.graph):
            return self.graph
        raise MethodError("prepared= belongs to another graph; give the one it was made for, or call unweave.prepare")

    def check_setting(self, model: nn.Module, loss: Loss, decay: Tensor, forward: Forward) -> None:
        """The loss, weight decay and forward are those that were prepared with; by name where they were read."""
        if self.functions is not None:
            for key, known, given in zip(("loss", "forward"), self.functions, (loss, forward), strict=True):
                if known != given:
                    raise MethodError(
                        f"{key}= is not what it was when prepared= was made; give the same, or prepare anew"
                    )
        for key, value in setting_of(model, loss, decays_in(model, decay), forward).items():
            if self.setting.get(key) != value:
                raise MethodError(f"{key}= is not what it was when prepared= was made; give the same, or prepare anew")

    def of_model(self, model: nn.Module) -> "Locality":
        """The same of a model that got rows for new nodes, which nothing trained on uses."""
        return replace(self, setting={**self.setting, "model": _digest_of(model)})

    def without(self, taken: Removal, after: GraphView, loss: Loss, *, allow_class_loss: bool) -> "Locality":
        """The counts once a request is carried out; one that takes too much is refused."""
        assert self.graph is not None
        gone = taken.labels[self.graph.in_training(taken.labels)]
        if gone.numel() == self.training_nodes:
            raise RequestError(
                "the request takes every training node, so no model remains that retraining could give; "
                "delete the model instead"
            )
        classes = dict(self.classes)
        for label in self.graph.base.y[gone].tolist() if classes else []:
            classes[str(label)] -= 1
        lost = [label for label, count in classes.items() if not count]
        if lost and not allow_class_loss:
            raise ClassLossError(
                f"the request takes the last training node of class {', '.join(lost)}; "
                "if that is meant, say so with allow_class_loss=True (--allow-class-loss)"
            )
        classes = {label: count for label, count in classes.items() if count}
        mass = self.mass - loss.mass(self.graph.base.y[gone])
        return replace(self, graph=after, training_nodes=self.training_nodes - gone.numel(), mass=mass, classes=classes)


@dataclass(frozen=True)
class Pull:
    """The gradient of the forgotten loss, and what it was computed from.

    Attributes:
        v: ∇ΔL(θ0).
        region: Ids of the nodes whose prediction can change.
        sizes: How many of them are reached first after 0, 1, 2, … steps.
        trained: How many of them are training nodes.
        looked: What was looked at, as a receipt has it: the halo, or rows.
    """

    v: Tensor
    region: Tensor
    sizes: tuple[int, ...]
    trained: int
    looked: dict[str, int]


def local_pull(
    model: nn.Module,
    theta: Tensor,
    taken: Removal,
    before: Locality,
    after: Locality,
    *,
    loss: Loss,
    decay: Tensor,
    forward: Forward,
    meter: Meter,
    slope: Callable[..., Tensor] | None = None,
) -> Pull:
    """v = ∇L0(θ) − ∇L'(θ) from the nodes whose loss can change: everywhere else both are the same.

    Args:
        model: The module, in eval mode.
        theta: Where to take the gradients.
        taken: What the request takes.
        before: The graph before it.
        after: The graph after it.
        loss: Per-node loss.
        decay: Weight decay per parameter.
        forward: How the module is called.
        meter: Where passes are counted, as shares of the graph.
        slope: The gradient of some nodes' loss on a view, for who has it without a halo.
    """
    old, new = before.graph, after.graph
    assert old is not None
    assert new is not None
    region = influenced_region(old, taken, before.reach)
    roots = torch.unique(torch.cat([region.nodes, taken.labels]))
    roots = roots[old.in_training(roots)]
    inner = Meter(meter.device)
    if slope is not None:
        gradients = [slope(model, theta, roots, view, loss, decay, inner) for view in (old, new)]
        meter.passes += inner.passes * roots.numel() / max(1, before.training_nodes)
        looked = {"rows": roots.numel()}
    else:
        gradients, looked = _by_halo(model, theta, roots, before, after, loss, decay, forward, inner)
        meter.passes += inner.passes * looked["halo_nodes"] / old.size
    v = gradients[0] - gradients[1]
    if not bool(torch.isfinite(v).all()):
        raise DivergenceError(
            "the gradient of the objective is not finite at the trained parameters; look for a division by zero, a "
            "logarithm or a square root of zero in the model or the loss"
        )
    if float(v.norm()) <= 10 * torch.finfo(v.dtype).eps * float(gradients[0].norm()):
        v = torch.zeros_like(v)
    v = v + (before.mass - after.mass) * decay * theta
    return Pull(v, region.nodes, region.sizes, int(old.in_training(region.nodes).sum()), looked)


def _by_halo(
    model: nn.Module,
    theta: Tensor,
    roots: Tensor,
    before: Locality,
    after: Locality,
    loss: Loss,
    decay: Tensor,
    forward: Forward,
    meter: Meter,
) -> tuple[list[Tensor], dict[str, int]]:
    """The gradients of some nodes' summed loss before and after, on the part of the graph that these depend on."""
    assert before.graph is not None
    part, gradients = halo(before.graph, roots, before.reach, before.border), []
    for view in (before.graph, after.graph):
        assert view is not None
        objective = Objective(model, part.data(view), loss, decay, forward, meter)
        some = objective.nodes.numel() > 0
        gradients.append(objective.look(theta).loss_gradient() if some else torch.zeros_like(theta))
    return gradients, {"halo_nodes": part.nodes.numel(), "halo_edges": part.edges.numel()}


def counted(labels: Tensor, loss: Loss) -> dict[str, Any]:
    """Training nodes, in all and of each class, and what their mean loss divides by."""
    classes: dict[str, int] = {}
    if loss.classes:
        known, numbers = torch.unique(labels, return_counts=True)
        classes = {str(label): number for label, number in zip(known.tolist(), numbers.tolist(), strict=True)}
    return {"training_nodes": labels.size(0), "mass": loss.mass(labels), "classes": classes}


def setting_of(model: nn.Module, loss: Loss, decay: list[float | str], forward: Forward) -> dict[str, str]:
    """What an objective is made of beside parameters and graph, in a form that can be stored and compared.

    Args:
        model: The module.
        loss: Per-node loss.
        decay: Weight decay of each parameter, as its type has it.
        forward: How the module is called.
    """
    return {
        "loss": canonical_json({**loss.settings, "function": _name(loss.function)}),
        "forward": _name(forward),
        "weight_decay": str(decay),
        "buffers": tensor_digest(model.named_buffers()),
        "model": _digest_of(model),
    }


def _digest_of(model: nn.Module) -> str:
    return document_digest([_plain(module) for module in model.modules()])


def _plain(module: nn.Module) -> dict[str, Any]:
    """What a module is set to beside its parameters."""
    kinds = (str, int, float, bool, type(None))
    own = {key: repr(value) for key, value in vars(module).items() if isinstance(value, kinds) and key != "training"}
    return {"type": type(module).__qualname__, **own}


def _name(function: object) -> str:
    """What a function is called, and where; a method or an instance goes by its type."""
    if inspect.isfunction(function):
        return f"{function.__module__}.{function.__qualname__}"
    return f"{type(function).__module__}.{type(function).__qualname__}"

"""What is inspected: a trained model on its graph, checked, with the direction that one quantity gives."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.memory import MIB
from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.graph.edit import attributes
from unweave.graph.removal import remove
from unweave.inspection.copies import Copies
from unweave.inspection.direction import Direction
from unweave.inspection.forms import Form, form_of
from unweave.inspection.leverage import Leverage, find_leverage
from unweave.inspection.quantity import Quantity
from unweave.inspection.removals import Removals, edges_apart, node_removals
from unweave.inspection.ripples import Ripples
from unweave.inspection.scoring import Engine, Scorer
from unweave.models.reach import Reach
from unweave.objective.checks import rounding
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import duplicate, load_flat, trained
from unweave.request import Request

__all__ = ["Subject"]

TRIED = 3
"""Removals of each kind that copies of neighbourhoods are checked by, on the whole graph."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained model on its graph, and the direction of a quantity.

    Attributes:
        objective: L0.
        theta: θ0.
        quantity: q.
        direction: s = H⁻¹∇q.
        prepared: What is known of the curvature.
        reach: How far the model passes messages.
        memory_mib: MiB that a chunk of removals may take.
        width: Outputs of a node.
    """

    objective: Objective
    theta: Tensor
    quantity: Quantity
    direction: Direction
    prepared: Prepared
    reach: Reach
    memory_mib: float
    width: int

    @cached_property
    def h(self) -> float:
        """The length along s at which derivatives are taken: where truncation and rounding are about as large."""
        small = float(torch.finfo(self._double.x.dtype).eps ** (1 / 3))
        return small * max(float(self.theta.norm()), 1e-6) / max(float(self.direction.s.norm()), 1e-30)

    @cached_property
    def data(self) -> Data:
        """The graph, in double precision where the model can be."""
        return self._double

    @cached_property
    def _exact(self) -> bool:
        """Whether the model can be evaluated in double precision."""
        model = duplicate(self.objective.model).double().eval()
        try:
            with torch.no_grad():
                self.objective.forward(model, _doubled(self.objective.data))
        except Exception:  # a module of anyone's may have its type written down
            return False
        return True

    @cached_property
    def _double(self) -> Data:
        return _doubled(self.objective.data) if self._exact else self.objective.data

    @cached_property
    def _beside(self) -> list[nn.Module]:
        """The model at θ + h s and at θ − h s."""
        theta, s = self.theta.to(self._double.x.dtype), self.direction.s.to(self._double.x.dtype)
        return [self._model_at(theta + sign * self.h * s) for sign in (1, -1)]

    def _model_at(self, theta: Tensor) -> nn.Module:
        model = duplicate(self.objective.model).eval()
        model = model.double() if self._exact else model
        load_flat(model, theta)
        return model

    def outputs(self, data: Data) -> list[Tensor]:
        """The outputs on some graph at θ + h s and at θ − h s."""
        self.objective.meter.passes += 2
        with torch.no_grad():
            return [self.objective.forward(model, data) for model in self._beside]

    def outputs_with_slopes(self, data: Data) -> list[Tensor]:
        """The same, with what derivatives by the graph need."""
        self.objective.meter.passes += 4
        return [self.objective.forward(model, data) for model in self._beside]

    @cached_property
    def scorer(self) -> Scorer:
        """What scores removals."""
        objective, s = self.objective, self.direction.s.double()
        decay, theta = objective.decay.double(), self.theta.double()
        return Scorer(
            self.data,
            objective.loss,
            self.quantity,
            self.outputs(self.data),
            lambda: self.engine,
            lambda: self.leverage,
            self.pushes,
            self.pushed,
            h=self.h,
            along=float((decay * theta) @ s),
            slope=float(self.prepared.gradient.double() @ s),
            mass=objective.mass,
            memory_mib=self.memory_mib,
            meter=objective.meter,
        )

    @property
    def leverage_mib(self) -> float:
        """MiB that what is known of how training nodes move takes."""
        each = self.width * (TUNING.inspection.samples + 2 * self.width)
        return (self.objective.nodes.numel() * each * 8 + TUNING.inspection.samples * self.theta.nbytes) / MIB

    @cached_property
    def leverage(self) -> Leverage | None:
        """How freely every training node moves its own output; nothing where that takes too much memory."""
        if self.leverage_mib > self.memory_mib:
            return None
        with torch.enable_grad():
            return find_leverage(self.objective, self.theta, self.prepared, self.direction.damping)

    def pushes(self, removals: Removals, keys: Tensor) -> Tensor:
        """J' x of some nodes of removals, given by sorted keys, by all x, ``[keys, samples, outputs]``."""
        return self._differences(lambda engine: engine.at(removals, keys))

    def pushed(self, nodes: Tensor) -> Tensor:
        """J x of some nodes on the graph as it is."""
        return self._differences(lambda engine: [z[nodes] for z in engine.whole])

    def _differences(self, outputs: Callable[[Engine], Sequence[Tensor]]) -> Tensor:
        """Derivatives of some outputs along the directions of the leverage: differences of outputs at θ and beside."""
        found = []
        for engine, lengths in self._engines_beside():
            with torch.no_grad():
                found += _quotients(outputs(engine), lengths)
        return torch.stack(found, dim=1)

    def _engines_beside(self) -> Iterator[tuple[Engine, list[float]]]:
        """What finds outputs at θ and beside it, along as many directions at once as memory allows; kept if all."""
        assert self.leverage is not None
        numbers = self.memory_mib * MIB / self.data.x.element_size() / int(self.data.num_nodes) / 4
        widest = max([self.width, *(value.shape[0] for value in trained(self.objective.model).values() if value.dim())])
        most = max(1, int(numbers / widest))
        if most < self.leverage.directions.size(0):
            for models, lengths in self._models_beside(most):
                yield self._engine_at(models), lengths
            return
        if "_kept" not in vars(self):
            models, lengths = next(self._models_beside(most))
            vars(self)["_kept"] = self._engine_at(models), lengths
        yield vars(self)["_kept"]

    def _models_beside(self, most: int) -> Iterator[tuple[list[nn.Module], list[float]]]:
        """The model at θ and beside it along some directions of the leverage, with the lengths along these."""
        assert self.leverage is not None
        theta = self.theta.to(self.data.x.dtype)
        for some in torch.split(self.leverage.directions.to(theta), most):
            lengths = torch.finfo(theta.dtype).eps ** 0.5 * theta.norm() / some.norm(dim=1).clamp(min=1e-30)
            yield [self._model_at(point) for point in (theta, *(theta + lengths[:, None] * some))], lengths.tolist()

    @cached_property
    def engine(self) -> Engine:
        """What finds the outputs that removals change, at θ + h s and at θ − h s."""
        self.objective.meter.passes += 2
        form = self._form(self._beside)
        if form is not None:
            return Ripples(self.data, form, self.scorer.slopes())
        if self.reach.steps is None:
            raise ModelError(
                f"how far the messages of this model travel is not known ({self.reach.source}), and without that nodes "
                "and edges cannot be scored side by side; say it, hops=2, or ask for labels and groups, which need not "
                "know"
            )
        found = self._copies(self._beside)
        self._try(found)
        return found

    def _engine_at(self, models: list[nn.Module]) -> Engine:
        """What finds them at other parameters."""
        form = self._form(models)
        self.objective.meter.passes += len(models)
        return self._copies(models) if form is None else Ripples(self.data, form)

    def _form(self, models: list[nn.Module]) -> Form | None:
        if self.objective.forward is not call or not self._exact:
            return None
        weights = [{name: p.detach() for name, p in model.named_parameters()} for model in models]
        return form_of(models[0], self.data, weights)

    def _copies(self, models: list[nn.Module]) -> Copies:
        return Copies(self.data, self.reach, [_caller(self.objective.forward, model) for model in models])

    def _try(self, engine: Engine) -> None:
        """Copies of neighbourhoods give what the whole graph gives, or the model is not what its layers tell."""
        data, generator = self.data, torch.Generator().manual_seed(0)
        nodes = torch.randperm(int(data.num_nodes), generator=generator)[:TRIED].to(data.x.device)
        pairs = edges_apart(data)[0].t()
        pairs = pairs[torch.randperm(pairs.size(0), generator=generator)[:TRIED].to(data.x.device)]
        asked: list[tuple[Removals, list[Request]]] = [
            (node_removals(data, nodes), [Request(nodes=[node]) for node in nodes.tolist()]),
            (edges_apart(data, pairs)[1], [Request(edges=[(a, b)]) for a, b in pairs.tolist()]),
        ]
        for removals, requests in asked:
            if not requests:
                continue
            which, at, rows, _ = engine.changed(removals)
            for number, request in enumerate(requests):
                wanted = self.outputs(remove(data, request).data)[0]
                found, mine = engine.whole[0].clone(), which == number
                found[at[mine]] = rows[0][mine]
                apart = ((found - wanted).abs() > rounding(wanted)).reshape(wanted.size(0), -1).any(dim=1)
                if bool(apart.any()):
                    raise ModelError(
                        f"the output of node {int(apart.nonzero()[0])} after forgetting {request.describe()} depends "
                        f"on more than the {self.reach.steps} hops of {self.reach.source}; say how far messages "
                        "travel, hops=…, where it is more"
                    )


def _quotients(outputs: Sequence[Tensor], lengths: Sequence[float]) -> list[Tensor]:
    """Derivatives from outputs at θ and at some lengths beside it."""
    here, *beside = (z.double().flatten(1) if z.dim() > 1 else z.double()[:, None] for z in outputs)
    return [(z - here) / length for z, length in zip(beside, lengths, strict=True)]


def _caller(forward: Callable[[nn.Module, Data], Tensor], model: nn.Module) -> Callable[[Data], Tensor]:
    return lambda data: forward(model, data)


def _doubled(data: Data) -> Data:
    """The graph with what is given to layers in double precision."""
    found = copy.copy(data)
    for key in dict.fromkeys(name for names in attributes(data) for name in names):
        value = data[key]
        if isinstance(value, Tensor) and value.dtype == torch.float32:
            found[key] = value.double()
    return found

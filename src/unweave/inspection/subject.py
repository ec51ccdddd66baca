"""What is inspected: a trained model on its graph, checked, with the direction that one quantity gives."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from unweave._core.compat import leaves
from unweave._core.memory import MIB
from unweave._core.tuning import TUNING
from unweave.curvature.prepared import Prepared
from unweave.errors import ModelError
from unweave.graph.edit import attributes
from unweave.graph.removal import remove
from unweave.inspection.answers import Answers, flat
from unweave.inspection.closer import Closer
from unweave.inspection.copies import Copies
from unweave.inspection.counted import Counted
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
from unweave.training.adam import Progress

__all__ = ["Subject"]

TRIED = 3
"""Removals of each kind that copies of neighbourhoods are checked by, on the whole graph."""

COPIED = 32.0
"""MiB of copies that are worked on side by side on a CPU: as quick as more of them by themselves, and where memory is
shared with other processes quicker, as they stay in the caches. It also sets how often progress is told."""


CACHED = 4.0
"""MiB of systems that are solved side by side on a CPU, likewise: a GCN's columns on PubMed take 75 s in sixes and 43 s
one by one, and how the nodes of Cora answer 8 s in 96 and 5 s in fours."""


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
        progress: Called with (removals scored, removals) for each kind of items.
    """

    objective: Objective
    theta: Tensor
    quantity: Quantity
    direction: Direction
    prepared: Prepared
    reach: Reach
    memory_mib: float
    width: int
    progress: Progress | None = None

    @cached_property
    def h(self) -> float:
        """The length along s at which differences are taken: where truncation and rounding are about as large."""
        return float(torch.finfo(self.data.x.dtype).eps ** (1 / 3)) * self._length / float(self.direction.s.norm())

    @cached_property
    def _length(self) -> float:
        """How long θ is; 1 where it is zero."""
        return float(self.theta.norm()) or 1.0

    @cached_property
    def data(self) -> Data:
        """The graph, in double precision where the model can be."""
        double = _doubled(self.objective.data)
        try:
            with torch.no_grad():
                self.objective.forward(duplicate(self.objective.model).double().eval(), double)
        except Exception:  # a module of anyone's may have its type written down
            return self.objective.data
        return double

    @cached_property
    def _single(self) -> Data:
        found = copy.copy(self.objective.data)
        found.x = found.x.float()
        return found

    @cached_property
    def _beside(self) -> list[nn.Module]:
        """The model at θ + h s and at θ − h s."""
        theta, s = self.theta.to(self.data.x.dtype), self.direction.s.to(self.data.x.dtype)
        return [self._model_at(theta + sign * self.h * s) for sign in (1, -1)]

    def _model_at(self, theta: Tensor) -> nn.Module:
        model = duplicate(self.objective.model).eval()
        model = model.double() if self.data is not self.objective.data else model
        load_flat(model, theta)
        return model

    def outputs(self, data: Data) -> tuple[Tensor, Tensor]:
        """The outputs on some graph, and how they move with the parameters along s, flat; from θ + h s and θ − h s."""
        self.objective.meter.passes += 2
        with torch.no_grad():
            after, before = (self.objective.forward(model, data).double() for model in self._beside)
            return (after + before) / 2, flat(after - before) / (2 * self.h)

    def outputs_at(self, theta: Tensor, data: Data) -> Tensor:
        """The outputs at some θ on some graph."""
        self.objective.meter.passes += 1
        model = duplicate(self.objective.model).eval()
        load_flat(model, theta)
        return self.objective.forward(model, data)

    @cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """The outputs of all nodes, and how they move along s."""
        if self.followed:
            outputs, along = self.engine.whole
            return outputs.double(), along[:, 0].double()
        return self.outputs(self.data)

    @cached_property
    def counted(self) -> Counted:
        """What each node adds to the quantity."""
        return self._counting(self.whole[0])

    def _counting(self, outputs: Tensor) -> Counted:
        data = self.objective.data if self.quantity.function is None else self.data
        return Counted(data, self.quantity, outputs)

    @cached_property
    def scorer(self) -> Scorer:
        """What scores removals."""
        objective, s = self.objective, self.direction.s.double()
        decay, theta = objective.decay.double(), self.theta.double()
        outputs, along = self.whole
        answers = Answers(objective.data, objective.loss, outputs, along, self.leverage)
        samples = 0 if self.leverage is None else self.leverage.directions.size(0)
        return Scorer(
            objective.data,
            objective.loss,
            answers,
            self.counted,
            outputs,
            lambda: self.engine,
            None if self.leverage is None else lambda: self._closer(answers),
            along=float((decay * theta) @ s),
            slope=float(self.prepared.gradient.double() @ s),
            mass=objective.mass,
            most=self._at_a_time,
            most_far=max(1, int(self._at_a_time / (4 * self.width * max(samples, 1)))),
            meter=objective.meter,
            progress=self.progress,
        )

    def _closer(self, answers: Answers) -> Closer:
        assert self.leverage is not None
        return Closer(answers, self.counted, self.leverage, self._pushes, self._pushed, self.whole[0])

    @property
    def _most(self) -> float:
        """Numbers that may be held."""
        return self.memory_mib * MIB / 8

    @property
    def _at_a_time(self) -> float:
        """Numbers that removals side by side may take."""
        copied = not self.followed and self.theta.device.type == "cpu"
        return min(self._most, COPIED * MIB / 8) if copied else self._most

    @property
    def leverage_mib(self) -> float:
        """MiB that what is known of how training nodes move takes."""
        return self._mib_of(self.theta.numel() if self._exactly else min(self.theta.numel(), self.samples))

    def _mib_of(self, directions: int) -> float:
        each = self.width * (directions + 2 * self.width)
        return (self.objective.nodes.numel() * each * 8 + directions * self.theta.nbytes) / MIB

    @property
    def _exactly(self) -> bool:
        """Whether each parameter may be taken in place of samples: they are few enough for that, and it fits."""
        count = self.theta.numel()
        return count <= self.samples * TUNING.inspection.small and self._mib_of(count) <= self.memory_mib

    @cached_property
    def leverage(self) -> Leverage | None:
        """How freely every training node moves its own output; nothing where that takes too much memory."""
        if self.leverage_mib > self.memory_mib:
            return None
        how = self.direction.damping, self.samples, self.solved_at_once
        with torch.enable_grad():
            return find_leverage(self.objective, self.theta, self.prepared, *how, exact=self._exactly)

    @property
    def samples(self) -> int:
        """Random directions that tell how nodes move, at most: as many as fit, and no fewer than are of use."""
        least = TUNING.inspection.copied
        fit = (self.memory_mib - self._mib_of(0)) / (self._mib_of(1) - self._mib_of(0))
        return min(TUNING.inspection.samples, max(least, int(fit))) if self.followed else least

    def _pushes(self, removals: Removals, keys: Tensor) -> Tensor:
        """J' x of some nodes of removals, given by sorted keys, by all x, ``[keys, samples, outputs]``."""
        return torch.cat([engine.at(removals, keys, self._at_a_time).double() for engine in self._engines()], dim=1)

    def _pushed(self, nodes: Tensor) -> Tensor:
        """J x of some nodes on the graph as it is."""
        with torch.no_grad():
            return torch.cat([engine.whole[1][nodes].double() for engine in self._engines()], dim=1)

    def _engines(self) -> Iterator[Engine]:
        """What finds derivatives along the directions of the leverage, as many at once as memory holds; kept if all."""
        assert self.leverage is not None
        directions = self.leverage.directions
        if self.at_once >= directions.size(0):
            if "_kept" not in vars(self):
                vars(self)["_kept"] = self._engine_along(directions)
            yield vars(self)["_kept"]
            return
        for some in torch.split(directions, self.at_once):
            yield self._engine_along(some)

    @cached_property
    def at_once(self) -> int:
        """Directions along which all nodes are looked at side by side, in single precision and half of the memory."""
        return max(1, int(self._most / (4 * self._numbers)))

    @property
    def solved_at_once(self) -> int:
        """Systems that are solved side by side."""
        cached = CACHED * MIB if self.theta.device.type == "cpu" else float("inf")
        return max(1, int(min(self.at_once, cached / (4 * self._numbers))))

    @property
    def _numbers(self) -> int:
        return max(int(self.objective.data.num_nodes) * self._widest, self.theta.numel())

    @cached_property
    def _widest(self) -> int:
        """Numbers that a node has in any layer, about."""
        return max([self.width, *(value.shape[0] for value in trained(self.objective.model).values() if value.dim())])

    @cached_property
    def _message(self) -> int:
        """Numbers that a message has in any layer: a layer may send features as they are."""
        model, found = duplicate(self.objective.model).eval(), [self._widest]

        def seen(layer: nn.Module, given: object, sent: object) -> None:
            found.extend(part[:1].numel() for part in leaves(sent) if isinstance(part, Tensor))

        for layer in model.modules():
            if isinstance(layer, MessagePassing):
                layer.register_message_forward_hook(seen)
        self.objective.meter.passes += 1
        with torch.no_grad():
            self.objective.forward(model, self.objective.data)
        return max(found)

    def _engine_along(self, directions: Tensor) -> Engine:
        """What finds derivatives along some directions: in single precision, which is as good as they are."""
        self.objective.meter.passes += 1 + directions.size(0)
        if self.followed:
            form = self._form(directions, self._single.x.dtype)
            assert form is not None
            return Ripples(self._single, form)
        theta = self.theta.to(self.data.x.dtype)
        lengths = torch.finfo(theta.dtype).eps ** 0.5 * self._length / directions.norm(dim=1).clamp(min=1e-30).to(theta)
        points = [theta, *(theta + lengths[:, None] * directions.to(theta))]
        models = [self._model_at(point) for point in points]

        def outputs(data: Data) -> tuple[Tensor, Tensor]:
            here, *beside = (self.objective.forward(model, data).double() for model in models)
            return here, torch.stack([flat(z - here) / length for z, length in zip(beside, lengths, strict=True)], 1)

        assert isinstance(self.engine, Copies)
        return Copies(self.data, self.reach, outputs, self._message, shared=self.engine.shared)

    @cached_property
    def engine(self) -> Engine:
        """What finds the outputs that removals change, and how these move along s."""
        self.objective.meter.passes += 2
        form = self._form(self.direction.s[None], self.theta.dtype)
        if form is not None:
            return Ripples(self.objective.data, form, self._slopes, self._heeded)
        if self.reach.steps is None:
            raise ModelError(
                f"how far the messages of this model travel is not known ({self.reach.source}), and without that nodes "
                "and edges cannot be scored side by side; say it, hops=2, or ask for labels and groups, which need not "
                "know"
            )

        def outputs(data: Data) -> tuple[Tensor, Tensor]:
            found, along = self.outputs(data)
            return found, along[:, None]

        for shared in (True, False):
            differs = self._differing(Copies(self.data, self.reach, outputs, self._message, shared=shared))
            if differs is None:
                return Copies(self.data, self.reach, outputs, self._message, self._heeded, shared=shared)
        raise ModelError(
            f"{differs} depends on more than the {self.reach.steps} hops of {self.reach.source}; say how far messages "
            "travel, hops=…, where it is more"
        )

    @property
    def _heeded(self) -> Tensor | None:
        """Mask of the nodes whose outputs matter to the quantity or to training; ``None`` where all may."""
        weights = self.quantity.weights
        return None if weights is None else self.objective.data.train_mask | (weights != 0)

    def _slopes(self, outputs: Tensor, along: Tensor) -> Tensor:
        """How scores begin to change with the outputs of all nodes, and with how these move along s."""
        every = torch.arange(outputs.size(0), device=outputs.device)
        exact, data = outputs.double(), self.objective.data
        at_once = self._counting(exact).slopes(exact, every)
        by_outputs, by_along = Answers(data, self.objective.loss, exact, along[:, 0].double(), None).slopes(exact)
        return torch.stack([at_once + by_outputs, by_along], dim=1).to(outputs)

    @cached_property
    def followed(self) -> bool:
        """Whether the model is one whose changes are followed through its layers."""
        return self._form(self.direction.s[None], self.theta.dtype) is not None

    def _form(self, directions: Tensor, dtype: torch.dtype) -> Form | None:
        """The model as steps of propagation, with derivatives along some directions; none of any other."""
        if self.objective.forward is not call:
            return None
        weights = {name: p.detach()[None].to(dtype) for name, p in self.objective.model.named_parameters()}
        weights |= {
            name: torch.cat([weights[name], torch.stack(pieces).to(dtype)])
            for name, pieces in _pieces(self.objective, directions).items()
        }
        many = 1 + directions.size(0)
        found = {name: w if w.size(0) == many else _still(w, many) for name, w in weights.items()}
        return form_of(self.objective.model, self.objective.data, found)

    def _differing(self, engine: Engine) -> str | None:
        """An output that is not that of the whole graph without an item, in words, of a few removals that are tried."""
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
            parts = list(zip(*engine.changed(removals, torch.zeros(removals.count), self._most), strict=True))
            which, at, rows = (torch.cat(part) for part in parts[:3])
            for number, request in enumerate(requests):
                wanted = self.outputs(remove(data, request).data)[0]
                found, mine = engine.whole[0].clone(), which == number
                found[at[mine]] = rows[mine]
                apart = ((found - wanted).abs() > rounding(wanted)).reshape(wanted.size(0), -1).any(dim=1)
                if bool(apart.any()):
                    return f"the output of node {int(apart.nonzero()[0])} after forgetting {request.describe()}"
        return None


def _pieces(objective: Objective, directions: Tensor) -> dict[str, list[Tensor]]:
    """Some directions by the names of parameters."""
    every = [objective.split(direction) for direction in directions]
    return {name: [each[name] for each in every] for name in every[0]}


def _still(weight: Tensor, many: int) -> Tensor:
    """A parameter that is not trained, and does not move."""
    return torch.cat([weight, torch.zeros_like(weight).expand(many - 1, *weight.shape[1:])])


def _doubled(data: Data) -> Data:
    """The graph with what is given to layers in double precision."""
    found = copy.copy(data)
    for key in dict.fromkeys(name for names in attributes(data) for name in names):
        value = data[key]
        if isinstance(value, Tensor) and value.dtype == torch.float32:
            found[key] = value.double()
    return found

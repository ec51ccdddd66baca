"""What every request needs, computed once after training: the top of the curvature at θ0 and the gradient there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.curvature.damping import Damping, rehearsed_damping
from unweave.curvature.products import products
from unweave.curvature.solvers import LowRank, krylov, low_rank, random_like
from unweave.graph.view import GraphView
from unweave.objective.checks import (
    check_data,
    check_deterministic,
    check_labels,
    check_model,
    check_outputs,
    check_scores,
)
from unweave.objective.decay import AnyDecay, WeightDecay, as_weight_decay, decay_vector, decays
from unweave.objective.losses import AnyLoss, Loss, as_loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import duplicate, flatten
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.bounded import bounded_objective
from unweave.objective.parts.localising import find_locality
from unweave.objective.parts.locality import NOTHING_LESS, Locality, setting_of

__all__ = [
    "Pending",
    "Prepared",
    "bend",
    "check_calls",
    "checked_objective",
    "prepare",
    "prepare_objective",
    "stationarity",
]

FACTS = (
    *("objective", "parameters", "bend", "damping", "raised", "left"),
    *("edges", "nodes", "mass", "age", "seconds", "passes"),
)


@dataclass(frozen=True)
class Pending:
    """Deferred requests whose answer nobody has checked on the whole graph yet.

    Attributes:
        requests: How many.
        pull: The sum of their v, each taken where the one before had led.
        step: How far they have moved the parameters.
        kept: The share of the training nodes that remain.
    """

    requests: int
    pull: Tensor
    step: Tensor
    kept: float


@dataclass(frozen=True)
class Prepared:
    """The state that makes a request cheap. It still depends on everything the model was trained on.

    Attributes:
        curvature: The largest eigenpairs of the Gauss-Newton matrix of L0 at θ0.
        gradient: ∇L0(θ0).
        objective: L0(θ0).
        parameters: Digest of θ0; the state serves no other model.
        bend: Smallest eigenvalue of the Hessian met in a short search, as a share of the largest; clearly below 0 at
            a saddle.
        damping: What an influence step on this model needs, where training did not end at a minimum.
        raised: How many times the least damping that is.
        left: What a rehearsed request left of the gradient of its local problem with it, as a share.
        edges: Stored edges of the graph when the curvature was computed; 0 where that is not known.
        nodes: Training nodes then.
        mass: What their mean loss divided by then.
        age: Requests carried out since the curvature was computed.
        seconds: What preparing took.
        passes: Sweeps over the graph it took.
        locality: What deferred requests rest on.
        pending: Deferred requests since gradient and objective were computed.
    """

    curvature: LowRank
    gradient: Tensor
    objective: float
    parameters: str
    bend: float = 0.0
    damping: float = 0.0
    raised: float = 1.0
    left: float = 0.0
    edges: int = 0
    nodes: int = 0
    mass: float = 0.0
    age: int = 0
    seconds: float = 0.0
    passes: int = 0
    locality: Locality | None = None
    pending: Pending | None = None

    @cached_property
    def stationarity(self) -> float:
        """By how much the objective would still fall, as a share of it, by its own quadratic model."""
        return stationarity(self.curvature, self.gradient, self.objective)

    @property
    def at_minimum(self) -> bool:
        """Whether the parameters are at a minimum, as the theory of influence assumes."""
        return self.damping == 0 and self.bend >= TUNING.minimum.saddle and self.stationarity <= TUNING.minimum.gain

    @property
    def when(self) -> str:
        """When its curvature was computed, in words."""
        return "after training" + (f", {self.age} request{'s' * (self.age > 1)} ago" if self.age else "")

    def worn(self, edges: int, nodes: int) -> float:
        """The share of the stored edges or of the training nodes, whichever is larger, that went since."""
        gone = [1 - now / then for now, then in ((edges, self.edges), (nodes, self.nodes)) if then]
        return max(gone, default=0.0)

    def serves(
        self, model: nn.Module, data: Data | GraphView, weight_decay: WeightDecay, loss: Loss, forward: Forward
    ) -> bool:
        """Whether this is known, without evaluating anything, to be the state of this model on this graph."""
        here = self.locality
        return (
            here is not None
            and here.refusal in (None, NOTHING_LESS)
            and self.pending is None
            and here.knows(data, loss, forward)
            and self.parameters == tensor_digest(model.named_parameters())
            and here.setting == setting_of(model, loss, decays(model, weight_decay), forward)
        )

    def to(self, device: torch.device) -> "Prepared":
        """The same state on another device; the graph it knows stays where it is."""
        curvature = LowRank(self.curvature.values.to(device), self.curvature.vectors.to(device))
        pending = self.pending and replace(
            self.pending, pull=self.pending.pull.to(device), step=self.pending.step.to(device)
        )
        return replace(self, curvature=curvature, gradient=self.gradient.to(device), pending=pending)

    def to_files(self) -> dict[str, bytes]:
        """The state as two files of a run."""
        tensors = {"values": self.curvature.values, "vectors": self.curvature.vectors, "gradient": self.gradient}
        facts = {key: getattr(self, key) for key in FACTS} | {"stationarity": self.stationarity}
        facts["locality"] = self.locality and self.locality.to_dict()
        facts["pending"] = self.pending and {"requests": self.pending.requests, "kept": self.pending.kept}
        tensors |= {} if self.pending is None else {"pull": self.pending.pull, "step": self.pending.step}
        return {
            "prepared.safetensors": save({key: value.cpu().contiguous() for key, value in tensors.items()}),
            "prepared.json": (json.dumps(facts, indent=1, sort_keys=True, allow_nan=False) + "\n").encode(),
        }

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> "Prepared":
        """Read what :meth:`to_files` wrote."""
        tensors, facts = load(files["prepared.safetensors"]), json.loads(files["prepared.json"])
        curvature = LowRank(tensors["values"], tensors["vectors"])
        locality, pending = facts.get("locality"), facts.get("pending")
        return cls(
            curvature,
            tensors["gradient"],
            **{key: facts[key] for key in FACTS if key in facts},  # damping is younger than the others
            locality=locality and Locality.from_dict(locality),
            pending=pending and Pending(pull=tensors["pull"], step=tensors["step"], **pending),
        )

    def moved(self, parameters: str, objective: float, gradient: Tensor) -> "Prepared":
        """The state for a model that has just forgotten: the curvature is kept and is one request older.

        It knows no graph until it is told (:meth:`on`).
        """
        return replace(
            self,
            gradient=gradient,
            objective=objective,
            parameters=parameters,
            age=self.age + 1,
            locality=self.locality and replace(self.locality, graph=None),
            pending=None,
        )

    def on(self, data: Data, loss: Loss, forward: Forward, *, recount: bool = True) -> "Prepared":
        """The same state for a graph that is known to be the one it belongs to; the same labels need no new count."""
        return replace(self, locality=self.locality and self.locality.on(data, loss, forward, recount=recount))


def stationarity(curvature: LowRank, gradient: Tensor, objective: float) -> float:
    """By how much an objective would still fall, as a share of it, by a quadratic model of it."""
    return float(gradient @ curvature.solve(gradient)) / 2 / max(abs(objective), 1e-30)


def bend(objective: Objective, theta: Tensor) -> float:
    """The smallest Hessian eigenvalue at θ that a short search meets, as a share of the largest."""
    operator = products("hessian", objective.at(theta))
    operator.record()
    ends = krylov(operator, random_like(theta), products=TUNING.spectrum.bend_products).values
    return float(ends[-1]) / max(float(ends.abs().max()), 1e-30)


def prepare(
    model: nn.Module,
    data: Data,
    *,
    weight_decay: AnyDecay,
    loss: AnyLoss = cross_entropy,
    forward: Forward = call,
    rank: int | None = None,
    memory_mib: float | None = None,
) -> Prepared:
    """Compute once, after training, what every request needs.

    Args:
        model: The trained module.
        data: The graph it was trained on.
        weight_decay: What it was trained with.
        loss: Per-node loss it was trained with.
        forward: How to call it.
        rank: Eigenpairs to keep, 32 by default.
        memory_mib: MiB that evaluating the model and its derivatives may hold at a time, beside the graph; it is then
            done in blocks of nodes. ``data.x`` may be a memory map.
    """
    own = duplicate(model)
    decay = as_weight_decay(weight_decay, model)
    objective = checked_objective(own, data, decay, as_loss(loss), forward, memory_mib)
    return prepare_objective(objective, flatten(own), rank=rank)


def checked_objective(
    model: nn.Module,
    data: Data,
    weight_decay: WeightDecay,
    loss: Loss,
    forward: Forward,
    memory_mib: float | None = None,
) -> Objective:
    """The objective of a trained module, once the module and the graph have passed every check."""
    if memory_mib is not None:
        return bounded_objective(model, data, weight_decay, loss, forward, Meter(data.x.device), memory_mib)
    check_data(data)
    check_model(model, data)
    check_calls(model, data, loss, forward, trained=True)
    return Objective(model, data, loss, decay_vector(model, weight_decay), forward, Meter(data.x.device))


def check_calls(model: nn.Module, data: Data, loss: Loss, forward: Forward, *, trained: bool = False) -> None:
    """Call a module twice in eval mode: outputs that fit graph and labels, and the same both times."""
    with torch.no_grad():
        first = check_outputs(forward(model.eval(), data), data)
        check_labels(data, loss, first)
        if trained:
            check_scores(data, loss, first)
        check_deterministic(first, forward(model, data))


def prepare_objective(objective: Objective, theta: Tensor, *, rank: int | None = None) -> Prepared:
    """The same for an objective that has been checked already, at parameters its module holds."""
    start, passes = objective.meter.now(), objective.meter.passes
    locality = objective.locality if isinstance(objective, Blocks) else find_locality(objective)
    if objective.written_out:
        objective.record(theta)  # for the requests to come as well
    value, gradient = objective.evaluate(theta)
    operator = products("gauss-newton", objective.at(theta))
    operator.record()
    curvature = low_rank(operator, theta, rank=rank)
    del operator
    flat = stationarity(curvature, gradient, value) <= TUNING.minimum.gain
    found = Prepared(
        curvature=curvature,
        bend=bend(objective, theta) if flat else 0.0,
        gradient=gradient,
        objective=value,
        parameters=tensor_digest(objective.model.named_parameters()),
        locality=locality,
        edges=objective.stored_edges,
        nodes=objective.nodes.numel(),
        mass=objective.mass,
    )
    damping = Damping(0.0) if found.at_minimum else rehearsed_damping(objective, theta, gradient, curvature)
    return replace(
        found,
        damping=damping.value,
        raised=damping.raised,
        left=damping.left,
        seconds=objective.meter.now() - start,
        passes=round(objective.meter.passes - passes),
    )

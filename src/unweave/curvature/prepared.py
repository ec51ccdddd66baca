"""What every request needs, computed once after training: the top of the curvature at θ0 and the gradient there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.digest import tensor_digest
from unweave._core.tuning import TUNING
from unweave.curvature.solvers import LowRank
from unweave.errors import MethodError
from unweave.graph.view import GraphView
from unweave.objective.decay import WeightDecay, decays
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward
from unweave.objective.parameters import trained
from unweave.objective.parts.locality import NOTHING_LESS, Locality, setting_of

__all__ = ["Pending", "Prepared", "stationarity"]

SAME = 1e-3
"""Relative difference up to which two values of an objective, perhaps from two devices, are the same."""

FACTS = (
    *("objective", "parameters", "bend", "damping", "raised", "left", "agreement", "luck"),
    *("edges", "nodes", "mass", "came", "joined", "age", "seconds", "passes", "whole"),
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
        slope: ∇L/n where training ended, with n what the mean loss divides by: a retraining would end with as much, and
            small requests at a minimum leave it.
        objective: L0(θ0).
        parameters: Digest of θ0; the state serves no other model.
        bend: Smallest eigenvalue of the Hessian met in a short search, as a share of the largest; clearly below 0 at
            a saddle.
        damping: What an influence step on this model needs, where training did not end at a minimum.
        raised: How many times the least damping that is.
        left: What a rehearsed request left of the gradient of its local problem with it, as a share.
        agreement: Of where following a typical deletion leads with what another seed is trained to without the data
            (:mod:`unweave.training.agreement`): 1 where both are the same function, 0 where they differ by as much as
            the deletion changes; ``None`` where nobody looked.
        luck: By how much these two differ, in nats; ``None`` likewise. A request that changes less is not told from it.
        edges: Stored edges of the graph when the curvature was computed; 0 where that is not known.
        nodes: Training nodes then.
        mass: What their mean loss divided by then.
        came: Stored edges that came since, or weigh something else.
        joined: Training nodes that came since.
        age: Requests carried out since the curvature was computed.
        seconds: What preparing took.
        passes: Sweeps over the graph it took.
        whole: Sweeps that the training to this minimum took; 0 where that is not known.
        locality: What deferred requests rest on.
        pending: Deferred requests since gradient and objective were computed.
    """

    curvature: LowRank
    gradient: Tensor
    slope: Tensor
    objective: float
    parameters: str
    bend: float = 0.0
    damping: float = 0.0
    raised: float = 1.0
    left: float = 0.0
    agreement: float | None = None
    luck: float | None = None
    edges: int = 0
    nodes: int = 0
    mass: float = 0.0
    came: int = 0
    joined: int = 0
    age: int = 0
    seconds: float = 0.0
    passes: int = 0
    whole: float = 0.0
    locality: Locality | None = None
    pending: Pending | None = None

    @cached_property
    def stationarity(self) -> float:
        """By how much the objective would still fall, as a share of it, by its own quadratic model."""
        return stationarity(self.curvature, self.gradient, self.objective)

    @property
    def at_minimum(self) -> bool:
        """Whether the parameters are at a minimum, as the theory of influence assumes.

        Little is left to gain; or more is, and all the same following a deletion led where another training ended.
        """
        return self.damping == 0 and not self._saddle and (self.stationarity <= TUNING.minimum.gain or self._agrees)

    @property
    def _saddle(self) -> bool:
        return self.bend < TUNING.minimum.saddle

    @property
    def _agrees(self) -> bool:
        return self.agreement is not None and self.agreement >= TUNING.polish.agreement

    def examined(self, agreement: float | None, whole: float, luck: float | None = None) -> "Prepared":
        """The same state once it is known how another training ends.

        Where both agree, and at no saddle, requests restart the minimisation, which is how that was found. A model
        with LayerNorm may keep a little more to gain than counts as a minimum, and damped steps close less of the gap.

        Args:
            agreement: With another seed; ``None`` where nobody looked.
            whole: Sweeps that the training took.
            luck: By how much the two differ, in nats.
        """
        found = replace(self, agreement=agreement, whole=whole, luck=luck)
        return replace(found, damping=0.0, raised=1.0, left=0.0) if found._agrees and not found._saddle else found

    @property
    def when(self) -> str:
        """When its curvature was computed, in words."""
        return "after training" + (f", {self.age} request{'s' * (self.age > 1)} ago" if self.age else "")

    def worn(self, edges: int, nodes: int) -> float:
        """The share of the stored edges or of the training nodes, whichever is larger, that went or came since."""
        parts = ((edges, self.edges, self.came), (nodes, self.nodes, self.joined))
        return max((1 + (2 * came - now) / then for now, then, came in parts if then), default=0.0)

    def grown(self, edges: int, nodes: int) -> "Prepared":
        """The same state once stored edges and training nodes came, or became others."""
        return replace(self, came=self.came + edges, joined=self.joined + nodes)

    def enlarged(self, places: Tensor | None, model: nn.Module) -> "Prepared":
        """The same state where θ has got entries that nothing trained on uses: there the curvature is not known.

        Args:
            places: Where the entries that there were lie; ``None`` where none came.
            model: The model that has more.
        """
        if places is None:
            return self
        places, size = places.to(self.gradient.device), sum(value.numel() for value in trained(model).values())
        gradient, slope = (widened(each, places, size) for each in (self.gradient, self.slope))
        known = self.curvature.vectors
        vectors = known.new_zeros(size, known.size(1)).index_copy(0, places, known)
        locality = self.locality and self.locality.of_model(model)
        curvature = LowRank(self.curvature.values, vectors)
        return replace(self, gradient=gradient, slope=slope, curvature=curvature, locality=locality)

    def refuse_another(self, objective: float) -> None:
        """Refuse to serve an objective of another value than it had when it was prepared.

        Args:
            objective: What it is here.
        """
        if abs(self.objective - objective) > SAME * abs(objective):
            raise MethodError(
                f"prepared= belongs to another objective ({self.objective:.6g}, here {objective:.6g}): the same graph, "
                "loss and weight_decay must be given as when it was prepared"
            )

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
        gradient, slope = self.gradient.to(device), self.slope.to(device)
        return replace(self, curvature=curvature, gradient=gradient, slope=slope, pending=pending)

    def to_files(self) -> dict[str, bytes]:
        """The state as two files of a run."""
        tensors = {"values": self.curvature.values, "vectors": self.curvature.vectors, "gradient": self.gradient}
        tensors["slope"] = self.slope
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
            tensors.get("slope", tensors["gradient"] / (facts.get("mass") or max(1, facts["nodes"]))),
            **{key: facts[key] for key in FACTS if key in facts},  # damping, as the slope, is younger than the others
            locality=locality and Locality.from_dict(locality),
            pending=pending and Pending(pull=tensors["pull"], step=tensors["step"], **pending),
        )

    def moved(self, parameters: str, objective: float, gradient: Tensor, *, anew: float = 0.0) -> "Prepared":
        """The state for a model that has just forgotten: the curvature is kept and is one request older.

        It knows no graph until it is told (:meth:`on`).

        Args:
            parameters: Its digest.
            objective: L there.
            gradient: ∇L there.
            anew: What its mean loss divides by, where it was trained anew, and so ended at a gradient of its own.
        """
        return replace(
            self,
            gradient=gradient,
            slope=gradient / anew if anew else self.slope,
            objective=objective,
            parameters=parameters,
            age=self.age + 1,
            locality=self.locality and replace(self.locality, graph=None),
            pending=None,
        )

    def on(self, graph: Data | GraphView, loss: Loss, forward: Forward, *, recount: bool = True) -> "Prepared":
        """The same state for a graph that is known to be the one it belongs to; the same labels need no new count."""
        return replace(self, locality=self.locality and self.locality.on(graph, loss, forward, recount=recount))


def widened(vector: Tensor, places: Tensor | None, size: int) -> Tensor:
    """A vector of the parameters that there were among zeros for those that came."""
    return vector if places is None else vector.new_zeros(size).index_copy(0, places, vector)


def stationarity(curvature: LowRank, gradient: Tensor, objective: float) -> float:
    """By how much an objective would still fall, as a share of it, by a quadratic model of it."""
    return float(gradient @ curvature.solve(gradient)) / 2 / max(abs(objective), 1e-30)

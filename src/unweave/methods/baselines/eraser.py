"""GraphEraser (Chen et al., CCS'22): train on shards that never see each other, retrain those a request touches."""

import copy
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from unweave._core.cost import Meter
from unweave._core.tuning import TUNING
from unweave.curvature.preparation import checked_objective
from unweave.errors import MethodError, ModelError
from unweave.graph.removal import Removal
from unweave.methods.base import Expected, Method, Outcome
from unweave.methods.baselines.partition import bekm, blpa
from unweave.methods.problem import Problem
from unweave.methods.registry import register
from unweave.methods.retrain import check_schedule
from unweave.models.shards import Aggregation, Shards
from unweave.objective.losses import Loss, cross_entropy
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parameters import flatten
from unweave.training.adam import fit, reinitialise, seeded
from unweave.training.recipe import Recipe

__all__ = ["Eraser", "EraserBEKM", "EraserBLPA", "aggregation_weights"]


@dataclass(frozen=True)
class Eraser(Method):
    """Divide the training nodes into shards, train one model on each, and retrain the shards that lose something.

    A shard is its nodes and the edges among them; edges between shards are never trained on, so losing one costs
    nothing. Every shard starts from a seed of its own, made from that of the recipe and its number: retrained alone, it
    is to the bit (on CUDA, which adds in no fixed order, to rounding) what training all shards anew on the remaining
    graph would give, *for the same partition*. A node that lost its label stays in its shard without a loss; a shard
    that has no labelled node left gets new random weights and no say. In use, every sub-model is called on the whole
    graph.

    Attributes:
        shards: How many.
        aggregation: ``mean`` of the shards' probabilities, ``majority`` of their votes, or ``learned``: the weighted
            mean whose cross-entropy on the training nodes is the least, found anew after each request.
        epochs: Epochs of full-batch Adam for each shard; those of the recipe, where the method is given by name.
        lr: Its learning rate; likewise.
    """

    local: ClassVar[bool] = False
    shards: int = 20
    aggregation: Aggregation = "mean"
    epochs: int | None = None
    lr: float | None = None

    def __post_init__(self) -> None:
        if not (type(self.shards) is int and self.shards >= 1):
            raise MethodError(f"shards must be a whole number of at least 1, got {self.shards!r}")
        if self.aggregation not in get_args(Aggregation):
            raise MethodError(f"aggregation must be {', '.join(get_args(Aggregation))}, got {self.aggregation!r}")
        check_schedule(self.epochs, self.lr)

    def check(self) -> None:
        """Refuse where nobody said how to train."""
        self._schedule()

    def _schedule(self) -> tuple[int, float]:
        """Epochs and learning rate of a shard."""
        if self.epochs is None or self.lr is None:
            raise MethodError(
                f"method {self.name!r} trains shards by full-batch Adam, and nobody said how; give "
                "recipe=unweave.Recipe(…)"
            )
        return self.epochs, self.lr

    @abstractmethod
    def partition(self, whole: Objective, seed: int) -> NDArray[np.int64]:
        """The shard of each training node, given the model, the graph and its training nodes."""

    def setup(
        self, model: nn.Module, data: Data, recipe: Recipe, loss: Loss = cross_entropy, forward: Forward = call
    ) -> Shards:
        """Partition the training nodes and train one sub-model on each shard, from scratch by the recipe.

        Whether the recipe is that of a forgettable model does not matter: shards are retrained, never restarted.

        Args:
            model: The trained module; it gives the architecture, and to ``eraser-bekm`` its outputs.
            data: The graph it was trained on.
            recipe: Seed, epochs, learning rate and weight decay.
            loss: Cross-entropy; shards can agree on nothing but class probabilities.
            forward: How to call a sub-model, and as well the result.
        """
        self._check_loss(loss)
        if (self.epochs, self.lr) == (None, None):
            return replace(self, epochs=recipe.epochs, lr=recipe.lr).setup(model, data, recipe, loss, forward)
        if (self.epochs, self.lr) != (recipe.epochs, recipe.lr):
            raise MethodError(
                f"shards trained for {recipe.epochs} epochs at lr={recipe.lr} cannot be retrained for {self.epochs} at "
                f"lr={self.lr}; build the method by {type(self).__name__}.from_recipe(recipe, …)"
            )
        own = copy.deepcopy(model).eval()
        whole = checked_objective(own, data, recipe.weight_decay, loss, forward)
        members = torch.full_like(data.train_mask, -1, dtype=torch.long)
        members[whole.nodes] = torch.from_numpy(self.partition(whole, _derived(recipe.seed))).to(members)
        shards = Shards([copy.deepcopy(own) for _ in range(self.shards)], members, self.aggregation)
        for number in range(self.shards):
            self._train(shards, number, whole, whole.decay, recipe.seed)
        shards.weights.copy_(aggregation_weights(shards, whole))
        return shards

    def forget(self, problem: Problem) -> Outcome:
        """Retrain the shards that held what was removed; the others stay as they are, bit by bit."""
        epochs, lr = self._schedule()
        old, whole = self._sharded(problem), problem.remaining
        new = copy.deepcopy(old)
        new.members[problem.removal.nodes] = -1
        touched = _touched(old.members, problem.removal)
        for number in touched:
            self._train(new, number, whole, whole.decay.view(self.shards, -1)[number], problem.seed)
        new.weights.copy_(aggregation_weights(new, whole))
        return Outcome(
            flatten(new),
            details={
                "shards_retrained": len(touched),
                "shards": self.shards,
                "nodes_in_them": int(torch.isin(new.members, torch.tensor(touched).to(new.members)).sum()),
                "epochs": epochs,
                "lr": lr,
            },
            buffers=dict(new.named_buffers()),
            nearness=f"{len(touched)} of {self.shards} shards were retrained, the others never held what was removed: "
            "for the same partition, this is the sharded model retrained. It is not the model trained on the whole "
            "graph; compare measures that distance",
            warnings=("the partition into shards was computed with the removed data in it, and is kept",),
        )

    def expect(self, problem: Problem) -> Expected:
        """Two passes an epoch over each shard that held what is removed."""
        epochs, _ = self._schedule()
        members = self._sharded(problem).members.clone()
        touched = _touched(members, problem.removal)
        members[problem.removal.nodes] = -1
        share = int(torch.isin(members, torch.tensor(touched).to(members)).sum()) / members.numel()
        last = self.aggregation == "learned"
        how = f"train {len(touched)} of {self.shards} shards from scratch for {epochs} epochs"
        return Expected(how, last, 2 * epochs * share + last)

    def _sharded(self, problem: Problem) -> Shards:
        """The model, which must be one that this method set up, on this graph."""
        old, data = problem.original.model, problem.removal.data
        self._check_loss(problem.remaining.loss)
        if not isinstance(old, Shards):
            name = type(self).__name__
            raise MethodError(
                f"method {self.name!r} needs a model that was trained in shards, got {type(old).__name__}; make one: "
                f"model = unweave.methods.{name}.from_recipe(recipe).setup(model, data, recipe)"
            )
        if (len(old.models), old.aggregation) != (self.shards, self.aggregation):
            raise MethodError(
                f"the model has {len(old.models)} shards and aggregation {old.aggregation!r}, method {self.name!r} was "
                f"given {self.shards} and {self.aggregation!r}; use the method that set it up"
            )
        if old.members.numel() != data.num_nodes or bool((old.members[problem.original.nodes] < 0).any()):
            raise MethodError("there are training nodes in no shard; is this the graph that the model was set up on?")
        return old

    def _train(self, shards: Shards, number: int, whole: Objective, decay: Tensor, seed: int) -> None:
        """Train one sub-model in place, from scratch, on what the graph has of its shard."""
        epochs, lr = self._schedule()
        model = shards.models[number]
        part = whole.data.subgraph(shards.members == number)
        objective = Objective(model, part, whole.loss, decay, whole.forward, Meter(whole.meter.device))
        with seeded(_derived(seed, number), whole.meter.device):
            reinitialise(model)
            try:
                if objective.nodes.numel():
                    fit(model, objective, lr=lr, epochs=epochs)
            except (RuntimeError, ValueError) as error:
                raise ModelError(
                    f"the model cannot be trained on shard {number} alone, a graph of {part.num_nodes} nodes: {error}; "
                    "use fewer shards, or a model that does not mind how many nodes there are"
                ) from error
        whole.meter.passes += objective.meter.passes * int(part.num_nodes) / int(whole.data.num_nodes)

    def _check_loss(self, loss: Loss) -> None:
        if not loss.classes:
            raise MethodError(
                f"method {self.name!r} aggregates class probabilities, so it takes cross-entropy only; "
                "use another method for other losses"
            )

    @classmethod
    def from_recipe(cls, recipe: Recipe, **options: Any) -> "Eraser":
        """Train and retrain shards by the recipe of the first training."""
        return cls(**{"epochs": recipe.epochs, "lr": recipe.lr, **options})


@register
@dataclass(frozen=True)
class EraserBLPA(Eraser):
    """Shards by balanced label propagation: neighbours together."""

    name: ClassVar[str] = "eraser-blpa"

    def partition(self, whole: Objective, seed: int) -> NDArray[np.int64]:
        """By the edges among the training nodes."""
        edges, _ = subgraph(whole.nodes, whole.data.edge_index, relabel_nodes=True, num_nodes=int(whole.data.num_nodes))
        return blpa(edges.cpu().numpy(), whole.nodes.numel(), self.shards, seed)


@register
@dataclass(frozen=True)
class EraserBEKM(Eraser):
    """Shards by balanced k-means on embeddings, the outputs of the model trained on the whole graph."""

    name: ClassVar[str] = "eraser-bekm"

    def partition(self, whole: Objective, seed: int) -> NDArray[np.int64]:
        """By the outputs of the training nodes."""
        with torch.no_grad():
            outputs = whole.forward(whole.model, whole.data)[whole.nodes]
        return bekm(outputs.cpu().numpy(), self.shards, seed)


def _touched(members: Tensor, removal: Removal) -> list[int]:
    """The shards that held what was removed; an edge is held where both its ends are."""
    one, other = members[removal.edges]
    held = torch.cat([members[removal.nodes], members[removal.features], members[removal.labels], one[one == other]])
    return sorted(set(held.tolist()) - {-1})


def aggregation_weights(shards: Shards, whole: Objective) -> Tensor:
    """Equal weights for the shards with a labelled node, or those that the training nodes are best predicted by."""
    nodes = whole.nodes
    alive = torch.bincount(shards.members[nodes], minlength=len(shards.models)) > 0
    weights = alive.double() / alive.sum()
    if shards.aggregation == "learned":
        with torch.no_grad():
            outputs = [whole.forward(model, whole.data)[nodes].double() for model in shards.models]
            likelihood = torch.stack([-cross_entropy(each, whole.data.y[nodes]) for each in outputs])
        whole.meter.passes += 1
        weights[alive] = _learn(likelihood[alive], weights[alive])
    return weights


def _learn(likelihood: Tensor, weights: Tensor) -> Tensor:
    """The w on the simplex that minimises −(1/n) Σ_i log Σ_s w_s p_si, from log p ``[k, n]``.

    w_s ← w_s g_s with g_s = (1/n) Σ_i p_si / Σ_t w_t p_ti, the steps of expectation-maximisation for the weights of a
    mixture: the loss never rises, and by its convexity it is at most max_s g_s − 1 above the minimum.
    """
    p = (likelihood - likelihood.max(dim=0).values).exp()
    for _ in range(TUNING.baselines.vote_steps):
        gains = (p / (weights @ p)).mean(dim=1)
        if float(gains.max()) <= 1 + TUNING.baselines.vote_close:
            break
        weights = weights * gains
    return weights / weights.sum()


def _derived(*numbers: int) -> int:
    """A seed from some numbers; neighbouring numbers give unrelated seeds."""
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1)[0])

"""The training objective in bounded memory: one block of nodes at a time, each on its exact halo.

Message passing holds a row for every edge, and derivatives keep all of them. A node's output, though, depends on its
K hops alone, so that

    L(θ) = Σ_b Σ_{i∈b} ℓ(f_halo(b)(i; θ), y_i) + ½ Σ_k μ_k θ_k²

over blocks b of training nodes, and every derivative is a sum over blocks that can be forgotten one after another.
Halos overlap: a sweep costs more than a pass over the graph, and the meter says how much.

The block size is found, not guessed: the first sweep of each kind counts the bytes that its blocks hold, starting
from a single node, and a block that exceeds the budget is halved. Later sweeps repeat the blocks that were found.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.memory import MIB, OverBudget, TensorBytes, check_memory
from unweave.errors import BudgetError, ModelError
from unweave.graph.neighbourhood import halo
from unweave.graph.removal import take
from unweave.graph.view import GraphView
from unweave.objective.losses import Loss, mean_of
from unweave.objective.objective import Forward, Objective, Point
from unweave.objective.parameters import flatten, trained
from unweave.objective.parts.localising import find_locality_in_parts
from unweave.objective.parts.locality import Locality
from unweave.request import Request

__all__ = ["BlockPoint", "Blocks"]

T = TypeVar("T")
Work = Callable[[Objective, Tensor], T]


class Blocks(Objective):
    """L on one graph, evaluated in blocks.

    Args:
        model: The module.
        locality: How its outputs are had from halos, and the graph.
        loss: Per-node loss.
        decay: Weight decay per parameter.
        forward: How the module is called.
        meter: Where passes are counted, as shares of the graph.
        memory_mib: What a block may hold at a time, beside graph, index, outputs and vectors as long as θ.
        sizes: Block sizes that served another graph of this kind.

    Attributes:
        locality: As given.
        found: The blocks of each kind of sweep, as many as it has been asked for.
        peak: The most bytes that a block has held.
    """

    def __init__(
        self,
        model: nn.Module,
        locality: Locality,
        loss: Loss,
        decay: Tensor,
        forward: Forward,
        meter: Meter,
        memory_mib: float,
        sizes: dict[str, int] | None = None,
    ) -> None:
        if locality.refusal is not None:
            raise ModelError(
                f"the memory of this model cannot be bounded: {locality.refusal}; leave memory_mib (--memory-mib) out"
            )
        assert locality.graph is not None
        view = locality.graph
        self.model, self.loss, self.decay, self.forward, self.meter = model, loss, decay, forward, meter
        self.locality, self.view, self.memory_mib = locality, view, memory_mib
        self._limit = check_memory(memory_mib)
        everyone = torch.arange(view.size, device=meter.device)
        trained = view.in_training(everyone)
        self.nodes, self._others = everyone[trained], everyone[~trained]
        self._targets = view.base.y[self.nodes]
        self.mass = loss.mass(self._targets)
        self.mu = decay * self.mass
        self.peak = 0
        self.found: dict[str, list[Tensor]] = {}
        self._sizes: dict[str, int] = {} if sizes is None else sizes

    @cached_property
    def data(self) -> Data:
        """The graph, built when it is asked for."""
        return self.view.data

    @property
    def labels(self) -> Tensor:
        """Labels of all nodes."""
        labels: Tensor = self.view.base.y
        return labels

    @property
    def stored_edges(self) -> int:
        """Stored edges of the graph."""
        return self.view.stored_edges

    @property
    def width(self) -> int:
        """Features of a node."""
        return int(self.view.base.x.size(1))

    def at(self, theta: Tensor) -> "BlockPoint":
        """Evaluate losses and, where derivatives are wanted at all, the gradient at θ."""
        return BlockPoint(self, theta)

    def look(self, theta: Tensor) -> "BlockPoint":
        """The same: no graph of derivatives outlives its block."""
        return self.at(theta)

    recorded = written_out = False

    def record(self, theta: Tensor) -> str:
        """Blocks differ in shape, so there is nothing to record."""
        return "no: it is done in blocks"

    def of(self, model: nn.Module) -> "Blocks":
        """The same objective for another module of the same architecture."""
        same = self._like(model, self.locality)
        same.found = self.found
        return same

    def anew(self, model: nn.Module, data: Data) -> "Blocks":
        """The same for another module on another graph, found to be local anew where it is another."""
        if data is self.data:
            return self if model is self.model else self.of(model)
        view = GraphView.of(data)
        where = find_locality_in_parts(model.eval(), view, self.loss, self.decay, self.forward, self._limit)
        return self._like(model, where)

    def on(self, locality: Locality) -> "Blocks":
        """The same objective on another state of the graph."""
        return self._like(self.model, locality)

    def without(self, request: Request) -> "Blocks":
        """The same objective on the graph without what a request names; nothing of the graph is copied."""
        after, taken = take(self.view, request)
        return self.on(self.locality.without(taken, after, self.loss, allow_class_loss=True))

    def _like(self, model: nn.Module, locality: Locality) -> "Blocks":
        some = (self.loss, self.decay, self.forward, self.meter, self.memory_mib, self._sizes)
        return type(self)(model, locality, *some)

    def outputs(self, theta: Tensor) -> Tensor:
        """Model outputs of all nodes at θ, without derivatives."""
        with torch.no_grad():
            return self.at(theta).outputs

    def predict(self, model: nn.Module) -> Tensor:
        """Outputs of all nodes of a module as it is, in eval mode and without derivatives."""
        return self.of(model.eval()).outputs(flatten(model))

    def backward(self, model: nn.Module) -> Tensor:
        """Add the gradient of the mean loss to the parameters' own, a block at a time, in the mode the module is in.

        What is drawn at random, like dropout, is drawn for every block, so that no draw is that of the whole graph.
        """
        parameters = list(trained(model).values())

        def work(part: Objective, block: Tensor) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            part.meter.passes += 2
            loss = mean_of(part.node_losses(part.forward(model, part.data)), self.mass)
            return loss.detach(), torch.autograd.grad(loss, parameters, allow_unused=True)

        if "training" not in self.found:  # finding blocks that fit draws more often than training does
            cuda = [self.meter.device] if self.meter.device.type == "cuda" else []
            with torch.random.fork_rng(devices=cuda):
                for _ in self.over_blocks("training", work):
                    pass
        total = torch.zeros((), device=self.meter.device)
        for loss, gradients in self.over_blocks("training", work):
            total += loss
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total

    def describe(self) -> dict[str, Any]:
        """What the receipt says of the blocks."""
        return {
            "memory_mib": self.memory_mib,
            "largest_mib": round(self.peak / MIB, 3),
            "blocks": {kind: len(blocks) for kind, blocks in self.found.items()},
        }

    def over_blocks(self, kind: str, work: Work[T], *, others: bool = False) -> Iterator[T]:
        """Do some work on every block of training nodes, or of the others, in order.

        Args:
            kind: Its name; the same work on the same graph takes the same memory.
            work: Given the objective of a block, whose first nodes are those of the block, and their ids.
            others: Whether the nodes are those that were not trained on.
        """
        if kind in self.found:
            for block in self.found[kind]:
                yield self._do(block, work)
            return
        nodes = self._others if others else self.nodes
        size = self._sizes[kind] = self._sizes.get(kind) or self._try(nodes, work)
        blocks: list[Tensor] = []
        at = 0
        while at < nodes.numel():
            block = nodes[at : at + size]
            try:
                result, peak = self._count(block, work)
            except OverBudget:
                if block.numel() == 1:
                    self._refuse(block, work)
                size = max(1, block.numel() // 2)
                continue
            yield result
            self.peak = max(self.peak, peak)
            blocks.append(block)
            at += block.numel()
            size = self._sizes[kind]  # of what was halved only the one block was too large
        self.found[kind] = blocks

    def _try(self, nodes: Tensor, work: Work[T]) -> int:
        """The largest power of two, or all nodes, that half the budget says will fit."""
        size = 1
        while size < nodes.numel():
            try:
                _, peak = self._count(nodes[:size], work)
            except OverBudget:
                return max(1, size // 2)
            if 2 * peak > self._limit:
                return size
            size *= 2
        return max(1, nodes.numel())

    def _count(self, block: Tensor, work: Work[T], *, limited: bool = True) -> tuple[T, int]:
        """What the work gives, and the most bytes it held."""
        with TensorBytes(self._limit if limited else float("inf")) as counted:
            result = self._do(block, work)
        return result, counted.peak

    def _do(self, block: Tensor, work: Work[T]) -> T:
        part = halo(self.view, block, self.locality.reach, self.locality.border)
        data = part.data(self.view)
        inner = Meter(self.meter.device)
        objective = Objective(self.model, data, self.loss, self.decay, self.forward, inner)
        try:
            return work(objective, block)
        finally:
            self.meter.passes += inner.passes * part.nodes.numel() / self.view.size

    def _refuse(self, block: Tensor, work: Work[T]) -> None:
        """Say what the one node needs that does not fit, once that is known."""
        _, peak = self._count(block, work, limited=False)
        raise BudgetError(
            f"memory_mib={self.memory_mib:g} is too little: node {int(block[0])} alone, with the "
            f"{self.locality.reach.steps} hops that its output depends on, takes {peak / MIB:.3g} MiB; allow at least "
            "that much"
        )


class BlockPoint(Point):
    """An objective at one θ, evaluated in blocks when something is asked of it.

    The gradient is taken in the sweep that gives the losses, unless the point was made without derivatives.
    """

    objective: Blocks

    def __init__(self, objective: Blocks, theta: Tensor) -> None:
        self.objective = objective
        self.theta = theta.detach().clone()
        self._with_gradient = torch.is_grad_enabled()

    @cached_property
    def _swept(self) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and outputs of the training nodes, and the gradient of the summed loss where it was taken."""
        slope = torch.zeros_like(self.theta, dtype=torch.float64)
        losses, rows = [], []
        for found in self.objective.over_blocks("gradient", self._settled) if self._with_gradient else self._looks():
            losses.append(found[0])
            rows.append(found[1])
            slope += found[2]
        return torch.cat(losses), torch.cat(rows), slope.to(self.theta)

    @cached_property
    def losses(self) -> Tensor:  # type: ignore[override]  # set by the base class, computed here
        """Loss of each training node."""
        return self._swept[0]

    @cached_property
    def outputs(self) -> Tensor:  # type: ignore[override]  # set by the base class, computed here
        """Model outputs of all nodes; those of nodes that were not trained on are computed when they are asked for."""
        trained = self._swept[1]
        outputs = trained.new_zeros(self.objective.view.size, *trained.shape[1:])
        outputs[self.objective.nodes] = trained
        for block, rows in self.objective.over_blocks("outputs", self._others, others=True):
            outputs[block] = rows
        return outputs

    def settle(self) -> "BlockPoint":
        """There is no graph of derivatives to let go."""
        return self

    def loss_gradient(self, mask: Tensor | None = None) -> Tensor:
        """Gradient of the summed loss, over the training nodes in a node mask where one is given."""
        if mask is None:
            return self._slope

        def some(part: Objective, block: Tensor) -> Tensor:
            here = torch.zeros(part.data.num_nodes, dtype=torch.bool, device=block.device)
            here[: block.numel()] = mask[block]
            return part.at(self.theta).loss_gradient(here)

        return self.total("gradient of some", some)

    def total(self, kind: str, work: Work[Tensor]) -> Tensor:
        """The sum over the blocks of vectors as long as θ, in double precision on the way."""
        total = torch.zeros_like(self.theta, dtype=torch.float64)
        for found in self.objective.over_blocks(kind, work):
            total += found
        return total.to(self.theta)

    @cached_property
    def _slope(self) -> Tensor:
        if self._with_gradient:
            return self._swept[2]
        return self.total("gradient", lambda part, block: self._settled(part, block)[2])

    def _settled(self, part: Objective, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            point = part.look(self.theta)
        return point.losses, point.outputs.index_select(0, part.nodes), point.loss_gradient()

    def _looks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        none = torch.zeros_like(self.theta)

        def look(part: Objective, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.no_grad():
                point = part.at(self.theta)
            return point.losses, point.outputs.index_select(0, part.nodes), none

        return self.objective.over_blocks("losses", look)

    def _others(self, part: Objective, block: Tensor) -> tuple[Tensor, Tensor]:
        part.meter.passes += 1
        with torch.no_grad():
            return block, part.outputs(self.theta)[: block.numel()].clone()

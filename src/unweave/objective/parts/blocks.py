"""The training objective in bounded memory: one block of nodes at a time, each on its exact halo.

Message passing holds a row for every edge, and derivatives keep all of them. A node's output, though, depends on its
K hops alone, so that

    L(θ) = Σ_b Σ_{i∈b} ℓ(f_halo(b)(i; θ), y_i) + ½ Σ_k μ_k θ_k²

over blocks b of training nodes, and every derivative is a sum over blocks that can be forgotten one after another.
Halos overlap: a sweep costs more than a pass over the graph, and the meter says how much.

The block size is found, not guessed: the first sweep of each kind counts the bytes that its blocks hold, small ones to
begin with, which tell how large a block may be; one that exceeds the budget all the same is halved. Later sweeps repeat
the blocks that were found.

Where several ranks do the job (:mod:`unweave._core.ranks`), each sweeps the blocks of its own nodes, and sums, losses
and outputs are put together, the same on every rank: whoever asks does not know. Without a budget a rank keeps its
blocks, one or several that fit the caches, which are made once.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.memory import MIB, check_memory
from unweave.errors import BudgetError, ModelError
from unweave.graph.neighbourhood import halo
from unweave.graph.removal import take
from unweave.graph.view import GraphView
from unweave.models.reach import Reach
from unweave.objective.losses import Loss, mean_of
from unweave.objective.objective import Forward, Objective
from unweave.objective.parameters import flatten, trained
from unweave.objective.parts.block_point import BlockPoint, InBlocks, Work
from unweave.objective.parts.fitting import Fitting
from unweave.objective.parts.localising import find_locality_in_parts
from unweave.objective.parts.locality import Locality
from unweave.objective.parts.sharing import Kept, Shares, drawing, kept_halo, reduced
from unweave.request import Request
from unweave.tasks.task import Task

__all__ = ["BlockPoint", "Blocks"]

T = TypeVar("T")


class Blocks(InBlocks):
    """L on one graph, evaluated in blocks.

    Args:
        model: The module.
        locality: How its outputs are had from halos, and the graph.
        loss: Per-node loss.
        decay: Weight decay per parameter.
        forward: How the module is called.
        meter: Where passes are counted, as shares of the graph.
        memory_mib: What a block may hold at a time, beside graph, index, outputs and vectors as long as θ; ``inf`` for
            the blocks of a rank, which are kept.
        sizes: Block sizes that served another graph of this kind.
        like: How nodes were shared out on another graph of this kind.

    Attributes:
        locality: As given.
        found: The blocks of each kind of sweep, as many as it has been asked for; of this rank's nodes.
        shares: Who evaluates which nodes.
        peak: The most bytes that a block has held.
    """

    _others: Tensor

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
        like: "Blocks | None" = None,
    ) -> None:
        if locality.refusal is not None:
            what = (
                "work on this model cannot be shared"
                if ranks.joined()
                else "the memory of this model cannot be bounded"
            )
            raise ModelError(f"{what}: {locality.refusal}; {ranks.without('memory_mib (--memory-mib)')}")
        assert locality.graph is not None
        view = locality.graph
        self.model, self.loss, self.decay, self.forward, self.meter = model, loss, decay, forward, meter
        self.locality, self.view, self.memory_mib = locality, view, memory_mib
        self._limit = check_memory(memory_mib)
        if like is not None and like.view is view:
            self.nodes, self._others, self.seen = like.nodes, like._others, like.seen
            self._targets, self.mass = like._targets, like.mass
        else:
            trained = view.labels.train_mask
            self.nodes, self._others = trained.nonzero().flatten(), self._untrained(~trained).nonzero().flatten()
            self._targets = view.base.y[self.nodes]
            self.mass = loss.mass(self._targets)
        self.mu = decay * self.mass
        self.peak = 0
        self.found: dict[str, list[Tensor]] = {}
        self._sizes: dict[str, int] = {} if sizes is None else sizes
        known: Shares | None = None if like is None else like.shares
        how = (self.hears, locality.border, self.nodes, self._others, self.keeps, known)
        self.shares: Shares = Shares(view, *how)
        self._pieces: dict[bool, dict[int, Kept]] = {}
        self._made: dict[tuple[bool, int], tuple[Data, int]] = {}
        self._parts: dict[tuple[bool, int], tuple[Objective, int]] = {}
        self._spent = 0.0
        self._begin()

    def _begin(self) -> None:
        """What else there is to do once all of the above is known."""

    def _untrained(self, others: Tensor) -> Tensor:
        """Of the mask of nodes that are not trained on, those whose outputs are asked for."""
        return others

    @property
    def hears(self) -> Reach | None:
        """The message-passing steps by which a block hears of other nodes; ``None`` where it hears of none."""
        return self.locality.reach

    @property
    def pass_nodes(self) -> int:
        """Nodes that a whole pass evaluates."""
        return self.view.size

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
    def task(self) -> Task | None:
        """The graph that this was made of, where it is that of a task."""
        return self.view.base if isinstance(self.view.base, Task) else None

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
        same.found, same._pieces, same._made = self.found, self._pieces, self._made
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
        return type(self)(model, locality, *some, like=self)

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
        generators = [self.meter.device] if self.meter.device.type == "cuda" else []
        drawn = drawing(generators)

        def work(part: Objective, block: Tensor) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            part.meter.passes += 2
            with drawn(block):
                loss = mean_of(part.node_losses(part.forward(model, part.data)), self.mass)
            return loss.detach(), torch.autograd.grad(loss, parameters, allow_unused=True)

        if "training" not in self.found and not ranks.joined():  # finding blocks that fit draws more often
            with torch.random.fork_rng(devices=generators):
                for _ in self.over_blocks("training", work):
                    pass
        total = torch.zeros((), device=self.meter.device, dtype=torch.float64 if ranks.joined() else None)
        sums: list[Tensor | None] = [None] * len(parameters)
        with self.sweep("training"):
            for loss, gradients in self.over_blocks("training", work):
                total += loss
                for n, gradient in enumerate(gradients):
                    if gradient is not None:
                        known = sums[n]
                        sums[n] = gradient if known is None else known.add_(gradient)
        if ranks.joined():
            total, sums = reduced(self.added, total, sums, parameters)
        for parameter, gradient in zip(parameters, sums, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total.to(self.decay.dtype) if ranks.joined() else total

    def describe(self) -> dict[str, Any]:
        """What the receipt says of the blocks: how many, how large, or how many times the graph ranks hold of it."""
        with ranks.together("describing blocks"):
            held = sum(nodes for (others, _), (_, nodes) in self._parts.items() if not others) / self.pass_nodes
            own = torch.tensor([[self.peak, held, *map(len, self.found.values())]], dtype=torch.float64)
        found = ranks.rows(own, [1] * ranks.size())
        counts = dict(zip(self.found, found[:, 2:].sum(dim=0).int().tolist(), strict=True))
        told = {"memory_mib": self.memory_mib, "largest_mib": round(float(found[:, 0].max()) / MIB, 3)}
        told = {"held": round(float(found[:, 1].sum()), 3)} if self.keeps else told
        return ({"ranks": ranks.size()} if ranks.joined() else {}) | told | {"blocks": counts}

    def over_blocks(self, kind: str, work: Work[T], *, others: bool = False) -> Iterator[T]:
        """Do some work on every block of this rank's training nodes, or others, in order.

        Args:
            kind: Its name; the same work on the same graph takes the same memory.
            work: Given the objective of a block, whose first nodes are those of the block, and their ids.
            others: Whether the nodes are those that were not trained on.
        """
        nodes = self.shares.of(others=others).mine
        if self.keeps:
            self.found[kind] = self._cut(nodes, others)
        if kind in self.found:
            for block in self.found[kind]:
                yield self._do(block, work, others)
            return
        blocks: list[Tensor] = []
        fitting = Fitting(lambda block: self._do(block, work), self._extent, self._limit, self._refuse)
        size = self._sizes[kind] = self._sizes.get(kind) or fitting.largest(nodes)
        for block, result, peak in fitting.through(nodes, size):
            yield result
            self.peak = max(self.peak, peak)
            blocks.append(block)
        self.found[kind] = blocks

    def _cut(self, nodes: Tensor, others: bool) -> list[Tensor]:
        """The blocks of a rank that keeps them."""
        if self.hears is None or not nodes.numel():
            return [nodes] * bool(nodes.numel())
        if others not in self._pieces:
            whole = kept_halo(self.view, nodes, self.hears, self.locality.border)
            self._pieces[others] = {int(piece.roots[0]): piece for piece in whole.pieces(self.view)}
        return [piece.roots for piece in self._pieces[others].values()]

    def _extent(self, block: Tensor) -> tuple[int, ...]:
        """How many nodes lie within 0, 1, … steps of a block, and how many edges those have."""
        if self.hears is None:
            return (block.numel(),)
        found = halo(self.view, block, self.hears, self.locality.border)
        return *found.rings, found.edges.numel() + found.rim.numel()

    def _do(self, block: Tensor, work: Work[T], others: bool = False) -> T:
        part, nodes = self._part(block, others)
        before = part.meter.passes
        try:
            return work(part, block)
        finally:
            spent = part.meter.passes - before
            if not ranks.joined():
                self.meter.passes += spent * nodes / self.pass_nodes
            elif not others:  # the meter hears of it when all have done the sweep, a pass of the ranks together
                self._spent += spent * block.numel() / self.shares.of().nodes.numel()

    def _part(self, block: Tensor, others: bool) -> tuple[Objective, int]:
        """The objective of a block on its halo, and the nodes of that; the blocks of a rank are kept."""
        key, here = (others, int(block[0])), self.locality
        if key in self._parts:
            return self._parts[key]
        made = self._made.get(key)
        if made is None:
            around = self._pieces[others][key[1]] if self.keeps else halo(self.view, block, here.reach, here.border)
            made = around.data(self.view), around.nodes.numel()
        part = Objective(self.model, made[0], self.loss, self.decay, self.forward, Meter(self.meter.device)), made[1]
        if self.keeps:
            self._made[key], self._parts[key] = made, part
        return part

    def _refuse(self, block: Tensor, peak: int) -> None:
        """Say what the one node needs that does not fit."""
        raise BudgetError(
            f"memory_mib={self.memory_mib:g} is too little: node {int(block[0])} alone, with the "
            f"{self.locality.reach.steps} hops that its output depends on, takes {peak / MIB:.3g} MiB; allow at least "
            "that much"
        )

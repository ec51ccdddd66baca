"""The effect of removals on a quantity, from the outputs that they change.

For removal i, with G_i the graph without it and v_i = ∇L(θ; G) − ∇L_i(θ; G_i),

    effect_i = [q(θ; G_i) − q(θ; G)] + ⟨s, v_i⟩,     s = H⁻¹∇q

The first part is what happens at once, as messages stop flowing; the second what training without it does. Of v_i only
its product with s is wanted, a derivative along one direction: Σ_v ℓ_v is compared at θ ± h s, on G and on G_i, and
nothing of the size of θ is made for any removal. Only nodes whose output changes count, and there is no other
approximation in v_i: it is that of the graph without the item, however far its absence is felt.

Where training did not end at a minimum, the slope there goes with the training nodes as in ``gif``.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.cost import Meter
from unweave._core.memory import MIB
from unweave.inspection.quantity import Quantity
from unweave.inspection.removals import Removals
from unweave.objective.losses import Loss

__all__ = ["Engine", "Scorer"]


class Engine(Protocol):
    """Finds the outputs that removals change.

    Attributes:
        whole: The outputs of all nodes, at θ + h s and at θ − h s.
    """

    whole: tuple[Tensor, ...]

    def sizes(self, removals: Removals) -> Tensor:
        """About how many numbers each removal takes, at most."""
        ...

    def changed(self, removals: Removals) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Removal, node and outputs at each parameters, of all that may change."""
        ...


class Scorer:
    """Effects of removals on a quantity.

    Args:
        data: The graph, in double precision.
        loss: Per-node loss.
        quantity: q.
        whole: The outputs of all nodes, at θ + h s and at θ − h s.
        engine: Makes what finds the outputs after removals, when these are asked for.
        h: The length along s at which outputs are compared.
        along: Weight decay along s: the derivative of ½ Σ_k w_k θ_k² along it.
        slope: ⟨s, ∇L(θ)⟩, zero where training ended at a minimum.
        mass: What the mean loss of the training nodes divides by.
        memory_mib: MiB that the outputs of a chunk of removals may take.
        meter: Where passes are counted: rows that were evaluated, as a share of the graph.
    """

    def __init__(
        self,
        data: Data,
        loss: Loss,
        quantity: Quantity,
        whole: Sequence[Tensor],
        engine: Callable[[], Engine],
        *,
        h: float,
        along: float,
        slope: float,
        mass: float,
        memory_mib: float,
        meter: Meter,
    ) -> None:
        self._data, self._loss, self._quantity, self._whole, self._make = data, loss, quantity, whole, engine
        self._h, self._along, self._slope, self._mass = h, along, slope, mass
        self._most, self._meter = memory_mib * MIB / 8, meter
        self._size = int(data.num_nodes)
        every = torch.arange(self._size, device=data.x.device)
        train = data.train_mask
        self.pulls = torch.zeros(self._size, dtype=torch.float64, device=every.device)
        self.pulls[train] = self._pulled([z[train] for z in whole], every[train])
        self._before = self._parts(whole, every)
        weights = torch.zeros_like(self.pulls)
        weights[train] = self._masses(every[train])
        self._masses_of = weights

    def _masses(self, nodes: Tensor) -> Tensor:
        """What each training node adds to the mass."""
        labels = self._data.y[nodes]
        if self._loss.mass(labels) == nodes.numel():
            return torch.ones(nodes.numel(), dtype=torch.float64, device=nodes.device)
        kinds, place = torch.unique(labels, return_inverse=True)
        masses = torch.tensor([self._loss.mass(kind.reshape(1)) for kind in kinds], dtype=torch.float64)
        return masses.to(nodes.device)[place]

    def _pulled(self, outputs: Sequence[Tensor], nodes: Tensor) -> Tensor:
        """⟨s, ∇ℓ_v⟩ of some training nodes."""
        labels = self._data.y[nodes]
        after, before = (self._loss(z.double(), labels) for z in outputs)
        return (after - before) / (2 * self._h)

    def _parts(self, outputs: Sequence[Tensor], nodes: Tensor) -> Tensor:
        """What some nodes add to the quantity; of a function of the user's, by its slope in their outputs."""
        after, before = (z.double() for z in outputs)
        quantity = self._quantity
        if quantity.function is not None:
            slope = self._slopes[nodes]
            return ((after + before) / 2 * slope).flatten(1).sum(dim=1)
        assert quantity.weights is not None
        assert quantity.rows is not None
        found = torch.zeros(nodes.numel(), dtype=torch.float64, device=nodes.device)
        some = quantity.weights[nodes].nonzero().flatten()
        ids = nodes[some]
        mean = (quantity.rows(after[some], ids) + quantity.rows(before[some], ids)) / 2
        found[some] = quantity.weights[ids] * mean
        return found

    @cached_property
    def _engine(self) -> Engine:
        return self._make()

    @cached_property
    def _slopes(self) -> Tensor:
        """∂q/∂outputs of a function of the user's."""
        after, before = (z.double() for z in self._whole)
        middle = ((after + before) / 2).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self._quantity.value(middle, self._data), middle)
        return slope

    def score(self, removals: Removals) -> Tensor:
        """The predicted change of the quantity by each removal."""
        found = torch.zeros(removals.count, dtype=torch.float64, device=self.pulls.device)
        own = removals.labels[:, self._data.train_mask[removals.labels[1]]]
        if own.numel():
            mass = self._masses_of[own[1]]
            gone = self.pulls[own[1]] + mass * self._along - mass / self._mass * self._slope
            found.index_add_(0, own[0], gone)
        if not removals.edges.numel() and not removals.blank.numel():
            return found
        for first, chunk in removals.chunks(self._engine.sizes(removals), self._most):
            found[first : first + chunk.count] += self._felt(chunk)
        return found

    def _felt(self, removals: Removals) -> Tensor:
        """What removals do by the outputs that they change, of nodes that stay."""
        with torch.no_grad():
            which, nodes, outputs = self._engine.changed(removals)
            self._meter.passes += len(outputs) * nodes.numel() / self._size
            found = torch.zeros(removals.count, dtype=torch.float64, device=self.pulls.device)
            keys = which * self._size + nodes
            stays, trained = (
                ~torch.isin(keys, some[0] * self._size + some[1]) for some in (removals.nodes, removals.labels)
            )
            trained = trained & self._data.train_mask[nodes]
            pull = self._pulled([z[trained] for z in outputs], nodes[trained])
            found.index_add_(0, which[trained], self.pulls[nodes[trained]] - pull)
            there = nodes[stays]
            change = self._parts([z[stays] for z in outputs], there) - self._before[there]
            return found.index_add_(0, which[stays], change)

    def together(self, outputs: Sequence[Tensor], left: Data, gone: Tensor, unlabelled: Tensor) -> float:
        """The effect of a whole request, from the outputs on the graph that it leaves.

        Args:
            outputs: At θ + h s and at θ − h s, of all nodes.
            left: The remaining graph.
            gone: Deleted nodes.
            unlabelled: Nodes whose label is no longer used.
        """
        every = torch.arange(self._size, device=self.pulls.device)
        lost = unlabelled[self._data.train_mask[unlabelled]]
        mass = float(self._masses_of[lost].sum())
        stays = every[left.train_mask]
        pull = self._pulled([z[stays] for z in outputs], stays)
        found = float(self.pulls.sum() - pull.sum()) + mass * self._along - mass / self._mass * self._slope
        kept = torch.ones(self._size, dtype=torch.bool, device=every.device)
        kept[gone] = False
        here = every[kept]
        return found + float((self._parts([z[here] for z in outputs], here) - self._before[here]).sum())

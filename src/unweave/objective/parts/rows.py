"""The objective of a model that takes rows of PᵏX alone: training and forgetting touch rows, not the graph.

It is the objective in blocks (:mod:`unweave.objective.parts.blocks`) without halos. Outputs are those of the nodes in a
mask; what nobody trains on, validates or tests is not evaluated.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.cost import Meter
from unweave._core.mapped import with_rows
from unweave.errors import UnweaveError
from unweave.graph.edit import MASKS
from unweave.graph.view import GraphView
from unweave.models.propagation import Propagation, by_rows, propagation_of
from unweave.models.reach import find_reach
from unweave.objective.checks import check_labels
from unweave.objective.decay import decays_in
from unweave.objective.losses import Loss
from unweave.objective.objective import Forward, Objective, call
from unweave.objective.parts.block_point import T, Work
from unweave.objective.parts.blocks import Blocks
from unweave.objective.parts.locality import Locality, counted, setting_of
from unweave.objective.parts.propagated import Table, table_of
from unweave.objective.running_stats import running

__all__ = ["Rows", "locality_by_rows", "rows_for", "slope_by_rows"]


def rows_for(model: nn.Module, view: GraphView, forward: Forward) -> Propagation | None:
    """Which rows a model takes of a graph in a folder; ``None`` where it takes more, or the graph is another."""
    if forward is not call or not view.mapped or view.base.get("edge_attr") is not None or running(model):
        return None
    return propagation_of(model)


def locality_by_rows(model: nn.Module, view: GraphView, loss: Loss, decay: Tensor, limit: float) -> Locality:
    """What work on rows rests on: how far a change travels, read off the layers, and labels that fit the outputs."""
    what = rows_for(model, view, call)
    assert what is not None
    base = view.base
    with torch.no_grad():
        reach = find_reach(model, lambda: model(base.x.new_zeros(1, base.x.size(1)), view.edge_index[:, :0]))
        trained = base.train_mask.nonzero().flatten()
        trained = trained[view.in_training(trained)]
        some = Data(x=table_of(view, what, _room(limit)).rows(trained[:1]))
        check_labels(view.labels, loss, by_rows(model, some))
    return Locality(
        reach=reach,
        border="none",
        setting=setting_of(model, loss, decays_in(model, decay), call),
        graph=view,
        functions=(loss, call),
        **counted(base.y[trained], loss),
    )


class Rows(Blocks):
    """L on one graph in a folder, evaluated on rows of PᵏX in blocks; the arguments are those of :class:`Blocks`.

    Attributes:
        table: The rows.
        seen: Mask of the nodes that outputs are computed for.
    """

    kinds = ("labels",)

    def _begin(self) -> None:
        what = rows_for(self.model, self.view, self.forward)
        assert what is not None
        self._what = what
        self.table: Table = table_of(self.view, what, _room(self._limit))
        self._renewed: set[bool] = set()
        self._mine = self.shares.of().mine
        self._kept = self._gathered()
        if self._kept is not None:
            self._limit -= self._kept.nbytes

    hears = None

    @property
    def pass_nodes(self) -> int:
        """Nodes that a whole pass evaluates: those that are trained on."""
        return self.nodes.numel()

    def _untrained(self, others: Tensor) -> Tensor:
        """Those in a mask."""
        labels = self.view.labels
        self.seen = torch.zeros_like(others)
        for name in MASKS:
            if labels.get(name) is not None:
                self.seen |= labels[name]
        return others & self.seen

    def _gathered(self) -> Tensor | None:
        """The rows of this rank's training nodes, where half the budget holds them."""
        x, key = self.view.base.x, (self._what, "training", ranks.size())
        if self._mine.numel() * len(self._what.powers) * x.size(1) * x.element_size() > self._limit / 2:
            return None
        if key not in self.view.notes:
            self.view.notes[key] = self.table.rows(self._mine)
        kept: Tensor = self.view.notes[key]
        return kept

    @cached_property
    def data(self) -> Data:
        """Features, labels and masks; of a graph that lost something no edges, as nobody here asks for them."""
        view = self.view
        if not view.changed:
            return view.base
        x = with_rows(view.base.x, view.rows, view.x) if view.rows.numel() else view.base.x
        return Data(x=x, **view.labels.to_dict())

    def anew(self, model: nn.Module, data: Data) -> Blocks:
        """The same for another module; a graph of one's own is none that these rows are of."""
        if data is not self.data:
            raise UnweaveError("rows of a folder serve that folder alone; give its graph, or load the other one")
        return self if model is self.model else self.of(model)

    def over_blocks(self, kind: str, work: Work[T], *, others: bool = False) -> Iterator[T]:
        """The same, once rows that changed are computed: that is no part of what a block holds."""
        if others not in self._renewed:
            self._renewed.add(others)
            self.table.renew(self.shares.of(others=others).mine)
        return super().over_blocks(kind, work, others=others)

    def describe(self) -> dict[str, Any]:
        """What the receipt says of the blocks, and of rows; those computed anew are counted over all ranks."""
        told = super().describe()
        rows = {
            "training": self.nodes.numel(),
            "others": self._others.numel(),
            "differing": self.table.differing,
            "recomputed": int(ranks.total(torch.tensor(float(self.table.recomputed), dtype=torch.float64))),
        }
        return told | {"rows": rows}

    def _part(self, block: Tensor, others: bool) -> tuple[Objective, int]:
        """Some nodes, those that are trained on and others apart, as a graph without edges."""
        key = others, int(block[0])
        if key in self._parts:
            return self._parts[key]
        trained = self.view.in_training(block)
        if self._kept is not None and bool(trained[0]):
            first = int(torch.searchsorted(self._mine, block[0]))
            rows = self._kept[first : first + block.numel()]
        else:
            rows = self.table.rows(block)
        data = Data(x=rows, y=self.view.base.y[block], train_mask=trained)
        made = Objective(self.model, data, self.loss, self.decay, by_rows, Meter(self.meter.device)), block.numel()
        if self.keeps:
            self._parts[key] = made
        return made


def slope_by_rows(
    model: nn.Module, theta: Tensor, nodes: Tensor, view: GraphView, loss: Loss, decay: Tensor, meter: Meter
) -> Tensor:
    """The gradient of the summed loss of some nodes, those among them that are trained on, from their rows."""
    what = rows_for(model, view, call)
    assert what is not None
    table, total = table_of(view, what, ROOM), torch.zeros_like(theta, dtype=torch.float64)
    for some in torch.split(nodes[view.in_training(nodes)], TOGETHER):
        part = Data(x=table.rows(some), y=view.base.y[some], train_mask=torch.ones_like(some, dtype=torch.bool))
        total += Objective(model, part, loss, decay, by_rows, meter).look(theta).loss_gradient()
    return total.to(theta)


TOGETHER = 1 << 13
"""Nodes whose gradient is taken at a time where nobody set a budget."""

ROOM = 2.0**30
"""Bytes for computing rows of a folder then, should they not be there."""


def _room(limit: float) -> float:
    return ROOM if limit == math.inf else limit

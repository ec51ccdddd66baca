"""Rows of PᵏX of a graph in a folder: computed once for the folder, and after a request only where they changed.

Of a view that lacks something, the rows that differ are known for every k (:meth:`Table.after`), and each is computed
from its neighbours' rows of Pᵏ⁻¹X when somebody asks for it. What nobody asks for is never computed.
"""

from functools import cached_property
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave._core.mapped import rows_of
from unweave.graph.index import among, edge_values
from unweave.graph.view import GraphView
from unweave.models.propagation import Propagation
from unweave.objective.parts.propagating import Degrees, propagated_files

__all__ = ["Table", "table_of"]

EDGES = 1 << 16
"""Edges whose messages are added up at a time."""


def table_of(view: GraphView, what: Propagation, limit: float) -> "Table":
    """The rows of a view; derived from those of the view before it, where somebody has asked for these.

    Args:
        view: A graph in a folder, or what is left of it.
        what: Which rows.
        limit: Bytes that computing those of the folder may hold at a time.
    """
    found: Table | None = view.notes.get(what)
    if found is None:
        before = view.before() if view.before is not None else None
        known = None if before is None or before.base is not view.base else before.notes.get(what)
        if known is None:
            degrees = Degrees.of(view, what.matrix)
            files = propagated_files(view.base, degrees, what, limit)
            known = Table(GraphView.of(view.base), what, degrees, files)
        found = view.notes[what] = known.after(view)
    return found


class Table:
    """Rows of PᵏX for k up to K.

    Args:
        view: The graph, or what is left of it.
        what: Which rows.
        degrees: What messages are divided by on the whole graph.
        files: Those of the whole graph for k = 1 … K, mapped.
        changed: For every k the nodes whose rows are others, sorted.
        known: For every k nodes of those whose rows were computed, sorted, and these rows.

    Attributes:
        recomputed: How many rows were computed for this view.
    """

    def __init__(
        self,
        view: GraphView,
        what: Propagation,
        degrees: Degrees,
        files: list[Tensor],
        changed: list[Tensor] | None = None,
        known: list[tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        none, no_rows = view.gone[:0], view.base.x[:0]
        # No view that holds this table: it would live until the garbage collector comes.
        self._of, self._gone, self._rows, self._x = ref(view), view.gone, view.rows, view.x
        self._what, self._degrees, self._files = what, degrees, files
        self._changed = changed or [none] * (what.steps + 1)
        self._known = known or [(none, no_rows)] * (what.steps + 1)
        self.recomputed = 0

    @property
    def view(self) -> GraphView:
        """The graph, or what is left of it; whoever asks for rows holds it."""
        view = self._of()
        assert view is not None
        return view

    def rows(self, nodes: Tensor) -> Tensor:
        """What the model takes of some nodes, ``[nodes, powers, features]``."""
        return torch.stack([self._fetch(k, nodes) for k in self._what.powers], dim=1)

    @property
    def differing(self) -> int:
        """How many rows differ from those of the whole graph, of all k from 1 on."""
        return sum(some.numel() for some in self._changed[1:])

    def after(self, view: GraphView) -> "Table":
        """The table of a view that lacks more."""
        gone = view.gone[~among(view.gone, self._gone)]
        rows = view.rows[self._differ(view)]
        targets = torch.unique(view.edge_index[1][gone])
        looped = self._what.matrix == "normalised"
        touched = torch.cat([targets, view.others_at(targets, into=False)]) if looped else targets
        fresh = [rows]
        for _ in range(self._what.steps):
            reached = view.others_at(fresh[-1], into=False)
            fresh.append(torch.unique(torch.cat([touched, reached, fresh[-1]] if looped else [touched, reached])))
        changed, known = [], []
        for some, there, (ids, values) in zip(fresh, self._changed, self._known, strict=True):
            changed.append(torch.unique(torch.cat([there, some])) if some.numel() else there)
            kept = ~among(ids, some)
            known.append((ids[kept], values[kept]))
        return Table(view, self._what, self._degrees, self._files, changed, known)

    def _fetch(self, k: int, nodes: Tensor) -> Tensor:
        """Rows of PᵏX."""
        if k == 0:
            x = self.view.features(nodes)
            return F.normalize(x, dim=-1) if self._what.unit else x
        found = rows_of(self._files[k - 1], nodes)
        if bool((other := among(nodes, self._changed[k])).any()):
            wanted = torch.unique(nodes[other])
            missing = wanted[~among(wanted, self._known[k][0])]
            if missing.numel():
                self._know(k, missing, self._computed(k, missing))
            ids, rows = self._known[k]
            found[other] = rows[torch.searchsorted(ids, nodes[other])]
        return found

    def _know(self, k: int, nodes: Tensor, rows: Tensor) -> None:
        ids, known = self._known[k]
        order = torch.cat([ids, nodes]).argsort()
        self._known[k] = torch.cat([ids, nodes])[order], torch.cat([known, rows])[order]
        self.recomputed += nodes.numel()

    def _computed(self, k: int, nodes: Tensor) -> Tensor:
        """Rows of PᵏX from those of Pᵏ⁻¹X, by the edges that are left."""
        found: Tensor = self.view.base.x.new_zeros(nodes.numel(), self.view.base.x.size(1))
        which, ids, others = self.view.edges_at(nodes, into=True)
        for first in range(0, which.numel(), EDGES):
            at, edge, other = (part[first : first + EDGES] for part in (which, ids, others))
            value = self._degrees.values(edge, other, nodes[at], self._lost, self.view).to(found)
            found.index_add_(0, at, self._fetch(k - 1, other) * value[:, None])
        loop = self._degrees.loop(nodes, self._lost)
        if loop is not None:
            found += loop.to(found)[:, None] * self._fetch(k - 1, nodes)
        return found

    @cached_property
    def _lost(self) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes that edges into went from, sorted; how much these weighed; and the weight that a loop of it had."""
        view = self.view
        source, target = view.edge_index[:, view.gone]
        nodes, place = torch.unique(target, return_inverse=True)
        weight = edge_values(view.base.get("edge_weight"), view.edge_index, view.gone)
        loop = source == target
        none = torch.zeros(nodes.numel(), dtype=torch.float64)
        plain = self._degrees.counted(weight)
        return nodes, none.index_add(0, place[~loop], plain[~loop]), none.index_add(0, place[loop], plain[loop])

    def _differ(self, view: GraphView) -> Tensor:
        """Which of the rows of features that a view has of its own are not those known here."""
        differ = torch.ones(view.rows.numel(), dtype=torch.bool)
        both = among(view.rows, self._rows)
        if bool(both.any()):
            before = self._x[torch.searchsorted(self._rows, view.rows[both])]
            differ[both] = (view.x[both] != before).any(dim=1)
        return differ

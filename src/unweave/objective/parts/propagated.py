"""Rows of PᵏX of a graph in a folder: computed once for the folder, and after a request only where they changed.

Of a view that lacks something, the rows that differ are known for every k (:meth:`Table.after`), and each is computed
from its neighbours' rows of Pᵏ⁻¹X when somebody asks for it. What nobody asks for is never computed.
"""

from collections.abc import Iterator
from functools import cached_property
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave._core.mapped import rows_of
from unweave.datasets.edges import row_parts
from unweave.graph.edit import mask_of
from unweave.graph.index import among, edge_values
from unweave.graph.view import GraphView
from unweave.models.propagation import Propagation
from unweave.objective.parts.propagating import Degrees, matrix_rows, propagated_files

__all__ = ["Table", "table_of"]

EDGES = 1 << 20
"""Edges that are followed at a time."""

HELD = 1 << 28
"""Bytes of neighbours' rows that are held at a time while rows are computed."""


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
        touched = _reached(view, targets, targets) if looped else targets
        fresh = [rows]
        for _ in range(self._what.steps):
            fresh.append(_reached(view, fresh[-1], _union(touched, fresh[-1]) if looped else touched))
        changed, known = [], []
        for some, there, (ids, values) in zip(fresh, self._changed, self._known, strict=True):
            changed.append(_union(there, some))
            kept = ~among(ids, some)
            known.append((ids[kept], values[kept]))
        return Table(view, self._what, self._degrees, self._files, changed, known)

    def _fetch(self, k: int, nodes: Tensor) -> Tensor:
        """Rows of PᵏX."""
        if k == 0:
            x = self.view.features(nodes)
            return F.normalize(x, dim=-1) if self._what.unit else x
        other = among(nodes, self._changed[k])
        if not bool(other.any()):
            return rows_of(self._files[k - 1], nodes)
        self._renew(k, nodes[other])
        found: Tensor = self._files[k - 1].new_empty(nodes.numel(), self._files[k - 1].size(1))
        found[~other] = rows_of(self._files[k - 1], nodes[~other])
        ids, rows = self._known[k]
        found[other] = rows[torch.searchsorted(ids, nodes[other])]
        return found

    def renew(self, nodes: Tensor) -> None:
        """Compute the rows of some nodes that changed, all at once: neighbours that they share are looked at once."""
        for k in self._what.powers[self._what.all :]:
            self._renew(k, nodes[among(nodes, self._changed[k])])

    def _renew(self, k: int, nodes: Tensor) -> None:
        """Compute rows of PᵏX that nobody has computed yet."""
        missing = torch.unique(nodes[~among(nodes, self._known[k][0])])
        for some in _few(self.view, missing, HELD // self._files[k - 1][:1].nbytes, into=True):
            self._know(k, some, self._computed(k, some))

    def _know(self, k: int, nodes: Tensor, rows: Tensor) -> None:
        ids, known = self._known[k]
        order = torch.cat([ids, nodes]).argsort()
        self._known[k] = torch.cat([ids, nodes])[order], torch.cat([known, rows])[order]
        self.recomputed += nodes.numel()

    def _computed(self, k: int, nodes: Tensor) -> Tensor:
        """Rows of PᵏX from those of Pᵏ⁻¹X, by the edges that are left; every neighbour's is looked at once."""
        which, ids, others = self.view.edges_at(nodes, into=True)
        near, place = torch.unique(others, return_inverse=True)
        sources, targets = (self._degrees.at(some, self._lost) for some in (near, nodes))
        start = F.pad(torch.bincount(which, minlength=nodes.numel()).cumsum(0), (1, 0)).numpy()
        weight = edge_values(self.view.base.get("edge_weight"), self.view.edge_index, ids)
        loops = (nodes[which] == others).numpy()
        rows = self._fetch(k - 1, near)
        matrix = matrix_rows(sources, place.numpy(), targets, start, weight, loops, rows.numpy().dtype)
        found = torch.from_numpy(matrix @ rows.numpy())
        if targets.loop is not None:
            found += targets.loop.to(found)[:, None] * self._fetch(k - 1, nodes)
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


def _few(view: GraphView, nodes: Tensor, edges: int, *, into: bool) -> Iterator[Tensor]:
    """Some nodes after the other, as many as have so many edges; of a hub all are taken."""
    start = (view.index.into if into else view.index.out).start
    count = (start[nodes + 1] - start[nodes]).cumsum(0)
    most = max(1, edges)
    return (nodes[low:high] for low, high in row_parts(F.pad(count, (1, 0)).numpy(), most, most))


def _reached(view: GraphView, nodes: Tensor, also: Tensor) -> Tensor:
    """Who hears some nodes, and some others, sorted; where that is a good part of all nodes, without sorting."""
    parts = list(_few(view, nodes, EDGES, into=False))
    if len(parts) <= 1:
        found: Tensor = torch.unique(torch.cat([view.others_at(nodes, into=False), also]))
        return found
    mask = mask_of(also, view.size)
    for some in parts:
        mask[view.others_at(some, into=False)] = True
    return mask.nonzero().flatten()


def _union(one: Tensor, other: Tensor) -> Tensor:
    """Sorted ids that are in either of two vectors which have each once."""
    if not one.numel() or not other.numel():
        return one if one.numel() else other
    both: Tensor = torch.unique(torch.cat([one, other]))
    return both

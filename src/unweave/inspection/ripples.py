"""What removals do to the outputs of a built-in model, followed through its layers.

A removal changes a few entries of the matrix that messages are propagated by, and a few rows of features. After every
step the rows that changed are known, of many removals at once; a row that did not change is that of the graph as it is,
which all removals share. The work is that of what changes:

    P'm'(v) = a'_v [Σ_u w_uv b_u m_u + Σ_{u changed, edge kept} w_uv (b'_u m'_u − b_u m_u) − Σ_{edge gone} w_uv b_u m_u]

with a = b = d^-½ where messages are normalised by degrees, each node its own neighbour, and a = 1/n, b = 1 for the mean
over n neighbours.

Most of what a removal reaches hardly changes: a hub that loses one of a hundred neighbours tells the others next to
nothing. Where the slopes of the scores by all outputs are given, a sender that moves no output by more than ``QUIET``
is not spread, at whichever step: what it does is its product with the slope of the scores by what it sends, which is
one backward pass for all. Its own row is followed as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave._core.sparse import Matrix, matmul
from unweave.graph.edit import stored_edges
from unweave.graph.index import among, edge_values
from unweave.inspection.forms import Form, State
from unweave.inspection.pairs import ends_of, joined, places, spread
from unweave.inspection.removals import Removals, index_of

__all__ = ["Ripples"]

QUIET = 0.02
"""By how much, in units of the outputs, a sender may move one for its slope to be as good."""

Slopes = Callable[[Tensor, Tensor], Tensor]
"""How scores begin to change with outputs and derivatives of all nodes, from these: ``[nodes, 1 + directions, …]``."""

HELD = 8
"""Numbers that a step holds for each number of the rows that it makes, about."""


@dataclass(frozen=True)
class _Part:
    """Removals ``first`` … ``last`` − 1 on their way: what each takes, and the rows that changed before a step.

    Attributes:
        gone: Removal and id of the stored edges that go, ``[2, m]``, by removal.
        ends: The keys of their sources and targets, ``[2, m]``.
        taken: The same edges as numbers, removal · edges + id, sorted.
        moved: The keys of rows whose degree is another, sorted.
        degree: Which.
        keys: The keys of rows that changed, sorted.
        rows: What they became.
    """

    step: int
    first: int
    last: int
    gone: Tensor
    ends: Tensor
    taken: Tensor
    moved: Tensor
    degree: Tensor
    keys: Tensor
    rows: State


class Ripples:
    """Outputs after removals, of a model that is steps of propagation, and their derivatives along directions.

    Args:
        data: The graph.
        form: The model.
        slopes: Of what is scored, by the outputs of all nodes, from these; without them nothing is left out.
        heeded: Mask of the nodes whose outputs are asked for; all by default.

    Attributes:
        whole: Outputs on the graph as it is, and their derivatives, ``[nodes, directions, outputs]``.
    """

    def __init__(self, data: Data, form: Form, slopes: Slopes | None = None, heeded: Tensor | None = None) -> None:
        self._form, self._heeded, self._x = form, heeded, data.x
        self._edges, self._index, self._size = stored_edges(data), index_of(data), int(data.num_nodes)
        values = edge_values(data.get("edge_weight"), self._edges, None)
        self._loops = form.matrix == "normalised"
        counted = values if self._loops else torch.ones_like(values)
        self._degree = torch.full((self._size,), float(self._loops), dtype=torch.float64, device=self._x.device)
        self._degree.index_add_(0, self._edges[1], counted)
        self._values, self._counted = values.to(self._x), counted
        self._a, self._b = self._scales(self._degree)
        self._remember(slopes)

    def _scales(self, degree: Tensor) -> tuple[Tensor, Tensor]:
        """a and b of some degrees."""
        if self._loops:
            scale = torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt() * (degree > 0)
            scale = scale.to(self._x)
            return scale, scale
        return (1 / degree.clamp(min=1)).to(self._x), torch.ones_like(degree, dtype=self._x.dtype)

    def _remember(self, slopes: Slopes | None) -> None:
        """What all rows send at each step and what they hear, without a; and the slopes by either."""
        entered = tuple(part.detach().requires_grad_(slopes is not None) for part in self._form.enter(self._x))
        self._states: list[State] = [entered]
        self._messages: list[Tensor] = []
        self._heard: list[Tensor] = []
        source, target = self._edges
        matrix = Matrix.of(target, source, self._values, (self._size, self._size))
        with torch.set_grad_enabled(slopes is not None):
            for step in range(self._form.steps):
                message = self._form.message(step, self._states[-1])
                sent = message * self._b[:, None, None] if self._loops else message
                heard = matmul(matrix, sent.flatten(1)).view_as(sent)
                heard = heard + sent if self._loops else heard
                self._messages.append(message)
                self._heard.append(heard)
                before = partial(self._states.__getitem__, step)
                self._states.append(self._form.after(step, heard * self._a[:, None, None], before))
            whole = self._form.leave(self._states[-1])
        self.whole = whole.detach()[:, 0], whole.detach()[:, 1:]
        self._slopes: tuple[Tensor, ...] = ()
        if slopes is not None:
            found = torch.autograd.grad(whole, [*self._heard, *entered], slopes(*self.whole))
            self._slopes, self._entering = found[: self._form.steps], found[self._form.steps :]
            self._back = [matmul(matrix, own.flatten(1), flipped=True).view_as(own) for own in self._slopes]
            self._reaches = self._reach() if self._form.steps else []
        self._messages, self._heard = ([rows.detach() for rows in some] for some in (self._messages, self._heard))
        self._states = [tuple(part.detach() for part in state) for state in self._states]

    def _reach(self) -> list[Tensor]:
        """How far a sender moves outputs at most, at each step, as what it sends moves by 1."""
        source, target = self._edges
        weight, found = self._values.abs() * self._a[target], list[Tensor]()
        own = self._a * self._b if self._loops else torch.full_like(self._a, float(self._form.roots))
        onward = torch.full_like(self._a, self._form.gains[-1])  # of what a row hears last, by a
        for step in reversed(range(self._form.steps)):
            reach = torch.zeros_like(onward).scatter_reduce_(0, source, weight * onward[target], "amax")
            found.insert(0, reach)
            if step:
                onward = self._form.gains[step - 1] * torch.maximum(self._b * reach, own * onward)
        return found

    @property
    def first(self) -> Sequence[str]:
        """The names of the weights that read features."""
        return self._form.first

    def fading(self) -> Tensor:
        """How scores begin to change as each column of features grows, ``[columns]``: Σ_v x_vj ∂Φ/∂x_vj."""
        return self._form.fading(self._x, self._states[0], self._entering)

    def changed(self, removals: Removals, rest: Tensor, most: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """The outputs that change, of some removals after the other: removal, node, outputs, and their derivatives.

        Args:
            removals: The removals.
            rest: One number a removal, to which is added what it does to the scores by outputs that hardly change.
            most: How many numbers may be held at a time.
        """
        waiting = self._begun(removals, most)
        while waiting:
            part = waiting.pop()
            found = self._step(part, rest, None, most)
            if isinstance(found, list):
                waiting += reversed(found)
            elif found.step < self._form.steps:
                waiting.append(found)
            else:
                rows = self._form.leave(found.rows)
                yield found.keys // self._size, found.keys % self._size, rows[:, 0], rows[:, 1:]

    def at(self, removals: Removals, keys: Tensor, most: float) -> Tensor:
        """The derivatives of some outputs alone, of all that change: sorted keys, removal · nodes + node."""
        (start,) = self._begun(removals, float("inf"))
        found, removal = [], keys // self._size
        for part in self._cut(start, removal, self._hearing[keys % self._size], most):
            low, high = torch.searchsorted(removal, torch.tensor([part.first, part.last], device=keys.device)).tolist()
            found.append(self._derivatives(part, self._needed(part, keys[low:high])))
        return torch.cat(found)

    def _derivatives(self, part: _Part, sets: list[Tensor]) -> Tensor:
        for needed in pairwise(sets):
            after = self._step(part, None, needed, float("inf"))
            assert isinstance(after, _Part)
            part = after
        return self._form.leave(part.rows)[:, 1:]

    @cached_property
    def _hearing(self) -> Tensor:
        """How many rows the output of each node depends on, but for the first step, at most."""
        source, target = self._edges
        found = torch.ones_like(self._degree)
        for _ in range(self._form.steps - 1):
            found = 1 + torch.zeros_like(found).index_add_(0, target, found[source])
        return found

    def _begun(self, removals: Removals, most: float) -> list[_Part]:
        """All removals before the first step, in parts; the last ones first."""
        size, gone = self._size, removals.edges
        ends = ends_of(gone, self._edges, size)
        moved, place = torch.unique(ends[1], return_inverse=True)
        degree = self._degree[moved % size].index_add_(0, place, -self._counted[gone[1]])
        degree[degree.abs() < 1e-9] = 0  # what weights leave when all are gone
        keys, nothing = joined(removals.blank[0] * size + removals.blank[1]), self._x.new_zeros(1, self._x.size(1))
        rows = tuple(row.expand(keys.numel(), -1, -1) for row in self._form.enter(nothing))
        taken = (gone[0] * self._edges.size(1) + gone[1]).sort().values
        whole = _Part(0, 0, removals.count, gone, ends, taken, moved, degree, keys, rows)
        counts = torch.bincount(torch.cat([gone[0], keys // size]), minlength=removals.count)
        return self._cut(whole, torch.arange(removals.count, device=keys.device), counts, most)[::-1]

    def _cut(self, part: _Part, removal: Tensor, counts: Tensor, most: float) -> list[_Part]:
        """A part as several, so that so many rows of some removals, in order, may be held; or it has one removal."""
        each = max(1.0, most / (self._form.size * max([1, *(sent.size(-1) for sent in self._messages)]) * HELD))
        total = counts.cumsum(0)
        if part.last - part.first <= 1 or not total.numel() or float(total[-1]) <= each:
            return [part]
        full = ((total - counts).double() / each).floor().diff(prepend=total.new_zeros(1, dtype=torch.float64)) > 0
        starts = removal[full]
        bounds = [part.first, *torch.unique(starts[starts > part.first]).tolist(), part.last]
        return [self._within(part, first, last) for first, last in pairwise(bounds)]

    def _within(self, part: _Part, first: int, last: int) -> _Part:
        """Some removals of a part."""
        size, stored = self._size, self._edges.size(1)
        bounds = torch.tensor([first, last], device=part.keys.device)
        gone, taken, moved, keys = (
            slice(*torch.searchsorted(values.contiguous(), bounds * each).tolist())
            for values, each in ((part.gone[0], 1), (part.taken, stored), (part.moved, size), (part.keys, size))
        )
        return _Part(
            part.step,
            first,
            last,
            part.gone[:, gone],
            part.ends[:, gone],
            part.taken[taken],
            part.moved[moved],
            part.degree[moved],
            part.keys[keys],
            tuple(row[keys] for row in part.rows),
        )

    def _needed(self, part: _Part, wanted: Tensor) -> list[Tensor]:
        """The rows that some outputs depend on, before every step and after the last."""
        found = [wanted]
        for _ in range(self._form.steps):
            which, ids, others = spread(found[0], self._size, self._index.into)
            kept = self._kept(part, (found[0] // self._size)[which], ids)
            found.insert(0, joined(found[0], others[kept]))
        return found

    def _kept(self, part: _Part, removal: Tensor, ids: Tensor) -> Tensor:
        """Which stored edges a removal leaves."""
        return ~among(removal * self._edges.size(1) + ids, part.taken)

    def _step(
        self, part: _Part, rest: Tensor | None, needed: tuple[Tensor, Tensor] | None, most: float
    ) -> _Part | list[_Part]:
        """The rows that changed after a step; or the same removals in parts, where they are too many."""
        size, step = self._size, part.step
        # Who sends something else: rows that changed, and those whose b did.
        own, uneven = self._wanted(part.keys, needed, 0), self._wanted(part.moved if self._loops else None, needed, 0)
        senders, (own_at, uneven_at) = _union(part.keys[own], part.moved[uneven])
        nodes = senders % size
        b = self._b[nodes]
        b[uneven_at] = self._scales(part.degree[uneven])[1]
        other = self._messages[step].index_select(0, nodes)
        before = other * self._b[nodes][:, None, None]
        if own_at.numel():
            other.index_copy_(0, own_at, self._form.message(step, tuple(row[own] for row in part.rows)))
        other.mul_(b[:, None, None]).sub_(before)
        loud, heeded = senders, other
        if rest is not None and self._slopes:
            much = other[:, 0].norm(dim=1) * self._reaches[step][nodes] > QUIET
            loud, heeded = senders[much], other[much]
        out = self._index.out.start
        parts = self._cut(part, loud // size, out[loud % size + 1] - out[loud % size], most)
        if len(parts) > 1:
            return parts
        if loud.numel() < senders.numel():
            self._hush(step, senders[~much], other[~much], part, rest)
        which, ids, receivers = spread(loud, size, self._index.out)
        kept = self._kept(part, (loud // size)[which], ids)
        which, ids, receivers = which[kept], ids[kept], receivers[kept]
        heard, mine, uneven = (self._wanted(keys, needed, 1, step) for keys in (receivers, senders, part.moved))
        found, (heard_at, own_at, uneven_at) = _union(receivers[heard], senders[mine], part.moved[uneven])
        total = self._heard[step].index_select(0, found % size)
        total.index_add_(0, heard_at, heeded.index_select(0, which[heard]) * self._values[ids[heard]][:, None, None])
        place, lost = places(found, part.ends[1])
        source = self._edges[0][part.gone[1][lost]]
        weight = self._values[part.gone[1][lost]] * self._b[source]
        total.index_add_(0, place[lost], self._messages[step].index_select(0, source) * -weight[:, None, None])
        if self._loops:
            total.index_add_(0, own_at, other[mine])
        a = self._a[found % size]
        a[uneven_at] = self._scales(part.degree[uneven])[0]
        rows = self._form.after(step, total.mul_(a[:, None, None]), lambda: self._rows(step, found, part))
        return replace(part, step=step + 1, keys=found, rows=rows)

    def _wanted(
        self, keys: Tensor | None, needed: tuple[Tensor, Tensor] | None, after: int, step: int = -1
    ) -> Tensor | slice:
        """Which rows anybody asks for, before a step or after it."""
        if keys is None:
            return slice(0)
        if needed is not None:
            return places(needed[after], keys)[1]
        if step == self._form.steps - 1 and self._heeded is not None:
            return self._heeded[keys % self._size]
        return slice(None)

    def _hush(self, step: int, senders: Tensor, other: Tensor, part: _Part, rest: Tensor | None) -> None:
        """Add to the rest what senders do that are not spread, but for the edges that are gone."""
        assert rest is not None
        back = self._back[step][senders % self._size] * other
        rest.index_add_(0, senders // self._size, back.sum(dim=(1, 2), dtype=rest.dtype))
        place, there = places(senders, part.ends[0])
        removal, ids = part.gone[:, there]
        slope = self._slopes[step].index_select(0, self._edges[1][ids]) * self._values[ids][:, None, None]
        rest.index_add_(0, removal, -(slope * other.index_select(0, place[there])).sum(dim=(1, 2), dtype=rest.dtype))

    def _rows(self, step: int, wanted: Tensor, part: _Part) -> State:
        """The states of some rows before a step: as they became where they changed, else as they are."""
        place, there = places(wanted, part.keys)
        at, found = wanted % self._size, []
        for known, new in zip(self._states[step], part.rows, strict=True):
            found.append(known.index_select(0, at).index_copy_(0, place[there], new[there]))
        return tuple(found)


def _union(*keys: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Each number once, sorted, and where those of each vector stand."""
    found, place = torch.unique(torch.cat(keys), return_inverse=True)
    return found, torch.split(place, [each.numel() for each in keys])

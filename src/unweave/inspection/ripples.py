"""What removals do to the outputs of a built-in model, followed through its layers.

A removal changes a few entries of the matrix that messages are propagated by, and a few rows of features. After every
step the rows that changed are known, of every removal of a chunk at once; a row that did not change is that of the
graph as it is, which all removals share. Nothing is linearised, and the work is that of what changes:

    P'm'(v) = a'_v [Σ_u w_uv b_u m_u + Σ_{u changed, edge kept} w_uv (b'_u m'_u − b_u m_u) − Σ_{edge gone} w_uv b_u m_u]

with a = b = d^-½ where messages are normalised by degrees, each node its own neighbour, and a = 1/n, b = 1 for the mean
over n neighbours.

Most of what the last step reaches hardly changes. Where the slopes of the scores by all outputs are given, a sender
that moves no output by more than ``QUIET`` is not spread: what it does is its product with the slopes that its
receivers have together.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.graph.edit import stored_edges
from unweave.graph.index import edge_values
from unweave.inspection.forms import Form, State
from unweave.inspection.pairs import ends_of, joined, kept_edges, places, spread
from unweave.inspection.removals import Removals, index_of

__all__ = ["Ripples"]

QUIET = 0.005
"""By how much, in units of the outputs, a sender may move one for its slope to be as good."""


class Ripples:
    """Outputs after removals, of a model that is steps of propagation.

    Args:
        data: The graph.
        form: The model at some parameters.
        slopes: Of what is scored, by the outputs of all nodes at each parameters; without them nothing is left out.

    Attributes:
        whole: Outputs on the graph as it is, at each parameters.
    """

    def __init__(self, data: Data, form: Form, slopes: Sequence[Tensor] | None = None) -> None:
        self._data, self._form = data, form
        self._edges, self._index, self._size = stored_edges(data), index_of(data), int(data.num_nodes)
        self._x = data.x.double()
        self._values = edge_values(data.get("edge_weight"), self._edges, None)
        self._loops = form.matrix == "normalised"
        counted = self._values if self._loops else torch.ones_like(self._values)
        self._degree = torch.full((self._size,), float(self._loops), dtype=torch.float64, device=self._x.device)
        self._degree.index_add_(0, self._edges[1], counted)
        self._counted = counted
        self._widest = 1
        self._remember()
        self._slopes = None if slopes is None else self._told(slopes)

    def _scales(self, degree: Tensor) -> tuple[Tensor, Tensor]:
        """a and b of some degrees."""
        if self._loops:
            scale = torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt() * (degree > 0)
            return scale, scale
        return 1 / degree.clamp(min=1), torch.ones_like(degree)

    def _remember(self) -> None:
        """The states of all rows before each step, and what they hear, without a."""
        self._states: list[State] = [self._form.enter(self._x)]
        self._sent: list[Tensor] = []
        self._heard: list[Tensor] = []
        source, target = self._edges
        a, b = self._scales(self._degree)
        for step in range(self._form.steps):
            sent = self._form.message(step, self._states[-1]) * b[:, None]
            heard = sent.clone() if self._loops else torch.zeros_like(sent)
            for one, total in zip(sent, heard, strict=True):
                total.index_add_(0, target, one[source] * self._values[:, None])
            self._sent.append(sent)
            self._heard.append(heard)
            self._states.append(self._form.after(step, heard * a[:, None], partial(self._states.__getitem__, step)))
            self._widest = max(self._widest, sent.size(-1))
        self.whole = tuple(self._form.leave(self._states[-1]))

    def _told(self, slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Slopes by what each row hears last, their sum over receivers, and how far a sender moves outputs at most."""
        source, target = self._edges
        step, (a, _) = self._form.steps - 1, self._scales(self._degree)
        with torch.enable_grad():
            heard = self._heard[step].detach().requires_grad_()
            state = self._form.after(step, heard * a[:, None], lambda: self._states[step])
            (own,) = torch.autograd.grad(self._form.leave(state), heard, torch.stack(list(slopes)))
        back = torch.zeros_like(own)
        for one, total in zip(own, back, strict=True):
            total.index_add_(0, source, one[target] * self._values[:, None])
        reach = torch.zeros_like(self._degree).scatter_reduce_(0, source, self._values.abs() * a[target], "amax")
        return own, back, reach * self._form.gain

    def sizes(self, removals: Removals) -> Tensor:
        """About how many numbers each removal takes, at most."""
        far = torch.ones(self._size, dtype=torch.float64, device=self._x.device)
        for _ in range(self._form.steps):
            reached = far.clone().index_add_(0, self._edges[0], far[self._edges[1]])
            far = reached
        found = torch.ones(removals.count, dtype=torch.float64, device=far.device)
        found.index_add_(0, removals.blank[0], far[removals.blank[1]])
        for end in self._edges:
            found.index_add_(0, removals.edges[0], far[end[removals.edges[1]]])
        return found * self._widest * 4

    def changed(self, removals: Removals) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """The outputs that change: of which removal, of which node, what they become at each parameters; and the rest.

        The rest is what each removal does to the scores by outputs that hardly change.
        """
        keys, outputs, rest = self._followed(removals, None)
        return keys // self._size, keys % self._size, outputs, rest

    def at(self, removals: Removals, keys: Tensor) -> list[Tensor]:
        """The outputs of some nodes of removals alone, of all that change, in the order of their sorted keys."""
        return self._followed(removals, keys)[1]

    def _followed(self, removals: Removals, wanted: Tensor | None) -> tuple[Tensor, list[Tensor], Tensor]:
        """Keys and outputs of what changes, or of what is wanted of it, and the rest."""
        size, gone = self._size, removals.edges
        ends = ends_of(gone, self._edges, size)
        # Rows whose degree is another.
        moved, place = torch.unique(ends[1], return_inverse=True)
        degree = self._degree[moved % size].index_add_(0, place, -self._counted[gone[1]])
        degree[degree.abs() < 1e-9] = 0  # what weights leave when all are gone
        blank = removals.blank[0] * size + removals.blank[1]
        keys = joined(blank)
        nothing = self._form.enter(self._x.new_zeros(1, self._x.size(1)))
        rows: State = tuple(row.expand(-1, keys.numel(), -1) for row in nothing)
        sets = [] if wanted is None else self._needed(removals, wanted)
        rest = self._degree.new_zeros(removals.count)
        for step in range(self._form.steps):
            needed = None if wanted is None else (sets[step], sets[step + 1])
            keys, rows = self._step(step, removals, keys, rows, moved, degree, ends, rest, needed)
        return keys, list(self._form.leave(rows)), rest

    def _needed(self, removals: Removals, wanted: Tensor) -> list[Tensor]:
        """The rows that some outputs depend on, before every step and after the last."""
        found = [wanted]
        for _ in range(self._form.steps):
            which, ids, others = spread(found[0], self._size, self._index.into)
            kept = kept_edges((found[0] // self._size)[which], ids, removals.edges, self._edges.size(1))
            found.insert(0, joined(found[0], others[kept]))
        return found

    def _scaled(self, keys: Tensor, moved: Tensor, degree: Tensor) -> tuple[Tensor, Tensor]:
        """a' and b' of some rows of removals."""
        place, there = places(moved, keys)
        own = self._degree[keys % self._size]
        return self._scales(torch.where(there, degree[place], own) if moved.numel() else own)

    def _step(
        self,
        step: int,
        removals: Removals,
        keys: Tensor,
        rows: State,
        moved: Tensor,
        degree: Tensor,
        ends: Tensor,
        rest: Tensor,
        needed: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, State]:
        size, stored, gone = self._size, self._edges.size(1), removals.edges
        # Who sends something else: rows that changed, and those whose b did.
        senders = joined(keys, moved) if self._loops else keys
        senders = senders if needed is None else senders[places(needed[0], senders)[1]]
        state = self._rows(step, senders, keys, rows)
        _, b = self._scaled(senders, moved, degree)
        other = self._form.message(step, state) * b[:, None] - self._sent[step].index_select(1, senders % size)
        loud, heeded = senders, other
        if self._slopes is not None and step == self._form.steps - 1:
            much = other.abs().amax(dim=(0, 2)) * self._slopes[2][senders % size] > QUIET
            self._hush(senders[~much], other[:, ~much], gone, ends, rest)
            loud, heeded = senders[much], other[:, much]
        which, ids, receivers = spread(loud, size, self._index.out)
        kept = kept_edges((loud // size)[which], ids, gone, stored)
        which, ids, receivers = which[kept], ids[kept], receivers[kept]
        found = joined(senders, moved, receivers)
        if needed is not None:
            found = found[places(needed[1], found)[1]]
            heeding = places(found, receivers)[1]
            which, ids, receivers = which[heeding], ids[heeding], receivers[heeding]
        heard = self._heard[step].index_select(1, found % size)
        weight = self._values[ids][:, None]
        lost = self._sent[step].index_select(1, self._edges[0][gone[1]]) * self._values[gone[1]][:, None]
        at = places(found, receivers)[0]
        (from_gone, losers), (own, theirs) = (_among(found, some, needed) for some in (ends[1], senders))
        for total, change, sent, less in zip(heard, other, heeded, lost, strict=True):
            total.index_add_(0, at, sent.index_select(0, which) * weight)
            total.index_add_(0, from_gone, -less[losers])
            if self._loops:
                total.index_add_(0, own, change[theirs])
        a, _ = self._scaled(found, moved, degree)
        return found, self._form.after(step, heard * a[:, None], lambda: self._rows(step, found, keys, rows))

    def _hush(self, senders: Tensor, other: Tensor, gone: Tensor, ends: Tensor, rest: Tensor) -> None:
        """Add to the rest what senders do that are not spread, but for the edges that are gone."""
        assert self._slopes is not None
        own, back, _ = self._slopes
        rest.index_add_(0, senders // self._size, (back[:, senders % self._size] * other).sum(dim=(0, 2)))
        place, there = places(senders, ends[0])
        edges = gone[:, there]
        slope = own.index_select(1, self._edges[1][edges[1]]) * self._values[edges[1]][:, None]
        rest.index_add_(0, edges[0], -(slope * other.index_select(1, place[there])).sum(dim=(0, 2)))

    def _rows(self, step: int, wanted: Tensor, keys: Tensor, rows: State) -> State:
        """The states of some rows before a step: as they became where they changed, else as they are."""
        place, there = places(keys, wanted)
        at, changed, found = wanted % self._size, there.nonzero().flatten(), []
        for known, new in zip(self._states[step], rows, strict=True):
            here = known.index_select(1, at)
            found.append(here.index_copy_(1, changed, new.index_select(1, place[changed])))
        return tuple(found)


def _among(found: Tensor, keys: Tensor, needed: object) -> tuple[Tensor, Tensor | slice]:
    """Where some keys stand among those that are found, and which of them do: all, where all are needed."""
    place, there = places(found, keys)
    return (place, slice(None)) if needed is None else (place[there], there)

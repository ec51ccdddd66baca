"""Who of several ranks evaluates which nodes: stretches of nodes whose halos are about as much work.

A node costs what its neighbourhood has, and a hub's costs whoever has one of its neighbours, so that as many nodes each
would not do. Stretches are cut by the edges into each node first. Then every rank takes the halo of its own, all tell
each other how large it was, and the cuts move until the largest is hardly larger than the mean. Stretches follow the
ids; where those tell nothing, an order along the edges (:mod:`unweave.objective.parts.ordering`), if halos are less so.
"""

import math
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from unweave._core import ranks
from unweave._core.memo import Stamp, stamp
from unweave.errors import ModelError
from unweave.graph.neighbourhood import Border, halo
from unweave.graph.view import GraphView
from unweave.models.reach import Reach
from unweave.objective.parts.ordering import places

__all__ = ["Kept", "Share", "Shares", "drawing", "kept_halo", "reduced"]

HALOS = 3
"""Halos that are kept of a graph: of the nodes trained on, of the others, and one more while cuts are moved."""

ROUNDS = 4
"""How often stretches are cut anew."""

EVEN = 1.05
"""The largest work beside the mean that is even enough: cutting again takes a halo, as long as an evaluation or two."""

LARGE = 1.5
"""The largest work beside a share of the graph, from which on another order of the nodes is tried."""


PIECE = 2**24
"""Bytes of a piece's features: half of the 32 MiB from which on glibc has the system map and clear memory each time."""

OVERLAP = 1.1
"""What the halos of the pieces may hold beside that of the block they are cut from."""


@dataclass(frozen=True)
class Share:
    """What one rank evaluates of some nodes, and where the stretches of all of them begin.

    Attributes:
        nodes: All nodes that are shared out, in the order that they are cut in.
        starts: The id, or the place, of the first node of each rank's stretch but the first.
        place: Where each node of the graph stands in that order, where it is not by id.
        work: What each rank's halo holds, nodes and edges, where that was looked at.
    """

    nodes: Tensor
    starts: Tensor
    place: Tensor | None = None
    work: tuple[float, ...] = ()

    @cached_property
    def counts(self) -> list[int]:
        """How many nodes each rank has."""
        known = self.nodes if self.place is None else self.place[self.nodes]
        ends = [0, *torch.searchsorted(known, self.starts).tolist(), self.nodes.numel()]
        return [int(b) - int(a) for a, b in pairwise(ends)]

    @cached_property
    def mine(self) -> Tensor:
        """The nodes of this rank."""
        return self._stretch(self.nodes)

    def _stretch(self, some: Tensor) -> Tensor:
        before = sum(self.counts[: ranks.rank()])
        return some[before : before + self.counts[ranks.rank()]]

    @cached_property
    def _by_id(self) -> Tensor:
        return self.nodes.argsort()

    @cached_property
    def _my_numbers(self) -> Tensor:
        """Which of all nodes by id those of this rank are."""
        numbers = torch.empty_like(self._by_id)
        numbers[self._by_id] = torch.arange(numbers.numel(), device=numbers.device)
        return self._stretch(numbers)

    def my_rows(self, some: Tensor) -> Tensor:
        """Of rows that there is one of for each node, by id, those of this rank's."""
        return self._stretch(some) if self.place is None else some[self._my_numbers]

    def of(self, nodes: Tensor) -> "Share":
        """The same cuts through other nodes, given by id, as they are after a request."""
        return replace(self, nodes=nodes if self.place is None else nodes[self.place[nodes].argsort()])

    def all_rows(self, mine: Tensor) -> Tensor:
        """Rows of all nodes by id, from those of this rank's."""
        if not ranks.joined():
            return mine
        rows = ranks.rows(mine, self.counts)
        return rows if self.place is None else rows[self._by_id]


class Shares:
    """Who evaluates which training nodes, and which others.

    Args:
        view: The graph.
        reach: The message-passing steps of the model; ``None`` where a node is evaluated by itself.
        border: How the rim of a halo comes to its degrees.
        nodes: The training nodes.
        others: All others.
        keeps: Whether every rank keeps its blocks.
        known: Those of another graph of this kind, which is cut in the same places.

    Attributes:
        whole: Whether the block of a rank has all its nodes, because most are training nodes: their outputs then come
            with the losses.
    """

    def __init__(
        self,
        view: GraphView,
        reach: Reach | None,
        border: Border,
        nodes: Tensor,
        others: Tensor,
        keeps: bool,
        known: "Shares | None" = None,
    ) -> None:
        self._view, self._how, self._nodes, self._others, self._keeps = view, (reach, border), nodes, others, keeps
        self._found: dict[bool, Share] = {}
        self.whole = False
        if known is None or not (known._found or (keeps and ranks.joined())):
            return
        if min(known.of().of(nodes).counts):
            self.whole = known.whole
            for which, share in known._found.items():
                self._found[which] = share if self.whole else share.of(others if which else nodes)

    def of(self, *, others: bool = False) -> Share:
        """Who has which nodes of the block that training nodes are in, or of the one for the others."""
        if False not in self._found:
            self._found[False] = self._cut()
        if others not in self._found:
            place = self._found[False].place
            self._found[others] = share_out(self._view, self._others, *self._how, evenly=False, place=place)
        return self._found[others]

    @cached_property
    def trained(self) -> Share:
        """Who has which training nodes."""
        return self.of().of(self._nodes) if self.whole else self.of()

    def _cut(self) -> Share:
        if self._keeps and self._how[0] is not None and 2 * self._nodes.numel() >= self._view.size:
            everyone = torch.arange(self._view.size, device=self._nodes.device)
            found = share_out(self._view, everyone, *self._how, evenly=True)
            self.whole = all(2 * t >= n for t, n in zip(found.of(self._nodes).counts, found.counts, strict=True))
            if self.whole:
                return found
        return share_out(self._view, self._nodes, *self._how, evenly=True)


def share_out(
    view: GraphView, nodes: Tensor, reach: Reach | None, border: Border, *, evenly: bool, place: Tensor | None = None
) -> Share:
    """Cut nodes into a stretch for every rank; where there are no ranks, one has all of them.

    Args:
        view: The graph.
        nodes: Ids of the nodes, sorted.
        reach: The message-passing steps of the model; ``None`` for as many nodes each.
        border: How the rim of a halo comes to its degrees.
        evenly: Whether to look at the halos; otherwise the edges into each node decide.
        place: Where each node of the graph stands in an order to cut in; by id where none is given.
    """
    count = ranks.size()
    if evenly and nodes.numel() < count:
        raise ModelError(
            f"there are {nodes.numel()} training nodes and {count} ranks, so that some would have nothing to do; start "
            f"fewer (--nproc-per-node {max(1, nodes.numel())})"
        )
    if count == 1 or not nodes.numel():
        return Share(nodes, nodes.new_zeros(count - 1))
    if reach is None:
        return Share(nodes, _starts(nodes, torch.ones_like(nodes, dtype=torch.float64), count))
    best = _cut(view, nodes, reach, border, place, ROUNDS if evenly else 0)
    usual = (nodes.numel() / view.size) * (view.size + view.stored_edges) / count
    if evenly and max(best.work) > LARGE * usual and not view.mapped:
        other = _cut(view, nodes, reach, border, places(view), ROUNDS)
        best = min(best, other, key=lambda share: max(share.work))
    return best


def _cut(view: GraphView, nodes: Tensor, reach: Reach, border: Border, place: Tensor | None, rounds: int) -> Share:
    """Cut nodes in some order into stretches, by the edges into each node and then by their halos."""
    count = ranks.size()
    side = view.index.into if reach.flow == "source_to_target" else view.index.out
    nodes = nodes if place is None else nodes[place[nodes].argsort()]
    known = nodes if place is None else place[nodes]
    weight = 1.0 + side.start.diff()[nodes].double()
    share = best = Share(nodes, _starts(known, weight, count), place)
    for _ in range(rounds):
        work = torch.zeros(count, dtype=torch.float64, device=nodes.device)
        work[ranks.rank()] = kept_halo(view, share.mine, reach, border).work
        with ranks.together("sharing out"):
            pass
        work = ranks.total(work)
        share = replace(share, work=tuple(work.tolist()))
        best = share if not best.work or max(share.work) < max(best.work) else best
        if max(share.work) <= EVEN * float(work.mean()):
            break
        of = torch.repeat_interleave(torch.tensor(share.counts, device=nodes.device))
        weight *= (work / torch.zeros_like(work).index_add_(0, of, weight).clamp(min=1e-300))[of]
        share = Share(nodes, _starts(known, weight, count), place)
    return best


class Kept:
    """A block of a rank on the graph that a view is of: it serves all that is left of that graph.

    Args:
        view: That graph.
        roots: The nodes that it is for; the attribute too.
        reach: The message-passing steps of the model.
        border: How the rim of a halo comes to its degrees.

    Attributes:
        halo: Its nodes and edges.
    """

    def __init__(self, view: GraphView, roots: Tensor, reach: Reach, border: Border) -> None:
        self.roots, self._how = roots, (reach, border)
        self.halo = halo(view, roots, reach, border)
        self._made: tuple[ref[Tensor], Stamp | None, Data] | None = None
        self._pieces: tuple[Kept, ...] = ()

    def pieces(self, view: GraphView) -> "tuple[Kept, ...]":
        """Smaller blocks for the same nodes, on a CPU, where their halos together are hardly larger than this one.

        What evaluating a large block holds is read from and written to memory, which all ranks share, and which the
        system clears for each tensor anew; that of a small one stays in the caches, and its memory is used again.
        """
        if not self._pieces:
            x, whole = view.base.x, _whole(view)
            count = math.ceil(self.roots.numel() * x[:1].nbytes / PIECE) if x.device.type == "cpu" else 1
            some = [part for part in self.roots.tensor_split(max(1, count)) if part.numel()]
            middle = Kept(whole, some[len(some) // 2], *self._how) if len(some) > 1 else self
            if len(some) > 1 and middle.work * len(some) <= OVERLAP * self.work:
                self._pieces = tuple(middle if part is middle.roots else Kept(whole, part, *self._how) for part in some)
            else:
                self._pieces = (self,)
        return self._pieces

    @property
    def nodes(self) -> Tensor:
        """Ids of its nodes."""
        return self.halo.nodes

    @property
    def work(self) -> int:
        """How many nodes and edges it has."""
        return self.nodes.numel() + self.halo.edges.numel()

    def data(self, view: GraphView) -> Data:
        """The block as it is in a view, of the same tensors where nothing of them changed."""
        x: Tensor = view.base.x
        known = self._made
        if known is None or known[0]() is not x or known[1] != stamp(x):
            made = self.halo.data(_whole(view))
            if known is not None:
                made.edge_index = known[2].edge_index  # what was read off those is remembered with them
            self._made = known = ref(x), stamp(x), made
        return self.halo.data(view, known[2])


def _whole(view: GraphView) -> GraphView:
    return GraphView.of(view.base) if view.changed else view


def kept_halo(view: GraphView, roots: Tensor, reach: Reach, border: Border) -> Kept:
    """The block of some nodes, kept with the edges of the graph while those live."""
    edges = view.edge_index
    key = (stamp(edges), roots.numel(), zlib.crc32(roots.cpu().numpy().tobytes()), reach, border)
    known = _KEPT.setdefault(edges, {})
    if key not in known:
        while len(known) >= HALOS:
            del known[next(iter(known))]  # the oldest
        known[key] = Kept(_whole(view), roots, reach, border)
    return known[key]


_KEPT: MutableMapping[Tensor, dict[Any, Kept]] = WeakIdKeyDictionary()


def _starts(nodes: Tensor, weight: Tensor, count: int) -> Tensor:
    """The first of nodes, or of their places, in stretches of equal weight, each of at least one where there are."""
    ends = weight.cumsum(0)
    wanted = ends[-1] * torch.arange(1, count, dtype=torch.float64, device=nodes.device) / count
    place = torch.searchsorted(ends, wanted)
    if nodes.numel() >= count:
        number = torch.arange(1, count, device=nodes.device)
        place = (place - number).cummax(0).values + number  # each begins after the one before
        place = place.clamp(min=1).minimum(nodes.numel() - count + number)
    return nodes[place.clamp(max=nodes.numel() - 1)]


def drawing(devices: list[torch.device]) -> Callable[[Tensor], AbstractContextManager[None]]:
    """What to draw a block's random numbers within: among ranks from a seed of the step and of the block.

    Args:
        devices: Those beside the CPU whose random numbers are drawn.
    """
    if not ranks.joined():
        return lambda block: nullcontext()
    step = int(torch.randint(2**40, ()))  # the same on all ranks, whose generators are

    @contextmanager
    def seeded(block: Tensor) -> Iterator[None]:
        with torch.random.fork_rng(devices=devices):
            seed = step * 2**20 + int(block[0]) % 2**20
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed devices that are not given back
            for device in devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield

    return seeded


def reduced(
    added: Callable[[Tensor], Tensor], total: Tensor, sums: list[Tensor | None], parameters: list[nn.Parameter]
) -> tuple[Tensor, list[Tensor | None]]:
    """A loss and the gradients of all ranks, added in double precision; a parameter that none uses has none."""
    parts = [total.reshape(1), total.new_tensor([gradient is not None for gradient in sums])]
    zeros = (torch.zeros_like(parameter) for parameter in parameters)
    parts += [(zero if g is None else g).reshape(-1).double() for g, zero in zip(sums, zeros, strict=True)]
    loss, used, *found = torch.split(added(torch.cat(parts)), [part.numel() for part in parts])
    given = (g.view_as(p).to(p.dtype) for g, p in zip(found, parameters, strict=True))
    return loss[0], [g if some else None for g, some in zip(given, used.tolist(), strict=True)]

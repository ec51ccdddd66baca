"""Predict links: which pairs of nodes belong together. Recommendations are links between users and items."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from unweave._core.memo import remembered
from unweave._core.sparse import dots
from unweave._core.words import listed
from unweave.changes import Change
from unweave.errors import DataError, ModelError, RequestError
from unweave.request import Request
from unweave.tasks.building import apart, assemble, goes_both_ways, refuse_unfit
from unweave.tasks.growth import Growth
from unweave.tasks.more_pairs import pair_growth
from unweave.tasks.naming import check_given, numbers, tuples, within
from unweave.tasks.pairs import MESSAGE, Layout, layout
from unweave.tasks.ranking import auc, hits_at
from unweave.tasks.task import Task

__all__ = ["ABSENT", "Links"]

ABSENT = -30.0
"""Score of a candidate that is gone: it never wins, and its probability is below rounding."""


class Links(Task):
    """A graph whose examples are pairs of nodes: edges, beside pairs drawn at random.

    A pair that was drawn may be an edge by accident, as it is drawn whatever else is there.

    A model gives embeddings, by ``encode(x, edge_index)`` or by its ``forward``;
    a pair is scored by ``decode(z, pairs)``, as in PyG's examples, or where it has none by a dot product. PyG's own
    ``LightGCN`` works as it is.

    The message edges are the training edges, so that deleting one takes it out of the messages and out of the examples,
    with the pairs that were drawn for it. No other pair is drawn anew.
    """

    readout = 1
    metric = "auc"
    flat = True
    lasting = frozenset({"node_type", "table_row"})

    @classmethod
    def of(
        cls,
        data: Data,
        *,
        val: float = 0.05,
        test: float = 0.1,
        negatives: int = 1,
        binary: bool = True,
        seed: int = 0,
    ) -> "Links":
        """Make the edges of a graph examples; some are held out, of messages and of training.

        Args:
            data: With ``x`` and ``edge_index``; labels and masks of nodes are left out.
            val: Share of the edges to validate with.
            test: Share of the edges to test with.
            negatives: Pairs drawn for each edge, with the same head.
            binary: Whether every pair is an example of two classes, as for binary cross-entropy. Otherwise an edge and
                the pairs drawn for it are one example, in which the edge must score highest: with one negative that is
                BPR, with more a sampled softmax.
            seed: Of the split and of the negatives. Those of a pair are drawn by seed and pair alone.
        """
        refuse_unfit(data)
        for name, share in (("val", val), ("test", test)):
            if not 0 <= share < 1 or val + test >= 1:
                raise DataError(f"{name} must be a share of the edges below 1 (both together), got {share}")
        source, target = data.edge_index
        size = data.x.size(0)
        directed = not goes_both_ways(data)
        pairs = data.edge_index.t() if directed else data.edge_index.t()[source <= target]
        pairs = torch.unique(pairs[pairs[:, 0] != pairs[:, 1]], dim=0).cpu()
        parts = apart(pairs, val, test, seed)
        held = torch.cat([parts["val"], parts["test"]])
        out = _keys(held[:, 0], held[:, 1], size)
        stay = ~torch.isin(_keys(source, target, size).cpu(), out)
        stay &= torch.ones_like(stay) if directed else ~torch.isin(_keys(target, source, size).cpu(), out)
        kept = {key: data[key][stay.to(source.device)] for key in ("edge_weight",) if data.get(key) is not None}
        return assemble(
            cls,
            x=data.x,
            types=("node",),
            node_type=torch.zeros(size, dtype=torch.long),
            messages=data.edge_index[:, stay.to(source.device)],
            pairs=parts,
            pool=torch.arange(size),
            negatives=negatives,
            binary=binary,
            directed=directed,
            seed=seed,
            **kept,
        )

    @property
    def layout(self) -> Layout:
        """Where nodes and examples are."""
        spec: dict[str, Any] = self.spec
        return layout(self.edge_index, self.edge_type, self.node_type, len(spec["types"]), spec["candidates"])

    def call(self, model: nn.Module) -> Tensor:
        """Scores of the candidates of every example; of an example of two classes 0 and the score."""
        at = self.layout
        if at.real.numel():
            scores = _scored(model, self.encode(model), at).masked_fill(at.absent, ABSENT)
        else:  # a part of the graph with examples alone, whose nodes are gone
            scores = self.x.new_full(at.absent.shape, ABSENT)
        if self.spec["binary"]:
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        rows = scores.new_zeros((self.node_type.numel(), scores.size(1)))
        return rows.index_copy(0, at.examples, scores)

    def encode(self, model: nn.Module) -> Tensor:
        """What a model makes of the nodes that are no examples, ``[nodes, columns]``."""
        at = self.layout
        weight = self.get("edge_weight")
        more = {} if weight is None else {"edge_weight": _rows(at.message_ids, weight)}
        rows = _rows(at.real, self.table_row)
        known = getattr(model, "num_nodes", None)  # LightGCN's, ours and PyG's
        if isinstance(known, int) and known != self.spec["rows"]:
            raise ModelError(f"the model has embeddings of {known} nodes, the graph has {self.spec['rows']}")
        z = _embedded(model, rows, lambda: _rows(at.real, self.x), at.messages, **more)
        if not isinstance(z, Tensor) or z.dim() != 2 or z.size(0) != at.real.numel():
            got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ModelError(f"the model must give one embedding for each of {at.real.numel()} nodes, got {got}")
        return z

    def dimensions(self, model: nn.Module) -> Mapping[str, int]:
        """Axes as long as an embedding: the columns of a table, the outputs of a layer. One node, alone, tells that."""
        real, none, weight = self.layout.real[:1], self.layout.messages[:, :0], self.get("edge_weight")
        more = {} if weight is None else {"edge_weight": weight[:0]}
        try:
            with torch.no_grad():
                width = _embedded(model.eval(), self.table_row[real], lambda: self.x[real], none, **more).size(-1)
        except Exception:  # a model of somebody's that cannot do without edges, whatever it says then
            return {}
        tables, found = self.tables(model), dict[str, int]()
        for name, value in model.named_parameters():
            axes = [axis for axis, size in enumerate(value.shape) if size == width]
            if axes and value.dim() <= 2 and value.requires_grad:
                found[name] = axes[-1 if name in tables else 0]
        return found

    def true_tails(self) -> Tensor:
        """The position of each example's own tail, −1 where it is gone."""
        at = self.layout
        slot = torch.zeros_like(at.examples) if self.spec["binary"] else self.y[at.examples].clamp(min=0)
        return at.tails.gather(1, slot[:, None])[:, 0]

    def complete(self, request: Request) -> Request:
        """A request with the examples of what it names, and with the edges of the examples it names."""
        at, device = self.layout, self.node_type.device
        size = self.node_type.numel()
        named = _mask(request.nodes, size, device)
        pairs = request.pairs.to(device)
        if bool((at.place[pairs] < 0).any()):
            wrong = pairs[(at.place[pairs] < 0).any(dim=1)]
            raise RequestError(
                f"edges: {listed([tuple(pair) for pair in wrong.tolist()])} leads to an example, which goes with its "
                "pair; name that pair, or a node"
            )
        tail = self.true_tails()
        ends = torch.stack([at.head, tail])
        known = (ends >= 0).all(dim=0)
        plain = torch.where(known, at.real[ends.clamp(min=0)], -1)
        gone = named[at.examples]
        gone = gone | _mask_of(at.for_whom[gone & (at.for_whom >= 0)], gone)  # one that was drawn goes with its own
        gone = gone | (known & named[plain.clamp(min=0)].any(dim=0))
        keys = _keys(plain[0], plain[1], size)
        asked = torch.cat([_keys(pairs[:, 0], pairs[:, 1], size), *self._backwards(pairs, size)])
        own = (self.y[at.examples] > 0) if self.spec["binary"] else torch.ones_like(gone)
        gone = gone | (known & own & torch.isin(keys, asked))
        gone = gone | ((at.for_whom >= 0) & gone[at.for_whom.clamp(min=0)])
        lost = torch.cat([asked, keys[gone & known & own]])
        held = set(keys[gone & known & own].tolist())  # a pair held out is an example and no edge
        strange = [(u, v) for u, v in request.edges if u * size + v not in held and v * size + u not in held]
        edges = set(strange) | set(self._stored(lost, size))
        nodes = {*request.nodes, *at.examples[gone].tolist()}
        return Request(nodes, edges, request.features, request.labels, id=request.id, note=request.note)

    def growth(self, change: Change) -> Growth:
        """New nodes and pairs, each with its messages, its example and what is drawn for it."""
        return pair_growth(self, change, self.own_pairs(), featured=True, between=False)

    def own_pairs(self) -> Tensor:
        """Ids of the two nodes of every pair that is true, held-out ones too, ``[n, 2]``."""
        at = self.layout
        ends = torch.stack([at.head, self.true_tails()])
        own = (ends >= 0).all(dim=0)
        own &= (self.y[at.examples] > 0) if self.spec["binary"] else own
        return at.real[ends[:, own]].t()

    def _backwards(self, pairs: Tensor, size: int) -> list[Tensor]:
        return [] if self.spec["directed"] else [_keys(pairs[:, 1], pairs[:, 0], size)]

    def _stored(self, keys: Tensor, size: int) -> list[tuple[int, int]]:
        """The message edges between some pairs, in both directions where the graph has them so."""
        at = self.layout
        source, target = at.real[at.messages]
        there = torch.isin(_keys(source, target, size), keys)
        if not self.spec["directed"]:
            there |= torch.isin(_keys(target, source, size), keys)
        found = torch.stack([source[there], target[there]], dim=1)
        return [(int(u), int(v)) for u, v in torch.unique(found, dim=0).tolist()]

    def own_edges(self) -> Tensor | None:
        """The message edges."""
        own: Tensor = self.edge_type == MESSAGE
        return own

    def groups(self) -> Sequence[Tensor]:
        """All nodes that are no examples, and where there are several types, those of each."""
        real = self.layout.real
        return [real] if len(self.spec["types"]) == 1 else [real, *super().groups()[:-1]]

    @property
    def both_ways(self) -> bool:
        """Whether a pair and its reverse are one."""
        return not self.spec["directed"]

    def featured(self) -> Tensor:
        """Nodes that are no examples."""
        there: Tensor = super().featured() & (self.node_type < len(self.spec["types"]))
        return there

    def scores(self, model: nn.Module) -> Mapping[str, float]:
        """AUC and hits@20 on validation and test pairs."""
        found: dict[str, float] = {}
        with torch.no_grad():
            outputs = self.call(model)
        for part in ("val", "test"):
            mask = self[f"{part}_mask"]
            positive, negative = self._apart(outputs[mask], self.y[mask])
            if positive.numel() and negative.numel():
                found[f"{part}_auc"] = auc(positive, negative)
                found[f"{part}_hits@20"] = hits_at(20, positive, negative)
        return found

    def _apart(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the pairs that are true, and of those that are not."""
        if self.spec["binary"]:
            return outputs[labels == 1, 1], outputs[labels == 0, 1]
        own = torch.zeros_like(outputs, dtype=torch.bool).scatter_(1, labels[:, None], True)
        there = outputs > ABSENT
        return outputs[own & there], outputs[~own & there]

    def request(
        self,
        nodes: Iterable[int] = (),
        pairs: Iterable[tuple[int, int]] = (),
        *,
        features: Mapping[int, str | Iterable[int]] | None = None,
        id: str | None = None,
        note: str | None = None,
    ) -> Request:
        """What to forget, by the ids of the graph that the examples were made of; new nodes go on from there."""
        check_given({"features": features}, {"features": "{7: 'all'}"})
        named, ends = numbers(nodes, "nodes"), tuples(pairs, 2, "pairs", "(u, v)")
        rows = numbers((features or {}).keys(), "features")
        return Request(
            self._plain(named, "nodes"),
            zip(*(self._plain([pair[k] for pair in ends], "pairs") for k in range(2)), strict=True),
            dict(zip(self._plain(rows, "features"), (features or {}).values(), strict=True)),
            id=id,
            note=note,
        )

    def change(
        self,
        nodes: Iterable[Any] = (),
        pairs: Iterable[Sequence[Any]] = (),
        *,
        features: Mapping[int, Any] | None = None,
        edge_weights: Iterable[Sequence[Any]] = (),
        forget: Request | None = None,
        id: str | None = None,
        note: str | None = None,
    ) -> Change:
        """What to change, by the ids of the graph that the examples were made of.

        Args:
            nodes: Rows of features of new nodes; the first gets the id after the last, the next the one after.
            pairs: New edges (u, v), to train with; with a weight where edges have one.
            features: Corrected features: node → its whole row, or columns with their values.
            edge_weights: Corrected weights (u, v, weight) of edges that are trained on.
            forget: What goes, as :meth:`request` makes it.
            id: Your own name for the change.
            note: A remark.
        """
        rows = list(nodes)

        def named(some: Iterable[Sequence[Any]], what: str) -> list[list[Any]]:
            return [[*self._plain(edge[:2], what, len(rows)), *edge[2:]] for edge in some]

        given = dict(features or {})
        return Change(
            add={"nodes": [{"features": row} for row in rows], "edges": named(pairs, "pairs")},
            correct={
                "features": dict(zip(self._plain(given, "features"), given.values(), strict=True)),
                "edge_weights": named(edge_weights, "edge_weights"),
            },
            forget=forget,
            id=id,
            note=note,
        )

    def _plain(self, some: Iterable[int], what: str, new: int = 0) -> list[int]:
        """Numbers of nodes as ids of the plain graph, where new ones come after all that is there."""
        real, size, some = self.layout.real, self.node_type.numel(), list(some)
        within(some, real.numel() + new, f"{what}: node")
        return [int(real[n]) if n < real.numel() else size + n - real.numel() for n in some]

    @property
    def names(self) -> Sequence[str]:
        """Those of the nodes, then the examples."""
        return (*self.spec["types"], "example")


def _embedded(model: nn.Module, rows: Tensor, x: Callable[[], Tensor], messages: Tensor, **more: Tensor) -> Tensor:
    """Embeddings as a model gives them: of all rows of its table, of some, or of features."""
    if callable(getattr(model, "get_embedding", None)):
        return model.get_embedding(messages, **more)  # type: ignore[no-any-return, operator]
    encode = getattr(model, "encode", None)
    if callable(encode) and "rows" in inspect.signature(encode).parameters:
        return encode(rows, messages, **more)  # type: ignore[no-any-return]
    return (encode if callable(encode) else model)(x(), messages, **more)  # type: ignore[no-any-return]


def _scored(model: nn.Module, z: Tensor, at: Layout) -> Tensor:
    """Scores of the candidates, ``[examples, candidates]``."""
    head, tails = at.wanted
    count, decode = tails.size(1), getattr(model, "decode", None)
    if callable(decode):
        pairs = torch.stack([head.repeat_interleave(count), tails.flatten()])
        scores = decode(z, pairs)
        if not isinstance(scores, Tensor) or scores.numel() != pairs.size(1):
            raise ModelError(f"decode(z, pairs) must give one score for each of {pairs.size(1)} pairs")
        return scores.reshape(-1, count)
    heads, candidates = z.index_select(0, at.heads), z.index_select(0, at.candidates)
    scores = (heads @ candidates.t()).flatten() if at.sparse is None else dots(at.sparse, heads, candidates)
    return scores.index_select(0, at.entry).view_as(tails)


@remembered
def _rows(ids: Tensor, values: Tensor) -> Tensor:
    """Some rows; remembered with their ids, which every graph has its own of, while graphs may share the values."""
    return values.index_select(0, ids)


def _mask(ids: Iterable[int], size: int, device: torch.device) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool, device=device)
    mask[torch.tensor(list(ids), dtype=torch.long, device=device)] = True
    return mask


def _mask_of(numbers: Tensor, like: Tensor) -> Tensor:
    mask = torch.zeros_like(like)
    mask[numbers] = True
    return mask


def _keys(one: Tensor, other: Tensor, size: int) -> Tensor:
    return one * size + other

"""Scores: what every part of the graph does to a quantity, computed when they are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unweave.errors import RequestError
from unweave.graph.index import distinct_edges
from unweave.graph.removal import remove
from unweave.inspection.columns import score_columns
from unweave.inspection.removals import edges_apart, label_removals, node_removals, row_removals
from unweave.inspection.subject import Subject
from unweave.objective.checks import check_classes
from unweave.objective.decay import WeightDecay
from unweave.request import ALL, Request

__all__ = ["KINDS", "TOLD", "Kind", "Order", "Scored", "Scores"]

Kind = Literal["nodes", "labels", "edges", "features", "rows"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Order = Literal["size", "lowers", "raises"]

TOLD: tuple[Kind, ...] = ("nodes", "labels", "edges", "features")
"""What is told where nothing else is asked: a node's row is most of what the node is."""

IMPOSSIBLE = "more than is possible: do not believe the size"

HOW = "the quantity changes by so much; a minus says that it is lower without the item"

NAMES = {"nodes": "node", "labels": "label of node", "edges": "edge", "features": "feature", "rows": "features of node"}


@dataclass(frozen=True)
class Scored:
    """One item and its score.

    Attributes:
        kind: What it is.
        item: A node, a pair of nodes or a column.
        effect: The predicted change of the quantity if it were forgotten and the model retrained.
        possible: Whether the quantity could become what is predicted: no loss is below 0, no difference of
            probabilities beyond 1, and a margin as large as no node has is not believed.
    """

    kind: Kind
    item: int | tuple[int, int]
    effect: float
    possible: bool = True

    @property
    def name(self) -> str:
        """What it is called."""
        what = f"{self.item[0]}–{self.item[1]}" if isinstance(self.item, tuple) else str(self.item)
        return f"{NAMES[self.kind]} {what}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON document."""
        return {"kind": self.kind, "item": self.item, "effect": self.effect, "possible": self.possible}


class Scores:
    """What every part of the graph does to a quantity. ``str(inspection)`` is for people, :meth:`to_dict` for machines.

    A score is the predicted change of the quantity if the item were forgotten and the model trained without it: below
    zero where the item adds to the quantity. Scores are computed when they are first asked for, all of a kind at once.

    Attributes:
        subject: The model, its graph and the direction of the quantity.
        value: The quantity now.
        warnings: Why scores may not be trusted, where they may not. Those of columns come with their scores.
        weight_decay: What the model was trained with.
    """

    def __init__(self, subject: Subject, value: float, warnings: Sequence[str], weight_decay: WeightDecay) -> None:
        self.subject, self.value, self.warnings = subject, value, tuple(warnings)
        self.weight_decay = weight_decay

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.subject.quantity.title}: {self.value:.4g}>"

    @property
    def title(self) -> str:
        """What was asked about, in words."""
        return self.subject.quantity.title

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the scores."""
        return not self.warnings

    @property
    def passes(self) -> float:
        """Sweeps over the graph so far, rows that were evaluated for single removals counted as shares of one."""
        return self.subject.objective.meter.passes

    @cached_property
    def nodes(self) -> Tensor:
        """The effect of deleting each node with its edges, features and label, ``[nodes]``.

        Where the quantity counts the node itself, its own part is left out before and after.
        """
        data = self.subject.objective.data
        there = torch.arange(data.num_nodes, device=data.x.device)
        found = self.subject.scorer.score(node_removals(data, there))
        own = self.subject.quantity.node
        if own is not None:
            found[own] = 0.0
        return found

    @cached_property
    def labels(self) -> Tensor:
        """The effect of no longer using each node's label, ``[nodes]``; zero for nodes that were not trained on."""
        data = self.subject.objective.data
        return self.subject.scorer.score(label_removals(data, torch.arange(data.num_nodes, device=data.x.device)))

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges that are scored, ``[2, edges]``: of an undirected graph each once."""
        return distinct_edges(self.subject.objective.data).t()

    @cached_property
    def edges(self) -> Tensor:
        """The effect of removing each edge of ``edge_index``, ``[edges]``."""
        return self.subject.scorer.score(edges_apart(self.subject.objective.data, self.edge_index.t())[1])

    @cached_property
    def features(self) -> Tensor:
        """The effect of setting each column of features to zero for all nodes, ``[columns]``."""
        found, doubts = score_columns(self.subject)
        self.warnings += tuple(doubts)
        return found

    @cached_property
    def rows(self) -> Tensor:
        """The effect of setting the features of each node to zero, ``[nodes]``."""
        data = self.subject.objective.data
        return self.subject.scorer.score(row_removals(data, torch.arange(data.num_nodes, device=data.x.device)))

    def scores(self, kind: Kind) -> Tensor:
        """The scores of a kind of items."""
        if kind not in KINDS:
            raise RequestError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        found: Tensor = getattr(self, kind)
        return found

    def item(self, kind: Kind, number: int) -> Scored:
        """An item by its place among the scores."""
        scores = self.scores(kind)
        if not 0 <= number < scores.numel():
            raise RequestError(f"there are {scores.numel():,} {kind}, counted from 0, got {number!r}")
        effect = float(scores[number])
        if kind == "edges":
            a, b = self.edge_index[:, number].tolist()
            return Scored(kind, (a, b), effect, self._possible(effect))
        return Scored(kind, number, effect, self._possible(effect))

    def _possible(self, effect: float) -> bool:
        """Whether the quantity may be what it would be; it predicted."""
        return self.subject.quantity.least <= self.value + effect <= self.subject.quantity.most

    def top(self, kind: Kind, k: int = 10, *, order: Order = "size") -> list[Scored]:
        """The items of a kind with the largest scores.

        Args:
            kind: ``"nodes"``, ``"labels"``, ``"edges"``, ``"features"`` or ``"rows"``.
            k: How many.
            order: By ``"size"``, or those whose removal ``"lowers"`` or ``"raises"`` the quantity most.
        """
        if not (isinstance(k, int) and k >= 1):
            raise RequestError(f"k must be a whole number of at least 1, got {k!r}")
        scores = self.scores(kind)
        keys = {"size": scores.abs(), "lowers": -scores, "raises": scores}
        if order not in keys:
            raise RequestError(f"order must be one of {', '.join(keys)}, got {order!r}")
        ranked = keys[order].argsort(descending=True, stable=True)[:k]
        return [self.item(kind, number) for number in ranked.tolist() if keys[order][number] > 0]

    def overall(self, k: int = 10, kinds: Sequence[Kind] = TOLD) -> list[Scored]:
        """The items with the largest scores, of whichever kind."""
        best = [one for kind in kinds for one in self.top(kind, k)]
        return sorted(best, key=lambda one: -abs(one.effect))[:k]

    def request(self, items: Scored | Sequence[Scored]) -> Request:
        """The request that would forget some items."""
        chosen = [items] if isinstance(items, Scored) else list(items)
        by_kind: dict[str, list[Any]] = {kind: [one.item for one in chosen if one.kind == kind] for kind in KINDS}
        features: dict[int, Any] = dict.fromkeys(by_kind["rows"], ALL)
        if by_kind["features"]:
            x = self.subject.objective.data.x
            held = (x[:, by_kind["features"]] != 0).any(dim=1).nonzero().flatten().tolist()
            features = {node: sorted(by_kind["features"]) for node in held} | features
        return Request(nodes=by_kind["nodes"], edges=by_kind["edges"], labels=by_kind["labels"], features=features)

    def group(self, items: Request | Scored | Sequence[Scored]) -> float:
        """The predicted effect of forgetting a group at once: what a subject contributed is the negative of it.

        It is that of the set, on the graph without all of it, not the sum of its scores. Whole columns are added to
        that by their scores: a model without them has no weights on them, and one step on the graph without them does
        not know that.

        Args:
            items: A request, or items as :meth:`top` gives them.
        """
        asked = items if isinstance(items, Request) else self.request(items)
        removal = remove(self.subject.data, asked)  # which also checks it
        columns = self._columns(asked)
        added = float(self.features[columns].sum()) if columns else 0.0
        left = _but(asked, set(columns)) if columns else asked
        if left is None:
            return added
        removal = remove(self.subject.data, left) if columns else removal
        check_classes(self.subject.data, removal.data, self.subject.objective.loss, allowed=True)
        outputs, along = self.subject.outputs(removal.data)
        return added + self.subject.scorer.together(outputs, along, removal.nodes, removal.labels)

    def _columns(self, asked: Request) -> list[int]:
        """The columns that a request takes from all nodes that have them and stay."""
        given = {node: columns for node, columns in asked.features.items() if not isinstance(columns, str)}
        named = sorted({column for columns in given.values() for column in columns})
        place = {column: number for number, column in enumerate(named)}
        left = self.subject.objective.data.x[:, named] != 0
        left[[*asked.nodes, *asked.features.keys() - given.keys()]] = False
        for node, columns in given.items():
            left[node, [place[column] for column in columns]] = False
        return [column for column, gone in zip(named, (~left.any(dim=0)).tolist(), strict=True) if gone]

    def to_dict(self, kinds: Sequence[Kind] = TOLD, k: int = 10) -> dict[str, Any]:
        """The inspection as a JSON document, with the k items of each kind that matter most."""
        found = self.subject.direction
        return {
            "format": "unweave-inspection-1",
            "of": self.subject.quantity.name,
            "title": self.title,
            "unit": self.subject.quantity.unit,
            "value": self.value,
            "top": {kind: [one.to_dict() for one in self.top(kind, k)] for kind in kinds},
            "solve": {
                "curvature": found.curvature,
                "damping": found.damping,
                "iterations": found.report.iterations,
                "residual": found.report.relative_residual,
            },
            "trusted": self.trusted,
            "warnings": list(self.warnings),
            "passes": self.passes,
        }

    def table(self, kinds: Sequence[Kind] = TOLD, k: int = 5) -> str:
        """The items of each kind that matter most, as a table for people."""
        unit = f" {self.subject.quantity.unit}" if self.subject.quantity.unit else ""
        lines = [("Quantity", self.title), ("Now", f"{self.value:.5g}{unit}"), ("If gone", HOW)]
        for kind in kinds:
            found = self.top(kind, k)
            rows = [self._row(one) for one in found] or [f"{'none':>11}"]
            lines += [(kind if i == 0 else "", row) for i, row in enumerate(rows)]
        report = self.subject.direction.report
        solved = f"by the {self.subject.direction.curvature}, to a relative residual of {report.relative_residual:.2g}"
        lines += [("Solved", f"{solved}; {self.passes:.0f} passes in all")]
        lines += [("Trust" if i == 0 else "", text) for i, text in enumerate(self.warnings or (self._trust,))]
        return "\n".join(f"{title:<10}{text}" for title, text in lines)

    def _row(self, one: Scored) -> str:
        turned = self.value > 0 > self.value + one.effect
        said = IMPOSSIBLE if not one.possible else self.subject.quantity.below if turned else ""
        return f"{one.effect:>+11.4g}  {one.name}{f'  ({said})' if said else ''}"

    @property
    def _trust(self) -> str:
        agreement = self.subject.prepared.agreement
        if agreement is None:
            return "the model is at a minimum; whether another training would end there too was not tried"
        return f"the model is at a minimum, and another seed ends at the same one (agreement {agreement:.2f} of 1)"

    def __str__(self) -> str:
        return self.table()


def _but(request: Request, columns: set[int]) -> Request | None:
    """A request less some columns of features; ``None`` where nothing is left."""
    kept: dict[int, Any] = {
        node: named if isinstance(named, str) else [column for column in named if column not in columns]
        for node, named in request.features.items()
    }
    kept = {node: named for node, named in kept.items() if named}
    if not (request.nodes or request.edges or request.labels or kept):
        return None
    return Request(nodes=request.nodes, edges=request.edges, features=kept, labels=request.labels)

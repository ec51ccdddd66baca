"""Suspects: what is believed to be wrong, how sure that is, and why, in words."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.repairing.edges import EVIDENCE, Edges
from unweave.repairing.labels import Labels
from unweave.repairing.rows import Rows
from unweave.repairing.triggers import Trigger
from unweave.repairing.unseen import Unseen

__all__ = [
    "Kind",
    "Suspect",
    "false_share",
    "suspect_edges",
    "suspect_labels",
    "suspect_rows",
    "suspect_triggers",
    "within",
]

Kind = Literal["triggers", "labels", "edges", "features"]


@dataclass(frozen=True)
class Suspect:
    """One label, edge or row of features that may be wrong.

    Attributes:
        kind: ``labels``, ``edges``, ``features`` or ``triggers``.
        item: The node whose label or features it is, or that carries a trigger, or both ends of the edge.
        wrong: How probable it is that it is wrong; of an edge, that it joins its ends by chance; of features, that they
            are another node's.
        why: What speaks against it, in words.
        label: Of a label, what it is.
        better: Of a label, the class that is most probable instead.
        sure: How probable that class is.
        action: What was done: ``left``, ``forgotten`` or ``relabelled``.
        round: When, from 1; 0 where nothing was done.
    """

    kind: Kind
    item: tuple[int, ...]
    wrong: float
    why: str
    label: int | None = None
    better: int | None = None
    sure: float | None = None
    action: Literal["left", "forgotten", "relabelled"] = "left"
    round: int = 0

    @property
    def name(self) -> str:
        """What it is, for people."""
        if self.kind == "edges":
            return f"edge {self.item[0]}–{self.item[1]}"
        if self.kind == "features":
            return f"features of node {self.item[0]}"
        return f"label of node {self.item[0]}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON document."""
        return asdict(self) | {"item": list(self.item)}


def within(wrong: Tensor, share: float) -> Tensor:
    """The most suspect items, most suspect first, of which no larger share than this is expected to be right.

    An item is right with probability 1 − ``wrong``, so the expected share of right ones among the first k is the mean
    of that over them.
    """
    value, order = wrong.sort(descending=True, stable=True)
    running = (1 - value).cumsum(0) / torch.arange(1, value.numel() + 1, device=value.device)
    return order[: int((running <= share).sum())]


def false_share(suspects: "list[Suspect]") -> float | None:
    """The share of some suspects that is expected to be right; ``None`` of none."""
    return sum(1 - suspect.wrong for suspect in suspects) / len(suspects) if suspects else None


def suspect_labels(data: Data, seen: Unseen, found: Labels, chosen: Tensor) -> list[Suspect]:
    """Labels as suspects, in the order given."""
    around, count = found.around.argmax(dim=1), found.count
    suspects = []
    for node in chosen.tolist():
        label, belief = int(data.y[node]), found.log_class[node].exp().clone()
        wrong, said = float(found.wrong[node]), int(seen.log_p[node].argmax())
        belief[label] = -1
        better = int(belief.argmax())
        why = f"labelled {label}; a model that has not seen it says {said} ({float(seen.log_p[node, said].exp()):.0%})"
        if int(count[node]):
            verb = "speak" if int(count[node]) > 1 else "speaks"
            why += (
                f"; {int(count[node])} labelled neighbour{'s' * (int(count[node]) > 1)} {verb} for {int(around[node])}"
            )
        together = int(found.log_p[node].argmax())
        why += f"; with its features and theirs, {together} ({float(found.log_p[node, together].exp()):.0%})"
        suspects.append(Suspect("labels", (node,), wrong, why, label=label, better=better, sure=float(belief[better])))
    return suspects


def suspect_edges(found: Edges, labels: Labels, chosen: Tensor) -> list[Suspect]:
    """Edges as suspects, in the order given."""
    usual = {name: found.usual[:, i].sort().values for i, name in enumerate(EVIDENCE)}
    believed = labels.log_class.argmax(dim=1).cpu()
    suspects = []
    for edge in chosen.tolist():
        u, v = found.pairs[edge].tolist()
        own = dict(zip(EVIDENCE, found.evidence[edge].tolist(), strict=True))
        a, b, oftener = int(believed[u]), int(believed[v]), math.exp(own["classes"])
        parts = [
            f"looks like a pair by chance: classes {a} and {b} meet {oftener:.2g} times as often as by chance",
            f"features more alike than of {_below(usual['features'], own['features']):.0%} of chance pairs",
            "no neighbour in common" if own["neighbours"] <= 0 else "neighbours in common",
        ]
        suspects.append(Suspect("edges", (u, v), float(found.wrong[edge]), "; ".join(parts)))
    return suspects


def suspect_rows(found: Rows, chosen: Tensor) -> list[Suspect]:
    """Features as suspects, in the order given."""
    usual = found.usual.sort().values
    suspects = []
    for node in chosen.tolist():
        why = (
            f"speak for class {int(found.says[node])}, label and neighbours for {int(found.expected[node])}; more like "
            f"the neighbours' than {_below(usual, float(found.alike[node])):.0%} of other nodes' would be"
        )
        suspects.append(Suspect("features", (node,), float(found.wrong[node]), why))
    return suspects


def suspect_triggers(data: Data, found: list[Trigger]) -> list[Suspect]:
    """Carriers of triggers as suspects, the surest pattern first."""
    suspects = []
    for trigger in sorted(found, key=lambda trigger: -trigger.wrong):
        shown = ", ".join(map(str, trigger.columns[:COLUMNS])) + ", …" * (len(trigger.columns) > COLUMNS)
        why = (
            f"carries a pattern of features (column{'s' * (len(trigger.columns) > 1)} {shown}) that goes with label "
            f"{trigger.target} where neighbours contradict it; {len(trigger.nodes)} training nodes do"
        )
        for node in trigger.nodes:
            suspects.append(Suspect("triggers", (node,), trigger.wrong, why, label=int(data.y[node])))
    return suspects


COLUMNS = 8
"""Columns of a pattern that are named."""


def _below(values: Tensor, value: float) -> float:
    return float(torch.searchsorted(values, torch.tensor(value, dtype=values.dtype))) / max(values.numel(), 1)

"""The answer of an inspection: scores, groups, and their proof by removal."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from unweave.inspection.groups import Community, Strongest, communities, contribution, strongest
from unweave.inspection.proof import Confirmation, Rehearsed, confirm, rehearse
from unweave.inspection.scores import TOLD, Kind, Scores
from unweave.methods import Method
from unweave.request import Request
from unweave.training.recipe import Recipe

__all__ = ["Inspection"]


class Inspection(Scores):
    """What every part of the graph does to a quantity. ``str(inspection)`` is for people, :meth:`to_dict` for machines.

    A score is the predicted change of the quantity if the item were forgotten and the model trained without it: below
    zero where the item adds to the quantity. Scores are computed when they are first asked for, all of a kind at once.
    """

    def confirm(
        self,
        k: int = 5,
        kind: Kind | Sequence[Kind] | None = None,
        *,
        method: str | Method = "gif",
        recipe: Recipe | None = None,
    ) -> Confirmation:
        """Forget the k items of largest score, each by itself and all together, and compare with what was predicted.

        Args:
            k: How many.
            kind: Of which kind, or kinds; of nodes, labels, edges and features by default.
            method: ``"gif"``, or ``"retrain"`` with a recipe.
            recipe: How the model was trained.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        return confirm(self, self.overall(k, TOLD if kinds is None else kinds), method, recipe=recipe)

    def rehearse(self, kind: Kind = "edges", removals: int = 12, *, seed: int = 0) -> Rehearsed:
        """Carry out a few removals, and see how good scores of that kind are: an interval, and a warning.

        Args:
            kind: Of which items.
            removals: How many, at least 8; half of them of the largest scores.
            seed: Of those that are drawn.
        """
        return rehearse(self, kind, removals, seed=seed)

    def strongest(self, kind: Kind, k: int, *, order: Literal["lowers", "raises"] = "lowers") -> Strongest:
        """The k items that together lower, or raise, the quantity most: effects interact, so these are not the top k.

        Args:
            kind: ``"nodes"``, ``"labels"``, ``"edges"`` or ``"rows"``.
            k: How many.
            order: Whether to lower or to raise.
        """
        return strongest(self, kind, k, order=order)

    def communities(self, parts: Tensor | None = None, *, most: int = 20) -> list[Community]:
        """What whole communities do to the quantity, those of largest effect first.

        Args:
            parts: The number of each node's community; by label propagation where none is given.
            most: How many are looked at, the largest ones.
        """
        return communities(self, parts, most=most)

    def contribution(self, request: Request) -> float:
        """What a subject contributed to the quantity: it would be so much less had it never been there."""
        return contribution(self, request)

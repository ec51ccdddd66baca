"""Recommend items to users."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.changes import Change
from unweave.errors import DataError, RequestError
from unweave.request import Request
from unweave.tasks.building import apart, assemble
from unweave.tasks.growth import Growth
from unweave.tasks.links import Links
from unweave.tasks.more_pairs import pair_growth
from unweave.tasks.naming import numbers, tuples, within
from unweave.tasks.ranking import ndcg_at, recall_at

__all__ = ["Recommendation"]

USER, ITEM = 0, 1
TOP = 20
ROWS = 1024
"""Users that are ranked at a time."""


class Recommendation(Links):
    """Users, items, and who chose what: an example is an interaction beside items that were drawn for it.

    In the plain graph users come first, then items, then examples. A deleted user's row of an embedding table is set to
    zero, and its pull on every other row is forgotten with it.
    """

    metric = f"recall@{TOP}"

    @classmethod
    def of(  # type: ignore[override]
        cls,
        interactions: Any,
        *,
        users: int | None = None,
        items: int | None = None,
        test: Any = None,
        val: float = 0.1,
        negatives: int = 32,
        seed: int = 0,
    ) -> "Recommendation":
        """Make interactions examples.

        Args:
            interactions: Pairs (user, item), ``[n, 2]``, numbers from 0 on, of users and of items apart. Of equal ones
                one counts.
            users: How many users there are; by default up to the largest number.
            items: How many items, likewise.
            test: Interactions to test with, in the same form; by default a tenth, at random.
            val: Share of the others that are held out to validate with.
            negatives: Items drawn for each interaction, which it must score higher than.
            seed: Of what is held out and of the items drawn. Those of an interaction are drawn by seed and interaction
                alone.
        """
        own = _pairs(interactions, "interactions")
        tested = None if test is None else _pairs(test, "test")
        everything = own if tested is None else torch.cat([own, tested])
        users, items = (
            _count(n, everything[:, k], name) for k, (n, name) in enumerate([(users, "users"), (items, "items")])
        )
        tenth = 0.1 if tested is None else 0.0
        if not 0 <= val < 1 - tenth:
            raise DataError(f"val must be a share of the interactions below {1 - tenth:g}, got {val}")
        parts = apart(own, val, tenth, seed)
        if tested is not None:
            known = torch.isin(tested[:, 0] * items + tested[:, 1], own[:, 0] * items + own[:, 1])
            if bool(known.any()):
                u, i = tested[known][0].tolist()
                raise DataError(f"interaction ({u}, {i}) is there both to train and to test; leave it out of one")
            parts["test"] = tested
        shifted = {name: part + torch.tensor([0, users]) for name, part in parts.items()}
        chosen = shifted["train"].t()
        return assemble(
            cls,
            x=torch.ones(users + items, 1),
            types=("user", "item"),
            node_type=torch.cat([torch.full((users,), USER), torch.full((items,), ITEM)]),
            messages=torch.cat([chosen, chosen.flip(0)], dim=1),
            pairs=shifted,
            pool=users + torch.arange(items),
            negatives=negatives,
            binary=False,
            directed=False,
            seed=seed,
        )

    def complete(self, request: Request) -> Request:
        """A request with the examples of what it names; users and items have no features to revoke."""
        if request.features:
            raise RequestError(
                "features: users and items have none but their number; name users, items or interactions"
            )
        return super().complete(request)

    def growth(self, change: Change) -> Growth:
        """New users, items and interactions, each with its example and the items drawn for it."""
        present = self.x.flatten(1).any(dim=1)
        named = [end for edge in change.add.edges for end in edge[:2] if end < present.numel()]
        named += [end for node in change.add.nodes for end, _ in node.edges if end < present.numel()]
        gone = [end for end in named if not present[end] and int(self.node_type[end]) <= ITEM]
        if gone:
            raise RequestError(f"add.edges: {gone[0]}: deleted, and a number is never used again; add it as a new one")
        return pair_growth(self, change, self.own_pairs(), featured=False, between=True)

    @property
    def num_node_features(self) -> int:
        """Users and items: who has no features is known by its number, and a table has a row for each."""
        return self.layout.real.numel()

    def featured(self) -> Tensor:
        """Nobody: who has no features is known by its number."""
        return torch.zeros_like(self.train_mask)

    def nodes_of(self, kind: str) -> Tensor:
        """Ids in the plain graph of all users, or of all items, in their own order."""
        ids: Tensor = (self.node_type == self.spec["types"].index(kind)).nonzero().flatten()
        return ids

    def request(  # type: ignore[override]
        self,
        users: Iterable[int] = (),
        items: Iterable[int] = (),
        interactions: Iterable[tuple[int, int]] = (),
        *,
        id: str | None = None,
        note: str | None = None,
    ) -> Request:
        """What to forget, by the numbers of users and items.

        Raises:
            RequestError: There is no such user, item or interaction.
        """
        own, other = self.nodes_of("user"), self.nodes_of("item")
        pairs = tuples(interactions, 2, "interactions", "(user, item)")
        return Request(
            [*_named(users, own, "user"), *_named(items, other, "item")],
            zip(_named([u for u, _ in pairs], own, "user"), _named([i for _, i in pairs], other, "item"), strict=True),
            id=id,
            note=note,
        )

    def change(  # type: ignore[override]
        self,
        users: int = 0,
        items: int = 0,
        interactions: Iterable[tuple[int, int]] = (),
        *,
        forget: Request | None = None,
        id: str | None = None,
        note: str | None = None,
    ) -> Change:
        """What to change, by the numbers of users and items.

        Args:
            users: How many new users there are; the first gets the number after the last, the next the one after.
            items: How many new items, likewise.
            interactions: New pairs (user, item), to train with, among old and new ones.
            forget: What goes, as :meth:`request` makes it.
            id: Your own name for the change.
            note: A remark.
        """
        size, kinds = self.node_type.numel(), ("user", "item")
        new = [_more(count, f"{kind}s") for count, kind in zip((users, items), kinds, strict=True)]
        own = {
            kind: torch.cat([self.nodes_of(kind).cpu(), torch.arange(first, first + count)])
            for kind, first, count in zip(kinds, (size, size + new[0]), new, strict=True)
        }
        pairs = tuples(interactions, 2, "interactions", "(user, item)")
        ends = [_named([pair[k] for pair in pairs], own[kind], kind) for k, kind in enumerate(kinds)]
        return Change(
            add={
                "nodes": [{"type": kind} for kind, count in zip(kinds, new, strict=True) for _ in range(count)],
                "edges": list(zip(*ends, strict=True)),
            },
            forget=forget,
            id=id,
            note=note,
        )

    def log_probabilities(self, model: nn.Module, users: Tensor | None = None) -> Tensor:
        """log softmax over all items that are there, ``[users, items]``, for some users by number, or for every one."""
        own = self.nodes_of("user")
        with torch.no_grad():
            scores = self._all(model, self.encode(model.eval()), own if users is None else own[users])
        return F.log_softmax(scores.masked_fill(~self._present(), -torch.inf), dim=1)

    def scores(self, model: nn.Module) -> Mapping[str, float]:
        """recall@20 and nDCG@20 on the interactions held out, among all items a user did not choose before."""
        at, found = self.layout, dict[str, float]()
        with torch.no_grad():
            z = self.encode(model.eval())
        tail = self.true_tails()
        for part, known in (("val", ("train",)), ("test", ("train", "val"))):
            mask = self[f"{part}_mask"][at.examples]
            seen = torch.stack([self[f"{name}_mask"][at.examples] for name in known]).any(dim=0)
            if bool(mask.any()):
                hit, relevant = self._ranked(model, z, (at.head[mask], tail[mask]), (at.head[seen], tail[seen]))
                found[f"{part}_recall@{TOP}"] = recall_at(TOP, hit, relevant)
                found[f"{part}_ndcg@{TOP}"] = ndcg_at(TOP, hit, relevant)
        return found

    def _ranked(
        self, model: nn.Module, z: Tensor, wanted: tuple[Tensor, Tensor], seen: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Which of the first items of every user with something held out are that, and how much that is."""
        items = self.nodes_of("item")
        column = torch.full((z.size(0),), -1, dtype=torch.long, device=z.device)
        column[self.layout.place[items]] = torch.arange(items.numel(), device=z.device)
        present = self._present()
        users, hits, relevant = torch.unique(wanted[0]), [], []
        for some in torch.split(users, ROWS):
            row = torch.full((z.size(0),), -1, dtype=torch.long, device=z.device)
            row[some] = torch.arange(some.numel(), device=z.device)
            with torch.no_grad():
                scores = self._all(model, z, self.layout.real[some])
            truth = torch.zeros_like(scores, dtype=torch.bool)
            for (who, what), into in ((seen, scores), (wanted, truth)):
                here = (row[who] >= 0) & (what >= 0)
                into[row[who[here]], column[what[here]]] = True if into is truth else -torch.inf
            scores[:, ~present] = -torch.inf
            hits.append(truth.gather(1, scores.topk(min(TOP, scores.size(1)), dim=1).indices))
            relevant.append(truth.sum(dim=1).clamp(min=1))
        return torch.cat(hits), torch.cat(relevant)

    def _all(self, model: nn.Module, z: Tensor, users: Tensor) -> Tensor:
        """Scores of all items for some users, given by their ids."""
        place = self.layout.place
        own, items = place[users], place[self.nodes_of("item")]
        decode = getattr(model, "decode", None)
        if not callable(decode):
            return z[own] @ z[items].t()
        pairs = torch.stack([own.repeat_interleave(items.numel()), items.repeat(own.numel())])
        return torch.cat([decode(z, some).flatten() for some in torch.split(pairs, 2**20, dim=1)]).view(
            own.numel(), items.numel()
        )

    def _present(self) -> Tensor:
        """Which items are not deleted: a deleted one has no features."""
        there: Tensor = self.x[self.nodes_of("item")].flatten(1).any(dim=1)
        return there


def _pairs(given: Any, name: str) -> Tensor:
    try:
        found = torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} must be whole numbers of shape [n, 2], one user and one item a row: {error}"
        ) from error
    if found.dim() != 2 or found.size(1) != 2 or found.is_floating_point() or found.dtype == torch.bool:
        raise DataError(
            f"{name} must be whole numbers of shape [n, 2], one user and one item a row, got {found.dtype} of shape "
            f"{tuple(found.shape)}"
        )
    if not found.numel() or int(found.min()) < 0:
        raise DataError(f"{name} must name at least one user and item, with numbers from 0 on")
    distinct: Tensor = torch.unique(found.long(), dim=0)
    return distinct


def _count(given: int | None, used: Tensor, name: str) -> int:
    least = int(used.max()) + 1
    if given is not None and given < least:
        raise DataError(f"{name}={given}, but number {least - 1} occurs; there are at least {least}")
    return least if given is None else int(given)


def _more(count: Any, what: str) -> int:
    if type(count) is not int or count < 0:
        raise RequestError(f"{what}: say how many new ones there are, a whole number from 0 on; got {count!r}")
    return count


def _named(some: Iterable[int], ids: Tensor, kind: str) -> list[int]:
    """Ids in the plain graph of some users or items."""
    wanted = numbers(some, f"{kind}s")
    within(wanted, ids.numel(), kind)
    return [int(ids[number]) for number in wanted]

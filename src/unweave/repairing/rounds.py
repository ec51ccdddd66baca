"""Rounds of a repair: detect, try, and keep what helps.

A step is one kind of suspects: some are forgotten (a request), and labels whose right value is plain are corrected (a
change). Validation nodes choose how much goes and decide whether that is kept, and no node does both: they are dealt
into ten folds, and what nine of them like is judged by the tenth. So all of them decide, and none by its own choice.
What is liked is the middle one of the removals whose loss is within one standard error of the least. Detection itself
fits a few weights to one half of the nodes, and looks at nothing else of them.
"""

from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from unweave.changes import Change
from unweave.errors import RequestError, SolverError
from unweave.repairing.checks import halves
from unweave.repairing.deciding import Score, better, crossed, liked, moved, same, score_on
from unweave.repairing.edges import judge_edges
from unweave.repairing.features import feature_rows
from unweave.repairing.labels import Labels, judge_labels
from unweave.repairing.rows import judge_rows
from unweave.repairing.suspects import (
    Kind,
    Suspect,
    false_share,
    suspect_edges,
    suspect_labels,
    suspect_rows,
    suspect_triggers,
    within,
)
from unweave.repairing.triggers import find_triggers
from unweave.repairing.unseen import Unseen, deal, unseen
from unweave.request import Request
from unweave.run.run import Run

__all__ = ["SHOWN", "Step", "Watch", "judge", "on_cpu", "step"]

LOOKS = 3
"""At labels, each by a model without what was doubted at the one before. On Cora with three labels in ten wrong (to the
nearest class), a GCN finds them with an average precision of 0.79, 0.84, 0.86 and 0.86."""

SETTLED = 0.01
"""Share of the labels that may be doubted anew, or no longer, where it is settled which are."""

WAYS = 5
"""How much goes is tried so many times: all that is allowed, and each time fewer right ones for each wrong one."""

FEWER = 2.5
"""Times fewer right ones for each wrong one, from one try to the next."""

SHARES: dict[Kind, float] = {"triggers": 0.1, "labels": 0.5, "edges": 0.95, "features": 0.5}
"""Expected shares of false discoveries that are allowed, of which validation nodes choose how much is used: to be
without what is right costs less than to keep what is wrong. An edge that looks like chance carries little, unless it is
the last of a node, and one that was planted was planted where it harms most. Backdoors are not seen by validation
nodes, so that only what is nearly sure goes."""

TENTHS, DEALS = 10, 10
"""Folds of the validation nodes, and how many times they are dealt: what nine tenths like is nearly what all like, and
no decision hangs on how the nodes were dealt."""

PLAIN = 0.9
"""Probability from which a class is plain enough to correct a label to it: a wrong correction harms like a wrong label,
where one that is forgotten is only missed."""


@dataclass(frozen=True)
class Step:
    """One kind of suspects in one round.

    Attributes:
        round: From 1.
        kind: ``labels``, ``edges``, ``features`` or ``triggers``.
        suspects: How many were proposed.
        expected_false: The share of them that is expected to be right as it is.
        forgotten: How many were forgotten in what was tried last.
        relabelled: How many were corrected.
        kept: Whether it was kept.
        why: Why, or why not.
        before: The validation nodes before.
        after: The validation nodes after; ``None`` where nothing was tried.
        requests: Digests of the request and the change, as the receipts have them.
    """

    round: int
    kind: Kind
    suspects: int
    expected_false: float | None
    forgotten: int
    relabelled: int
    kept: bool
    why: str
    before: Score
    after: Score | None
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Watch:
    """Who looks at what: the options of a repair, and what was found of the run looked at last.

    Attributes:
        halves: Masks of the two halves of the validation nodes.
        dealt: Of each validation node, the fold that judges what the others like, ``[deals, nodes]``.
        share: Share of false discoveries that is allowed; by kind (:data:`SHARES`) where it is ``None``.
        folds: Models that have each forgotten a part of the labels.
        seed: For all that is drawn.
        begun: The validation nodes at the very beginning.
        known: The run that was judged last, with what was found.
    """

    halves: tuple[Tensor, Tensor]
    dealt: Tensor
    share: float | None
    folds: int
    seed: int
    begun: Score
    known: dict[int, tuple[Run, Unseen, Labels]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, share: float | None, folds: int, seed: int) -> "Watch":
        """Who looks at a run at the very beginning."""
        both = halves(run, seed)
        nodes = both[0] | both[1]
        dealt = torch.stack([deal(run.data.y, nodes, TENTHS, seed + number)[nodes] for number in range(DEALS)]).cpu()
        return cls(both, dealt, share, folds, seed, score_on(run, both))

    def share_of(self, kind: Kind) -> float:
        """The share of false discoveries that is allowed of a kind."""
        return SHARES[kind] if self.share is None else self.share

    def labels_of(self, run: Run) -> tuple[Unseen, Labels]:
        """What is believed of the labels of a run.

        They are looked at until it is settled which are doubted, some times at most: what is doubted at one look speaks
        neither for nor against its neighbours at the next, by a model that has forgotten it.
        """
        if id(run) not in self.known:
            here, data, found = run, on_cpu(run.data), None
            rows, trusted = self._rows(data), self.halves[0].cpu()
            for number in range(LOOKS):
                seen = unseen(here, folds=self.folds, seed=self.seed)
                last, found = found, judge_labels(data, seen, trusted, rows, found)
                old = torch.zeros_like(found.doubted) if last is None else last.doubted
                if int((found.doubted ^ old).sum()) <= SETTLED * int(run.data.train_mask.sum()) or number == LOOKS - 1:
                    break
                labels = found.doubted.nonzero().flatten().tolist()
                try:
                    # Prepared once, and not for every fold that takes the graph past what the old curvature serves.
                    here = run.forget(Request(labels=labels), "gif", allow_class_loss=True).prepare() if labels else run
                except SolverError:  # without so many labels it has no minimum near: what was seen so far counts
                    break
            assert found is not None
            self.known.clear()
            self.known[id(run)] = (run, seen, found)  # the run is held, so that no other has its id
        return self.known[id(run)][1:]

    def _rows(self, data: Data) -> Tensor:
        """Features as classifiers take them; those of the run before where they are the same."""
        for last, _, found in self.known.values():
            if torch.equal(last.data.x.cpu(), data.x):
                return found.rows
        return feature_rows(data.x)


def on_cpu(data: Data) -> Data:
    """A graph where suspects are judged: many small steps, which a GPU would only wait for."""
    return copy(data).cpu()


def judge(run: Run, kind: Kind, watch: Watch) -> list[Suspect]:
    """All that may be wrong of one kind, most suspect first."""
    data = on_cpu(run.data)
    seen, found = watch.labels_of(run)
    if kind == "labels":
        return suspect_labels(data, seen, found, _suspect(found.wrong, watch.share_of(kind)))
    if kind == "triggers":
        return suspect_triggers(data, find_triggers(data, found))
    if kind == "features":
        rows = judge_rows(data, found, seed=watch.seed)
        return suspect_rows(rows, _suspect(rows.wrong, watch.share_of(kind)))
    edges = judge_edges(data, found, seed=watch.seed)
    chosen = _suspect(edges.wrong, watch.share_of(kind))
    return suspect_edges(edges, found, chosen[~edges.held[chosen]])


def _suspect(wrong: Tensor, share: float) -> Tensor:
    """What is proposed, and what else is worth a line, most suspect first; never more than half of what there is."""
    order = wrong.sort(descending=True, stable=True).indices
    most = max(within(wrong, share).numel(), int((wrong > SHOWN).sum()))
    return order[: min(most, int((wrong > 0).sum()) // 2)]


SHOWN = 0.1
"""Probability of being wrong from which something is listed as suspect, where nothing was done about it."""


def shares_tried(share: float) -> list[float]:
    """Shares of false discoveries up to one, the strictest first."""
    odds = [share / (1 - share) / FEWER**times for times in range(WAYS)]
    return [each / (1 + each) for each in reversed(odds)]


def proposed(suspects: list[Suspect], share: float) -> list[Suspect]:
    """The most suspect ones of which no larger share than this is expected to be right."""
    return suspects[: within(torch.tensor([s.wrong for s in suspects], dtype=torch.double), share).numel()]


def step(run: Run, kind: Kind, number: int, watch: Watch) -> tuple[Run, Step, list[Suspect]]:
    """Detect one kind, try to be without it, and keep that if it helps on validation nodes that did not choose it.

    Returns:
        The run (the same where nothing was kept), what was done, and the suspects.
    """
    suspects = judge(run, kind, watch)
    before = score_on(run, watch.halves)
    share = watch.share_of(kind)
    most = proposed(suspects, share)
    told = Step(number, kind, len(most), false_share(most), 0, 0, False, _unsure(suspects, share), before, None)
    if not most:
        return run, told, suspects
    ways, failed = _ways(run, suspects, share, number, watch, before)
    if not ways:
        return run, replace(told, why=failed), suspects
    scores, sizes = [way[2] for way in ways], [len(way[1]) for way in ways]
    larger = kind != "edges"  # a right label that goes is one example less; a right edge, all that its ends heard by it
    after, acted, score = ways[liked(scores, sizes, before, larger=larger)]
    if kind == "triggers":
        good = same(before, score)
    else:
        good = better(before, score, crossed(before, scores, sizes, watch.dealt, larger=larger))
    kept = good and score.f1 >= watch.begun.f1
    relabelled = sum(suspect.action == "relabelled" for suspect in acted)
    told = replace(
        told,
        suspects=len(acted),
        expected_false=false_share(acted),
        forgotten=len(acted) - relabelled,
        relabelled=relabelled,
        kept=kept,
        why=_why(before, score, kept, good),
        after=score,
        requests=tuple(str(receipt.request_digest) for receipt in after.receipts[len(run.receipts) :]),
    )
    done = {one.item for one in acted}
    others = [suspect for suspect in suspects if suspect.item not in done]
    # Prepared once, and not for every fold and try that follows.
    return (after.prepare() if kept else run), told, (acted + others if kept else suspects)


def _ways(
    run: Run, suspects: list[Suspect], share: float, number: int, watch: Watch, before: Score
) -> tuple[list[tuple[Run, list[Suspect], Score]], str]:
    """Some ways to be without the suspects, the smallest first, each with how good it is; or why there is none.

    It ends at what is worse than the best by more than chance: more would be worse still. Of backdoors, which
    validation nodes do not see, all that is proposed goes.
    """
    found: list[tuple[Run, list[Suspect], Score]] = []
    sizes, failed = {0}, ""
    for allowed in [share] if suspects[0].kind == "triggers" else shares_tried(share):
        chosen = _spared(run, proposed(suspects, allowed))
        if len(chosen) in sizes:
            continue
        sizes.add(len(chosen))
        forgotten, corrected = ([_action(suspect, number, correct) for suspect in chosen] for correct in (False, True))
        here = []
        for acted in [forgotten] if corrected == forgotten else [forgotten, corrected]:
            try:
                after = carry_out(run, acted, number)
            except (SolverError, RequestError) as error:
                failed = str(error)
                continue
            here.append((after, acted, score_on(after, watch.halves)))
        found += here
        best = min((before, *(way[2] for way in found)), key=lambda score: score.loss)
        if here and min(moved(best.losses, way[2].losses) for way in here) > 2:
            break
    return found, f"no step could be taken: {failed}" if failed else "it would take the last label of a class"


def _unsure(suspects: list[Suspect], share: float) -> str:
    """Why nothing is proposed."""
    if not suspects:
        return "nothing is suspect"
    chance = f"even the most suspect is right as it is with a chance of {1 - suspects[0].wrong:.0%}"
    return f"{len(suspects):,} may be wrong, but {chance}, and {share:.0%} is the most that is allowed (false_share)"


def _spared(run: Run, acted: list[Suspect]) -> list[Suspect]:
    """The suspects but for those without whose labels a class would have no training node."""
    labels = run.data.y[run.data.train_mask & (run.data.y >= 0)]
    left, kept = torch.bincount(labels).tolist(), list[Suspect]()
    for suspect in acted:
        if suspect.kind in ("labels", "triggers"):
            own = int(run.data.y[suspect.item[0]])
            if left[own] == 1:
                continue
            left[own] -= 1
        kept.append(suspect)
    return kept


def _why(before: Score, after: Score, kept: bool, good: bool) -> str:
    told = f"validation loss {before.loss:.4f} → {after.loss:.4f}, F1 {before.f1:.3f} → {after.f1:.3f}"
    word = "F1 is lower than at the beginning" if good and not kept else "no better than chance"
    if kept:
        word = "better" if after.loss < before.loss else "as good"
    return f"{word}: {told}"


def _action(suspect: Suspect, number: int, correct: bool) -> Suspect:
    """The suspect with what is to be done about it."""
    plain = correct and suspect.sure is not None and suspect.sure >= PLAIN
    return replace(suspect, action="relabelled" if plain else "forgotten", round=number)


def carry_out(run: Run, acted: list[Suspect], number: int) -> Run:
    """The run after a request for what is forgotten, and a change for what is corrected."""
    gone = [suspect for suspect in acted if suspect.action == "forgotten"]
    put_right = {s.item[0]: s.better for s in acted if s.action == "relabelled"}
    if gone:
        request = Request(
            labels=[suspect.item[0] for suspect in gone if suspect.kind in ("labels", "triggers")],
            edges=[(suspect.item[0], suspect.item[1]) for suspect in gone if suspect.kind == "edges"],
            features={suspect.item[0]: "all" for suspect in gone if suspect.kind == "features"},
            note=f"repair, round {number}: {gone[0].kind} that are believed to be wrong",
        )
        run = run.forget(request, "gif", allow_class_loss=False)
    if put_right:
        note = f"repair, round {number}: labels whose right value is plain"
        run = run.update(Change(correct={"labels": put_right}, note=note), "gif")
    return run

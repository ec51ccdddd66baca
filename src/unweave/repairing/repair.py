"""Repair a model: find wrong labels, edges and features, forget them, keep what helps."""

from collections.abc import Sequence
from itertools import product
from typing import Any, cast

from torch import nn
from torch_geometric.data import Data

from unweave.errors import ModelError
from unweave.repairing.checks import KINDS, check_repair
from unweave.repairing.deciding import score_on
from unweave.repairing.result import Repair
from unweave.repairing.rounds import SHOWN, Step, Watch, step
from unweave.repairing.suspects import Kind, Suspect
from unweave.repairing.unseen import FOLDS
from unweave.run.run import Run
from unweave.training.adam import Progress

__all__ = ["ROUNDS", "mend", "repair"]

ROUNDS = 3
"""Most rounds; each sees more clearly than the one before, and most of what is found is found by the second."""


def repair(
    run: Run | nn.Module,
    data: Data | None = None,
    *,
    kinds: Sequence[str] | str = KINDS,
    false_share: float | None = None,
    rounds: int = ROUNDS,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Progress | None = None,
    **training: Any,
) -> Repair:
    """Find what is wrong in the data of a model, forget or correct it, and keep only what helps.

    Labels are judged by models that have forgotten them, edges by what edges of this graph are like, features by what
    label and neighbours expect, and triggers of backdoors by patterns of features that go with labels which neighbours
    contradict. What is most
    probably wrong goes: a :class:`~unweave.Request` with a receipt for what is forgotten, a :class:`~unweave.Change`
    for labels whose right value is plain. Nine tenths of the validation nodes choose how much goes, and the last tenth
    judges that choice, for each tenth; a step is kept if they are better by more than chance, in their loss or in loss
    and F1, and their F1 is no lower. The run that is given stays as it is, and no test label is read.

    Args:
        run: A run; or a model, with its graph and what else a :class:`~unweave.Run` takes.
        data: The graph, where a model is given.
        kinds: What to look for, in this order: some or one of ``triggers``, ``labels``,
            ``edges``, ``features``.
        false_share: The largest share of what is proposed that may be expected to be right as it is; by default a
            tenth of triggers, half of labels and features, 0.95 of edges. Validation nodes choose how much of
            that goes.
        rounds: At most so many; it ends when one keeps nothing.
        folds: Models that have each forgotten a part of the labels.
        seed: Deals nodes into folds and halves, and draws chance pairs.
        progress: Called with (steps done, steps at most).
        **training: ``weight_decay=…`` and what else a :class:`~unweave.Run` takes, where a model is given.

    Returns:
        The repaired run, with every suspect, every step and the scores before and after.

    Raises:
        UnweaveError: What was given cannot be repaired; nothing was done then.
    """
    if isinstance(run, Run):
        if data is not None or training:
            raise ModelError(
                "a run knows its graph and its training; give repair(run), or repair(model, data, weight_decay=…)"
            )
    else:
        if data is None:
            raise ModelError("repair takes a run, or a model with its graph: repair(model, data, weight_decay=…)")
        run = Run(run, data, **training)
    wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    check_repair(run, wanted, false_share, rounds, folds)
    here = run if run.prepared is not None else run.prepare()
    return mend(here, Watch.of(here, false_share, folds, seed), wanted, rounds, progress)


def mend(run: Run, watch: Watch, wanted: tuple[str, ...], rounds: int, progress: Progress | None = None) -> Repair:
    """Repair a prepared run that was checked; see :func:`repair`."""
    here, steps = run, list[Step]()
    suspects: dict[tuple[str, tuple[int, ...]], Suspect] = {}
    judged: dict[str, Run] = {}
    for number, kind in product(range(1, rounds + 1), wanted):
        if judged.get(kind) is here:  # nothing has changed since this kind was looked at
            continue
        judged[kind] = here
        after, told, found = step(here, cast(Kind, kind), number, watch)
        here = after
        steps.append(told)
        _join(suspects, found, first=number == 1)
        if progress is not None:
            progress((number - 1) * len(wanted) + wanted.index(kind) + 1, rounds * len(wanted))
    return Repair(
        before=run,
        run=here,
        steps=tuple(steps),
        suspects=tuple(suspects.values()),
        held_out=(watch.begun, score_on(here, watch.halves)),
        deciding=tuple((watch.halves[0] | watch.halves[1]).nonzero().flatten().tolist()),
        config={
            "kinds": list(wanted),
            "false_share": {kind: watch.share_of(cast(Kind, kind)) for kind in wanted},
            "rounds": rounds,
            "folds": watch.folds,
            "seed": watch.seed,
        },
    )


def _join(known: dict[tuple[str, tuple[int, ...]], Suspect], found: list[Suspect], *, first: bool) -> None:
    """Add the suspects of a step: of a first round what is likely enough, later what something was done about."""
    for suspect in found:
        key = (suspect.kind, suspect.item)
        if suspect.action != "left" or (first and suspect.wrong > SHOWN and key not in known):
            known[key] = suspect

"""Audits that nobody had to train a model for, one of every verdict, for tests of what is made of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import torch

import unweave as uw
from unweave.auditing import Audit, Evidence, Reading
from unweave.receipt.record import environment

VERDICTS = ("remembers", "differs", "gone", "cannot tell")
RETRAINED = (0.50, 0.51, 0.52, 0.51, 0.50, 0.52, 0.53, 0.49)


def entry(
    name: str,
    after: float,
    *,
    shift: float = 0.2,
    retrained: Sequence[float] = RETRAINED,
    asks: Literal["gone", "else"] = "gone",
    group: str = "membership",
    unit: str = "AUC",
    side: Literal["both", "above"] | None = None,
) -> Evidence:
    """A test whose models that saw the data lie ``shift`` above the retrained ones, as the model before does."""
    rate = "TPR at 1 % FPR"

    def read(value: float, wide: float | None = None) -> Reading:
        if asks == "else":
            return Reading(value)
        ends = (None, None) if wide is None else (value - wide, value + wide)
        return Reading(value, *ends, {rate: value / 10})

    return Evidence(
        name,
        group,
        f"What does {name} ask?",
        f"whoever does {name}",
        unit,
        before=read(0.51 + shift, 0.05),
        after=read(after, 0.06),
        retrained=tuple(map(read, retrained)),
        trained=tuple(read(value + shift) for value in RETRAINED),
        alarm=0.01,
        asks=asks,
        side=side or ("above" if asks == "else" else "both"),
    )


def made_audit(verdict: str = "remembers", **changes: Any) -> Audit:
    """An audit with that verdict."""
    after = {"remembers": 0.68, "differs": 0.30}.get(verdict, 0.512)
    shift = 0.0 if verdict == "cannot tell" else 0.2
    found = Audit(
        evidence=(
            entry("membership, likelihood ratio", after, shift=shift),
            entry("deleted edges, posterior similarity", 0.513, shift=0.001, group="links"),
            entry("change of posteriors", 0.515, shift=-shift, group="exposure", side="above"),
            entry("epochs to learn it back", 0.515, shift=-shift, group="relearning", unit="epochs"),
            entry("errors on test nodes", 0.52, shift=0.01, asks="else", group="collateral", unit="1 − F1"),
        ),
        request=uw.Request(nodes=[1, 2], edges=[(3, 4)]),
        config={
            "seed": 7, "quick": False, "left_out": None, "retrained": 8, "trained": 8, "shadows": 32, "nodes": 2,
            "held_out": 50, "edges": 1, "pairs": 50, "alarm": 0.05, "agreement": 0.4, "model": "GCN", "data": "demo",
            "removed": {"nodes": 2, "edges": 9, "feature_rows": 2, "labels": 2},
            "recipe": {"seed": 0, "epochs": 30, "lr": 0.01, "weight_decay": 1e-4, "forgettable": True, "certify": None},
            "trainer": None,
        },
        classes={
            "before": [{0: 0.7, 1: 0.8}], "after": [{0: 0.75, 1: 0.81}],
            "retrained": [{0: 0.78 + 0.01 * k, 1: 0.82} for k in range(8)],
        },
        recovery={"before": [0.70], "after": [0.75], "retrained": [0.79, 0.80, 0.81, 0.80, 0.79, 0.80, 0.81, 0.80]},
        receipt=receipt(),
        environment=environment(torch.device("cpu")),
        seconds=100.0,
        notes=("3 nodes of the request were not trained on; they are left out",),
    )  # fmt: skip
    found = replace(found, **changes)
    assert changes or found.verdict == verdict
    return found


@cache
def receipt() -> uw.Receipt:
    """What a method left that really ran."""
    data = uw.load("demo", seed=0)
    run = uw.train(uw.models.SGC(data.num_features, data.num_classes), data, seed=0, epochs=3)
    return run.forget(uw.Request(nodes=[1, 2], edges=[(2, 146)]), "finetune", epochs=1).receipts[-1]

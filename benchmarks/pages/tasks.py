"""The page of ``tasks.py``: links and recommendations."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

NEAR, CHEAP = 0.95, 0.05
"""What a forgettable model is to close of the gap, and at which share of a retraining."""


def read(out: Path) -> list[Document]:
    """The cells that are done."""
    return lines(out / "cells.jsonl")


def _rows(found: list[Document]) -> Iterator[dict[str, Any]]:
    for cell in found:
        for name, request in cell["requests"].items():
            yield {"cell": cell, "request": name, **request}


def _of(method: str, key: str, form: str) -> Any:
    def shown(row: dict[str, Any]) -> str | None:
        value = row["rows"].get(method, {}).get(key)
        return None if value is None else number(value, form)

    return shown


def _share(row: dict[str, Any]) -> float | None:
    passes = row["rows"].get("gif", {}).get("passes")
    return None if passes is None else passes / row["rows"]["retrain"]["passes"]


def _left(row: dict[str, Any]) -> float:
    return float((1 - row["rows"]["gif"]["gap_closed"]) * row["gap"])


def _reached(row: dict[str, Any]) -> float | None:
    """What the farthest of the retrainings from other seeds closes of the gap."""
    found: list[float] = [1 - abs(value) / row["gap"] for value in row.get("floors") or ()]
    other: float | None = row["rows"].get("another seed", {}).get("gap_closed")
    return min(found, default=other)


def _largest(cell: Document) -> float | None:
    found: list[float] = [r["rows"].get("gif", {}).get("peak_mib", 0.0) for r in cell["requests"].values()]
    return max(found) or None


def _gib(mib: float | None) -> str | None:
    return None if mib is None else f"{mib / 1024:.1f}"


def _floor(row: dict[str, Any]) -> str | None:
    found = [abs(value) for value in row.get("floors", ())]
    return None if not found else f"{max(found):.1e}" if len(found) == 1 else f"{min(found):.1e}–{max(found):.1e}"


def _name(row: dict[str, Any]) -> str:
    return f"{row['cell']['model']} {row['cell']['data']} {row['request']}"


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Models of pairs: `lightgcn` recommends items to users, `linker` predicts the edges of a graph. *Forgettable*: "
        "as `unweave train --forgettable` builds and trains them; *ordinary*: 64 columns, Adam until validation says "
        "enough. *Closed*: the share of the gap to a model retrained the same way that a method closes; the gap is the "
        "mean KL of the softmax over all items, of every user that remains, or of the pairs' probabilities. *Cost*: "
        "passes over the graph as a share of that retraining. `none` closes 0 by definition: it takes the edges out "
        "and keeps the parameters, which is UtU. `finetune` has as many passes as `gif`. `gnndelete` trains an "
        "operator behind the embeddings (`benchmarks/gnndelete.py`). *Attack*: how often a deleted "
        "interaction scores higher than one that was never there; the retrained model, which never saw it, is the "
        "level to reach. *Left*: what remains of the gap after `gif`. *Floor*: how far retrainings from other seeds "
        "end from the one that is compared with; nothing below it can be told."
    )
    yield columns(
        _rows(found),
        {
            "": lambda r: f"{r['cell']['model']} {r['cell']['data']}, {r['cell']['way']}, {r['request']}",
            "columns": lambda r: r["cell"]["trained"]["config"]["width"],
            "agreement": lambda r: number(r["cell"]["trained"]["metrics"].get("agreement"), "+.3f"),
            "gap": lambda r: f"{r['gap']:.1e}",
            "closed": _of("gif", "gap_closed", "+.4f"),
            "finetune": _of("finetune", "gap_closed", "+.3f"),
            "gnndelete": _of("gnndelete", "gap_closed", "+.3f"),
            "another seed": _of("another seed", "gap_closed", "+.3f"),
            "left": lambda r: None if not r["rows"].get("gif") else f"{_left(r):.1e}",
            "floor": _floor,
            "cost": lambda r: None if _share(r) is None else f"{_share(r):.1%}",
            "score, retrained": _of("retrain", "score", ".4f"),
            "gif": _of("gif", "score", ".4f"),
            "none": _of("none", "score", ".4f"),
            "attack, retrained": _of("retrain", "membership", ".3f"),
            "attack, gif": _of("gif", "membership", ".3f"),
            "attack, none": _of("none", "membership", ".3f"),
            "attack, gnndelete": _of("gnndelete", "membership", ".3f"),
        },
    )
    yield (
        "*Score*: recall@20 of a recommender, AUC of a link predictor, on interactions held out. An attack needs "
        "twenty deleted interactions whose nodes remain."
    )
    rows = [r for r in _rows(found) if r["cell"]["way"] == "forgettable" and "gif" in r["rows"]]
    if rows:
        near = [r["rows"]["gif"]["gap_closed"] for r in rows if r["rows"]["gif"]["gap_closed"] is not None]
        below = [r for r in rows if (r["rows"]["gif"]["gap_closed"] or 0) < NEAR]
        unseen = [r for r in below if (_reached(r) or 1) < NEAR]
        costly = [r for r in rows if (_share(r) or 0) > CHEAP]
        dear, before = (
            "; ".join(f"{_name(r)} ({_share(r):.1%})" for r in costly if ("peak_mib" in r["rows"]["gif"]) == bound)
            for bound in (True, False)
        )
        told = "; ".join(f"{_name(r)} ({_reached(r):+.2f})" for r in unseen)
        yield [
            f"- Forgettable: closed, median {median(near):+.4f}, least {min(near):+.4f}, over {len(near)} requests.",
            f"- Short of {NEAR}: {'; '.join(_name(r) for r in below if r not in unseen) or 'none'}.",
            f"- So small that retrainings from other seeds do not close {NEAR} of it, and what they close: "
            f"{told or 'none'}.",
            f"- Dearer than {CHEAP:.0%} of retraining: {dear or 'none'}; before requests on pairs were bounded: "
            f"{before or 'none'}. The bound is 5 % of the passes of training, or seven gradients; a retraining without "
            "the data may take fewer passes than training did.",
        ]
    memory = [c for c in found if "peak_mib" in c]
    if memory:
        yield columns(
            memory,
            {
                "GiB on the GPU, at most": lambda c: f"{c['model']} {c['data']}, {c['way']}, seed {c['seed']}",
                "columns": lambda c: c["trained"]["config"]["width"],
                "training": lambda c: _gib(c["trained"].get("peak_mib")),
                "a request": lambda c: _gib(_largest(c)),
                "all that was measured": lambda c: _gib(c["peak_mib"]),
            },
        )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/tasks.py` with the data and models of the table, on {where}."


PAGE = Page("Links and recommendations", read, blocks)

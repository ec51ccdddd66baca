"""The page of ``overfitted.py``: what is refused, what is worse than nothing, and how much of the gap is closed."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

WAYS = ("fresh", "prepared")


def read(out: Path) -> list[Document]:
    """The cells that are done."""
    return lines(out / "cells.jsonl")


def _rows(found: list[Document]) -> list[dict[str, Any]]:
    return [
        {"cell": cell, "request": name, "way": way, "gap": request["gap"], "another": request["another_seed"]}
        | request[way]
        for cell in found
        for name, request in cell["requests"].items()
        for way in WAYS
    ]


def _harmed(each: list[float | None]) -> bool:
    """Whether what a request closes is below 0 by more than two standard errors of its mean over the seeds."""
    known = [value for value in each if value is not None]
    return len(known) > 1 and fmean(known) < -2 * stdev(known) / len(known) ** 0.5


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Models of PyG, trained by Adam without weight decay until the mean training loss is 1e-3, on a part of a "
        "graph. Each of some seeds forgets the same small requests by `gif`, without a prepared state (*fresh*) and "
        "with one. *Closed*: 1 − the mean gap over the seeds after / before, to models retrained by the same rule "
        "from the same seeds; *of mean predictions*: the same with predictions averaged over the seeds first. 0 is "
        "doing nothing. *Below 0*: requests that close less than nothing, and of them *beyond chance* those that do "
        "by more than two standard errors of the mean over the seeds. *Another seed*: what retraining from another "
        "seed closes, which shows how far such a gap is luck. *Told*: receipts that say that the answer cannot be "
        "confirmed."
    )
    rows = _rows(found)
    models = list(dict.fromkeys((cell["data"], cell["model"]) for cell in found))
    parts = [
        (model, way, [r for r in rows if (r["cell"]["data"], r["cell"]["model"]) == model and r["way"] == way])
        for model in models
        for way in WAYS
    ]
    yield columns(
        parts,
        {
            "": lambda p: f"{p[0][1]} {p[0][0]}, {p[1]}",
            "loss": lambda p: f"{fmean(r['cell']['loss'] for r in p[2]):.1e}",
            "requests": lambda p: sum(r["cell"]["seeds"] for r in p[2]),
            "refused": lambda p: sum(sum(r["refused"].values()) for r in p[2]),
            "told": lambda p: sum(r["told"] for r in p[2]),
            "closed": lambda p: number(fmean(r["closed"] for r in p[2]), "+.3f"),
            "of mean predictions": lambda p: number(fmean(r["mean_closed"] for r in p[2]), "+.3f"),
            "below 0": lambda p: f"{sum(r['closed'] < 0 for r in p[2])} of {len(p[2])}",
            "beyond chance": lambda p: sum(_harmed(r["each"]) for r in p[2]),
            "lowest": lambda p: number(min(r["closed"] for r in p[2]), "+.3f"),
        },
    )
    yield "## Request by request"
    yield columns(
        rows,
        {
            "": lambda r: (
                f"{r['cell']['model']} {r['cell']['data']}, {r['request']}, draw {r['cell']['draw']}, {r['way']}"
            ),
            "gap": lambda r: f"{r['gap']:.1e}",
            "closed": lambda r: number(r["closed"], "+.3f"),
            "of mean predictions": lambda r: number(r["mean_closed"], "+.3f"),
            "seeds below 0": lambda r: sum(value is not None and value < 0 for value in r["each"]),
            "another seed": lambda r: number(r["another"], "+.2f"),
            "passes": lambda r: number(r["passes"], ".0f"),
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    sizes = sorted(
        {f"{cell['data']}: {cell['nodes']} nodes, {cell['seeds']} seeds, five requests a draw" for cell in found}
    )
    yield f"Measured by `python benchmarks/overfitted.py` ({'; '.join(sizes)}) on {where}."


PAGE = Page("Over-fitted models", read, blocks)

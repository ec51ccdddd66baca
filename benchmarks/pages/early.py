"""The page of ``early.py``: what steps of a training that was stopped early close, and what they closed unshortened."""

from pathlib import Path
from statistics import fmean
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places


def read(out: Path) -> list[Document]:
    """The cells that are done."""
    return lines(out / "cells.jsonl")


def _rows(found: list[Document]) -> list[dict[str, Any]]:
    return [cell | request for cell in found for request in cell["requests"] if request["closed"] is not None]


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Two layers of PyG, 16 hidden units, trained by Adam for so many epochs and no longer, on two generated "
        "graphs of 1,000 and 800 nodes, two seeds each. *Left*: the share of the objective that was still to be "
        "gained, by the quadratic model of a prepared state. *Closed*: what `gif` closes of the gap to a model trained "
        "as long, from the same seed, on what remains; 0 is doing nothing. *Whole*: the same with steps that are not "
        "shortened because training was stopped early."
    )
    rows = _rows(found)
    wholes = sorted({(r["data"], r["epochs"]) for r in rows})
    parts = [(f"{data}, {n} epochs", [r for r in rows if (r["data"], r["epochs"]) == (data, n)]) for data, n in wholes]
    for kind in sorted({(r["data"], r["epochs"], r["layer"], r["way"]) for r in rows}):
        mine = [r for r in rows if (r["data"], r["epochs"], r["layer"], r["way"]) == kind]
        parts.append((f"{kind[0]}, {kind[1]} epochs, {kind[2]}, {kind[3]}", mine))
    yield columns(
        parts,
        {
            "": lambda p: p[0],
            "left": lambda p: f"{min(r['left'] for r in p[1]):.2f} to {max(r['left'] for r in p[1]):.2f}",
            "requests": lambda p: len(p[1]),
            "shortened": lambda p: sum(r["shortened_to"] is not None for r in p[1]),
            "closed": lambda p: number(fmean(r["closed"] for r in p[1]), "+.3f"),
            "below 0": lambda p: sum(r["closed"] < 0 for r in p[1]),
            "lowest": lambda p: number(min(r["closed"] for r in p[1]), "+.3f"),
            "whole": lambda p: number(fmean(r["whole"] for r in p[1]), "+.3f"),
            "whole, below 0": lambda p: sum(r["whole"] < 0 for r in p[1]),
            "whole, lowest": lambda p: number(min(r["whole"] for r in p[1]), "+.3f"),
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/early.py` on {where}."


PAGE = Page("Trainings that were stopped early", read, blocks)

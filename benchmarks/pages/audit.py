"""The page of ``audit.py``: false alarms, what every attack tells apart, and what the methods get."""

from pathlib import Path
from statistics import fmean
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places
from unweave.auditing.evidence import ALARM

ASKING = ("membership", "links", "exposure", "relearning", "hard cases")
RATIO, EPOCHS = "membership, likelihood ratio", "epochs to learn it back"


def read(out: Path) -> dict[str, list[Document]]:
    """What is done of each part."""
    parts = ("separation", "alarms")
    return {part: found for part in parts if (found := lines(out / f"{part}.jsonl"))}


def blocks(found: dict[str, list[Document]]) -> Blocks:
    """What was found."""
    cells, alarms = found.get("separation", []), found.get("alarms", [])
    yield (
        "Made by `python benchmarks/audit.py` from the files beside it; what the tests are and how they are judged is "
        "said in [Proof of forgetting](../../../docs/audit.md)."
    )
    yield "## Retrained models are left alone"
    yield f"An audit may raise a false alarm with a chance of {ALARM:.0%}, all tests together."
    yield columns(
        alarms,
        {
            "request, embedded graph, GCN": lambda cell: cell["forget"],
            "audits": lambda cell: cell["audits"],
            "alarms": lambda cell: sum(cell["verdicts"].get(verdict, 0) for verdict in ("remembers", "differs")),
            "verdicts": lambda cell: _counts(sorted(cell["verdicts"].items())),
            "tests that raised one": lambda cell: (
                ", ".join(f"{name} {count}" for name, count in cell["unusual"].items() if count) or None
            ),
        },
    )
    yield "## Every attack tells doing nothing from retraining"
    yield (
        "The number of a test, mean over the seeds, for models that saw the data, for retrained ones (± the seed "
        "floor), and the distance between them in seed floors. *Separates*: on how many seeds at least 80 % of the "
        "models that saw the data lie outside of the range of retrained ones."
    )
    retrained = [(cell, row) for cell in cells for row in cell["rows"] if row["method"] == "retrain"]
    yield columns(
        [(c, name, t) for c, row in retrained for name, t in row["audit"]["tests"].items() if t["group"] in ASKING],
        {
            "cell": lambda r: " ".join(r[0]["cell"]),
            "test": lambda r: r[1],
            "with the data": lambda r: f"{r[2]['trained_mean']:.3g}",
            "retrained": lambda r: f"{r[2]['retrained_mean']:.3g} ± {fmean(r[2]['floor']):.2g}",
            "seed floors apart": lambda r: f"{_apart(r[2]):.0f}",
            "separates": lambda r: f"{r[2]['separates']} of {len(r[2]['value'])}",
        },
    )
    yield "## What the methods get"
    yield (
        "Verdicts over the seeds, and the likelihood ratio's AUC (TPR at 1 % false positives), epochs to learn it "
        "back, gap closed, cost. Costs were taken beside other work, which was paused and resumed: they mean little "
        "here."
    )
    yield columns(
        [(cell, row, row["audit"]["tests"]) for cell in cells for row in cell["rows"]],
        {
            "cell": lambda r: " ".join(r[0]["cell"]),
            "method": lambda r: r[1]["method"],
            "verdict": lambda r: _counts(r[1]["audit"]["verdicts"].items()),
            "likelihood ratio": lambda r: (
                f"{fmean(r[2][RATIO]['value']):.2f} ({r[2][RATIO]['TPR at 1 % FPR (mean)']:.2f})"
                if RATIO in r[2]
                else None
            ),
            "epochs": lambda r: f"{fmean(r[2][EPOCHS]['value']):.1f}" if EPOCHS in r[2] else None,
            "gap closed": lambda r: None if r[1]["gap_closed_mean"] is None else f"{r[1]['gap_closed_mean']:+.2f}",
            "cost": lambda r: number(r[1]["cost_median"], ".0%"),
        },
    )
    yield f"Measured with {places(cells + alarms, '{commit:.9} (torch {torch}, {device_name})')}."


def _counts(verdicts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts)


def _apart(test: Document) -> float:
    floor = fmean(test["floor"])
    return abs(test["trained_mean"] - test["retrained_mean"]) / floor if floor else float("inf")


PAGE = Page("The audit put to the test", read, blocks)

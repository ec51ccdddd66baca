"""The page of ``living.py``: how near a model stays to retraining while its graph lives."""

from pathlib import Path
from statistics import mean, median

from shared import Document, documents

from pages.parts import Blocks, Page, columns, places


def read(out: Path) -> list[Document]:
    """The years that are done."""
    return list(documents(out).values())


def share(found: Document) -> float:
    """Passes of all updates, as a share of a training every day."""
    daily: float = mean(mark["retraining"] for mark in found["compared"]) * len(found["receipts"])
    spent: float = sum(told["passes"] for told in found["receipts"])
    return spent / daily


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "A graph that lives for a year: every day two nodes that were held out come with their edges, a row of "
        "features is put right, every other day the label of a training node too, and a node and an edge are deleted. "
        "The model, trained once to be able to forget, follows by one `Run.update` a day. On every 30th day another is "
        "trained anew on that day's graph, with the same seed. *Gap*: mean KL to it on all nodes there are, of the "
        "model that was updated, of the one of the first day, and of the one that the last weekly training gave (0 "
        "where that is the same day)."
    )
    yield columns(
        [(d, mark) for d in found for mark in d["compared"]],
        {
            "": lambda r: f"{r[0]['model']} {r[0]['data']}",
            "day": lambda r: r[1]["day"],
            "update every day": lambda r: f"{r[1]['gaps']['update']:.1e}",
            "doing nothing": lambda r: f"{r[1]['gaps']['none']:.1e}",
            "weekly training": lambda r: f"{r[1]['gaps']['weekly']:.1e}",
            "update / nothing": lambda r: f"{r[1]['gaps']['update'] / r[1]['gaps']['none']:.0e}",
            "test F1, updated": lambda r: f"{r[1]['test_f1']['update']:.3f}",
            "retrained": lambda r: f"{r[1]['test_f1']['retrained']:.3f}",
        },
    )
    yield columns(
        found,
        {
            "": lambda d: f"{d['model']} {d['data']}",
            "nodes, first and last day": lambda d: " → ".join(f"{n:,}" for n in d["nodes"]),
            "passes of an update, median": lambda d: round(median(t["passes"] for t in d["receipts"])),
            "all updates": lambda d: f"{sum(t['passes'] for t in d['receipts']):,}",
            "a training": lambda d: f"{mean(mark['retraining'] for mark in d['compared']):,.0f}",
            "share of training every day": lambda d: f"{share(d):.1%}",
            "of training every week": lambda d: f"{7 * share(d):.0%}",
            "seconds of an update, median": lambda d: f"{median(t['seconds'] for t in d['receipts']):.2f}",
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/living.py` (weight decay 0.01), with other work on the machine, on {where}."


PAGE = Page("A year of a graph that lives", read, blocks)

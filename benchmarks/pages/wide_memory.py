"""The page of ``wide_memory.py``: what each piece of the work on a wide model holds at most."""

from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places

WORDS = {
    "graph": "the graph alone",
    "gradient": "a gradient",
    "request": "a gradient without 5 % of the nodes",
    "product": "a product with the curvature",
    "epoch": "an epoch of training",
    "way": "train, prepare, forget, cut short",
}


def read(out: Path) -> list[Document]:
    """The pieces that are done."""
    return lines(out / "cells.jsonl")


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Wide models on a generated graph in memory, evaluated in blocks of nodes: every piece of a training to a "
        "minimum and of a request, each in a process of its own. *Peak*: the most memory that process ever had, the "
        "graph and Python included. *Passes*: sweeps over the graph that the piece took; in blocks nodes at their "
        "edges are computed more than once. *First*: the same while the size of the blocks is found. *Cut short*: one "
        "process trains a model to be forgettable, prepares it and lets it forget a thousandth of its nodes, with two "
        "gradients and three products where a whole training does hundreds of each; it was not done here."
    )
    yield columns(
        found,
        {
            "": lambda r: WORDS[r["piece"]] + ("" if r["piece"] == "graph" else f", {r['model']}"),
            "nodes": lambda r: f"{r['nodes']:,}",
            "`memory_mib`": lambda r: f"{r['memory_mib']:.0f}",
            "peak, GiB": lambda r: f"{r['peak_mib'] / 1024:.2f}",
            "seconds": lambda r: f"{r['work']:.0f}" if "work" in r else None,
            "passes": lambda r: f"{r['passes']:.1f}" if "passes" in r else None,
            "first, seconds": lambda r: f"{r['first']['work']:.0f}" if "first" in r else None,
            "first, passes": lambda r: f"{r['first']['passes']:.1f}" if "first" in r else None,
        },
    )
    where = places(found, "{device_name}, {threads} threads, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `taskset -c 0,1 python benchmarks/wide_memory.py`, beside other work, on {where}."


PAGE = Page("Wide models in bounded memory", read, blocks)

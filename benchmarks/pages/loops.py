"""The page of ``loops.py``: what the polish at the end of a training loop does to F1."""

from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places


def read(out: Path) -> list[Document]:
    """The fits that were made."""
    return lines(out / "cells.jsonl")


def _change(cell: Document, part: str) -> str:
    return f"{cell[f'{part}_f1_before']:.3f} → {cell[f'{part}_f1']:.3f}"


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "A GCN of 128 units with tanh and dropout, 40 epochs of four batches, polished with the decay of its "
        "optimiser. Every fit that was made is in the table: one a row."
    )
    yield columns(
        found,
        {
            "graph, seed": lambda c: f"{c['data']}, {c['seed']}",
            "optimiser, weight decay": lambda c: f"{c['optimiser']}, {c['decay']:g}",
            "validation F1": lambda c: _change(c, "val"),
            "test F1": lambda c: _change(c, "test"),
            "gradients": lambda c: c["evaluations"],
            "warned": lambda c: "yes" if c["warnings"] else None,
        },
    )
    lost = [c for c in found if c["test_f1"] < c["test_f1_before"]]
    yield [f"- Test F1 fell in {len(lost)} of {len(found)} fits, by {_most(lost):.3f} at most."]
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/loops.py` on {where}."


def _most(lost: list[Document]) -> float:
    return max((c["test_f1_before"] - c["test_f1"] for c in lost), default=0.0)


PAGE = Page("Training loops of one's own", read, blocks)

"""The page of ``receipts.py``: what a request takes after very many others."""

from pathlib import Path

from shared import Document, documents

from pages.parts import Blocks, Page, columns, places


def read(out: Path) -> list[Document]:
    """What was measured."""
    return list(documents(out).values())


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Requests one after another to a prepared SGC on a graph of 500 nodes with 256 features, each for one feature "
        "of one node, each saved in the place of the run. Look at how the time changes "
        "from tenth to tenth, not at what it is on one machine."
    )
    yield columns(
        found,
        {
            "requests": lambda d: f"{d['requests']:,}",
            "ms each, by tenths": lambda d: ", ".join(f"{each:.0f}" for each in d["milliseconds"]),
            "to open": lambda d: f"{d['opened_seconds']:.1f} s",
            "bytes a receipt": lambda d: f"{d['bytes_a_receipt']:,}",
        },
    )
    yield from (d["note"] for d in found if "note" in d)
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/receipts.py` on {where}."


PAGE = Page("Very many receipts", read, blocks)

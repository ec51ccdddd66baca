"""The page of ``wide_f1.py``: which part of a model that can forget costs how much F1."""

from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places


def read(out: Path) -> list[Document]:
    """The trainings that are done."""
    return sorted(lines(out / "cells.jsonl"), key=lambda d: (d["data"], d["model"], d["decay"] or 0.0))


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Models of one width, trained as usual until validation says enough, with parts of those that can forget, and "
        "trained to a minimum. Those that can forget have a smooth activation, features of length 1, for `gat` "
        "attention by features, for `gin` means instead of sums, and their minimum is one without dropout."
    )
    yield columns(
        found,
        {
            "": lambda r: f"{r['model']} {r['data']}, {r['nodes']:,} nodes",
            "trained": lambda r: "as usual" if r["decay"] is None else f"to a minimum, decay {r['decay']:g}",
            "otherwise": lambda r: ", ".join(f"{key} {value}" for key, value in r["options"].items()) or "–",
            "train F1": lambda r: f"{r['train_f1']:.3f}",
            "validation F1": lambda r: f"{r['val_f1']:.3f}",
            "test F1": lambda r: f"{r['test_f1']:.3f}",
            "epochs": lambda r: r["epochs"],
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    command = "python benchmarks/wide_f1.py --nodes 8000 --model sage"
    yield f"Measured by `{command}`, cut off, beside other work, on {where}."


PAGE = Page("What it costs in F1 to be able to forget", read, blocks)

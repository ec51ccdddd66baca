"""The page of ``wide_f1.py``: which part of a model that can forget costs how much F1."""

from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

SCORES = {
    "train F1": lambda r: f"{r['train_f1']:.3f}",
    "validation F1": lambda r: f"{r['val_f1']:.3f}",
    "validation loss": lambda r: number(r.get("val_loss"), ".3f"),
    "test F1": lambda r: f"{r['test_f1']:.3f}",
}


def read(out: Path) -> list[Document]:
    """The trainings that are done."""
    return sorted(lines(out / "cells.jsonl"), key=lambda d: (d["data"], -d["nodes"], d["model"], d["decay"] or 0.0))


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Models of one width, trained as usual until validation says enough, with parts of those that can forget, and "
        "trained to a minimum. Those that can forget have a smooth activation, features of length 1, for `gat` "
        "attention by features, for `gin` means instead of sums, and their minimum is one without dropout."
    )
    yield columns(
        [row for row in found if "bend" not in row],
        {
            "": lambda r: f"{r['model']} {r['data']}, {r['nodes']:,} nodes",
            "trained": lambda r: "as usual" if r["decay"] is None else f"to a minimum, decay {r['decay']:g}",
            "otherwise": lambda r: ", ".join(f"{key} {value}" for key, value in r["options"].items()) or "–",
            **SCORES,
            "epochs": lambda r: r["epochs"],
        },
    )
    yield (
        "Units near zero are lines: tanh(z) is z but for its third order, and weight decay holds units of a wide layer "
        "near zero. Units that *bend* b times as much have tanh(b z)/b, which is the same as a weight decay of w/b² on "
        "the first layer and w·b² on the second, but for the bias of the outputs. They fit better, and seeds agree "
        "less. 900 gradients."
    )
    yield columns(
        sorted((row for row in found if "bend" in row), key=lambda r: (r["options"].get("hidden", 0), r["bend"])),
        {
            "": lambda r: f"{r['model']} {r['data']}, {r['nodes']:,} nodes, decay {r['decay']:g}",
            "units": lambda r: r["options"].get("hidden", "as built"),
            "bend": lambda r: r["bend"],
            **SCORES,
            "agreement": lambda r: number(r.get("agreement"), "+.3f"),
        },
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield (
        "Measured by `python benchmarks/wide_f1.py --nodes 8000 --model sage`, cut off, by `… --device cuda --model "
        "sage` on all of WordNet, and by `… --nodes 12000 --model sage --bends 1,2,4,8`, `… --bends 1,4 --hidden "
        "512` and `--data photo --nodes 8000 --model gat,sage --bends 1,2`, beside other work, on "
        f"{where}."
    )


PAGE = Page("What it costs in F1 to be able to forget", read, blocks)

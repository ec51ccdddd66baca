"""Poison recovery: by kind, by the fraction poisoned, and where only half of the poison is in the request.

Usage: python benchmarks/poison.py --device cuda --jobs 15

A cell is one ``unweave compare``. Cells are written to ``poison.jsonl`` as they are done, so that an interrupted run
goes on where it stopped. The page ``README.md`` and the figure beside it are made from that file alone (``--page``
makes no more). ``--ways ordinary`` leaves out the models that are trained to a minimum, which take most of the time.
"""

import argparse
import itertools
import json
import multiprocessing
from pathlib import Path
from typing import Any

import torch
from poison_page import Cell, Results, cell_of, draw, page
from unweave.drawing import POISONS
from unweave.experiments.results import commit, rounded

import unweave as uw

RESULTS = Path(__file__).parent / "results" / "poison"
DATA = ("cora", "citeseer")
MODELS = ("gcn", "gat")
SHARES = ("0.05", "0.1", "0.2", "0.4")
PARTS = ("1", "0.5")
WAYS = {"ordinary": 1e-4, "forgettable": 1e-2}
"""Weight decay of each way of training."""

METHODS = ("replay(share=0.2)", "gif")
"""Beside the controls; fine-tuning gets as long as the last."""


def run(task: tuple[Cell, int, int, str]) -> dict[str, Any]:
    """One cell."""
    (way, data, model, forget), seeds, epochs, device = task
    torch.set_num_threads(1)
    result = uw.compare(
        data,
        model,
        forget,
        methods=METHODS,
        seeds=seeds,
        epochs=epochs,
        weight_decay=WAYS[way],
        forgettable=way == "forgettable",
        averaged=False,
        device=device,
    )
    document: dict[str, Any] = rounded(result.to_dict())
    return document | {"commit": commit()}


def read(out: Path) -> Results:
    """The cells that are done."""
    path = out / "poison.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {cell_of(document): document for document in map(json.loads, lines)}


def write(out: Path, found: Results) -> None:
    """One line a cell, in a fixed order, whole or not at all."""
    text = "".join(json.dumps(found[cell], allow_nan=False) + "\n" for cell in sorted(found))
    (out / "poison.jsonl.new").write_text(text, encoding="utf-8")
    (out / "poison.jsonl.new").replace(out / "poison.jsonl")


def main() -> None:
    """Measure the cells that are missing, and make the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    axes = {"ways": WAYS, "data": DATA, "models": MODELS, "kinds": POISONS, "shares": SHARES, "parts": PARTS}
    for name, given in axes.items():
        parser.add_argument(f"--{name}", default=",".join(given))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="make the page from the cells there are")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    found = read(asked.out)
    if not asked.page:
        wanted = itertools.product(*(getattr(asked, name).split(",") for name in axes))
        tasks = []
        for way, data, model, kind, share, part in wanted:
            cell = (way, data, model, f"{kind}:{share}" + ("" if float(part) == 1 else f"@{part}"))
            known = found[cell]["config"] if cell in found else {}
            if (known.get("seeds"), known.get("epochs")) != (asked.seeds, asked.epochs):
                tasks.append((cell, asked.seeds, asked.epochs, asked.device))
        with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
            for done, document in enumerate(pool.imap_unordered(run, tasks), start=1):
                found[cell_of(document)] = document
                write(asked.out, found)
                print(f"{done} of {len(tasks)} cells", flush=True)
    (asked.out / "README.md").write_text(page(found), encoding="utf-8")
    if found:
        draw(found, asked.out / "attack.png")


if __name__ == "__main__":
    main()

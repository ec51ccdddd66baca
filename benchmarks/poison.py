"""Poison recovery: by kind, by the fraction poisoned, and where only half of the poison is in the request.

Usage: python benchmarks/poison.py --device cuda --jobs 15

A cell is one ``unweave compare``. Cells are written to ``poison.jsonl`` as they are done, so that an interrupted run
goes on where it stopped. The page and the figure beside it are made from that file alone (``page.py``). ``--ways
ordinary`` leaves out the models that are trained to a minimum, which take most of the time.
"""

from itertools import product

from pages.poison import PAGE, read
from shared import DATA, DECAYS, MODELS, WAYS, Cell, Document, arguments, cell_of, compared, each, write_lines

from unweave.experiments.paper.results import commit
from unweave.graph.draw import POISONS

SHARES = ("0.05", "0.1", "0.2", "0.4")
PARTS = ("1", "0.5")
METHODS = ("replay(share=0.2)", "gif")
"""Beside the controls; fine-tuning gets as long as the last."""


def run(task: tuple[Cell, int, int, str]) -> Document:
    """One cell."""
    cell, seeds, epochs, device = task
    how = {"seeds": seeds, "epochs": epochs, "device": device}
    found = compared(cell, methods=METHODS, weight_decay=DECAYS[cell[0]], averaged=False, **how)
    return found | {"commit": commit()}


def main() -> None:
    """Measure the cells that are missing, and make the page."""
    axes = {"ways": WAYS, "data": DATA[:2], "models": MODELS[:2], "kinds": POISONS, "shares": SHARES, "parts": PARTS}
    asked = arguments(__doc__, "poison", **axes, seeds=5, epochs=100, device="cpu", jobs=1).parse_args()
    found, tasks = read(asked.out), []
    for way, data, model, kind, share, part in product(*(getattr(asked, name) for name in axes)):
        cell = (way, data, model, f"{kind}:{share}" + ("" if float(part) == 1 else f"@{part}"))
        known = found[cell]["config"] if cell in found else {}
        if (known.get("seeds"), known.get("epochs")) != (asked.seeds, asked.epochs):
            tasks.append((cell, asked.seeds, asked.epochs, asked.device))
    for document in each(run, tasks, asked.jobs):
        found[cell_of(document)] = document
        write_lines(asked.out / "poison.jsonl", (found[cell] for cell in sorted(found)))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

"""Every backbone, data set and kind of request, trained in two ways, with every method and control.

Usage: python benchmarks/matrix.py --device cuda --jobs 15

A cell is one ``unweave compare``. Cells are written to ``ordinary.jsonl`` and ``forgettable.jsonl`` as they are done,
so that an interrupted run goes on where it stopped; one measured with another weight decay than validation now chooses
is done anew. The page beside them is made from those files alone (``page.py``). Times are ratios within one process;
several processes share the device, so they are ratios under load.
"""

from itertools import product

from pages.matrix import PAGE, read
from shared import DATA, DECAYS, MODELS, REQUESTS, WAYS, Cell, Document, arguments, compared, each, trained, write_lines

import unweave as uw

DAMPINGS = (0.3, 1, 3, 10, 30, 100, 300, 1000)
STEPS = (1, 3, 7, 15)
COMMON = (
    "if",
    "gif-published",
    "gif-published(scale=1000)",
    *(f"gif(steps={n})" for n in STEPS),
    *(f"lbfgs(steps={n})" for n in STEPS),
    "retrain(disturbed=0.001)",
)
METHODS = {
    "ordinary": (*COMMON, *(f"gif(damping={d}, tolerance=0.01)" for d in DAMPINGS), "gif"),
    "forgettable": (*COMMON, "gif"),
}


def choose(task: tuple[str, str, str]) -> tuple[tuple[str, str], float]:
    """The weight decay that validation chooses for a forgettable model on the first split."""
    data, model, device = task
    run = trained(model, uw.load(data).to(device), "forgettable", weight_decay=None)
    decay = run.recipe.weight_decay
    assert isinstance(decay, float)
    return (data, model), decay


def run(task: tuple[Cell, float, int, str]) -> tuple[Cell, Document]:
    """One cell."""
    cell, decay, seeds, device = task
    how = {"weight_decay": decay, "averaged": cell[0] == "ordinary", "seeds": seeds, "device": device}
    return cell, compared(cell, methods=METHODS[cell[0]], **how)


def main() -> None:
    """Run the cells that are missing, and make the page."""
    given = {"ways": WAYS, "data": DATA, "models": MODELS, "forget": REQUESTS}
    asked = arguments(__doc__, "matrix", **given, seeds=5, device="cpu", jobs=1).parse_args()
    wanted = list(product(asked.ways, asked.data, asked.models, asked.forget))
    pairs = sorted({(data, model) for way, data, model, _ in wanted if way == "forgettable"})
    decays = dict(each(choose, [(*pair, asked.device) for pair in pairs], asked.jobs))
    found, tasks = read(asked.out), []
    for cell in wanted:
        decay = decays[cell[1:3]] if cell[0] == "forgettable" else DECAYS["ordinary"]
        if cell not in found or found[cell]["config"]["weight_decay"] != decay:
            tasks.append((cell, decay, asked.seeds, asked.device))
    # The dearest first, so that no process is left with a long one at the end.
    tasks.sort(key=lambda task: (task[0][1] != "pubmed", task[0][2] not in ("gat", "gin")))
    for done, document in each(run, tasks, asked.jobs):
        found[done] = document
        for way in WAYS:
            write_lines(asked.out / f"{way}.jsonl", (found[cell] for cell in sorted(found) if cell[0] == way))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

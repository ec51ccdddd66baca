"""Every backbone, data set and kind of request, trained in two ways, with every method and control.

Usage: python benchmarks/matrix.py --device cuda --jobs 15

A cell is one ``unweave compare``. Cells are written to ``ordinary.jsonl`` and ``forgettable.jsonl`` as they are done,
so that an interrupted run goes on where it stopped; one measured with another weight decay than validation now chooses
is done anew. The page ``README.md`` beside them is made from those files alone (``--page`` makes only that). Times are
ratios within one process; several processes share the device, so they are ratios under load.
"""

import argparse
import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from matrix_page import page
from unweave.experiments.results import rounded

import unweave as uw
from unweave.models import build

DATA = ("cora", "citeseer", "pubmed")
MODELS = ("gcn", "gat", "sgc", "gin")
REQUESTS = ("edges:0.05", "nodes:0.1", "features:0.1", "flipped:0.2")
WAYS = ("ordinary", "forgettable")
DAMPINGS = (0.3, 1, 3, 10, 30, 100, 300, 1000)
STEPS = (1, 3, 7, 15)
ORDINARY_DECAY = 1e-4
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
Cell = tuple[str, str, str, str]


def decay(data: str, model: str, device: str) -> float:
    """The weight decay that validation chooses for a forgettable model on the first split."""
    graph = uw.load(data).to(device)
    module = build(model, graph.num_features, graph.num_classes, forgettable=True).to(device)
    return float(uw.train(module, graph, forgettable=True).recipe.weight_decay)


def run(task: tuple[Cell, float, int, str]) -> tuple[Cell, dict[str, Any]]:
    """One cell."""
    (way, data, model, forget), weight_decay, seeds, device = task
    torch.set_num_threads(1)
    result = uw.compare(
        data,
        model,
        forget,
        methods=METHODS[way],
        seeds=seeds,
        weight_decay=weight_decay,
        forgettable=way == "forgettable",
        averaged=way == "ordinary",
        device=device,
    )
    document: dict[str, Any] = rounded(result.to_dict())
    return task[0], document


def choose(task: tuple[str, str, str]) -> tuple[tuple[str, str], float]:
    """A weight decay, for the pool."""
    torch.set_num_threads(1)
    return task[:2], decay(*task)


@contextmanager
def processes(jobs: int) -> Iterator[Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]]:
    """A ``map`` in so many processes, in whatever order they are done; one is this one."""
    if jobs == 1:
        yield map
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool.imap_unordered


def read(out: Path) -> dict[Cell, dict[str, Any]]:
    """The cells that are done."""
    found = {}
    for way in WAYS:
        path = out / f"{way}.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            document = json.loads(line)
            config = document["config"]
            found[way, config["data"], config["model"], config["forget"]] = document
    return found


def write(out: Path, found: dict[Cell, dict[str, Any]]) -> None:
    """One line a cell, in a fixed order."""
    for way in WAYS:
        lines = [json.dumps(found[cell], allow_nan=False) for cell in sorted(found) if cell[0] == way]
        (out / f"{way}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Run the cells that are missing, and make the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--forget", default=",".join(REQUESTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/matrix"))
    parser.add_argument("--page", action="store_true", help="make the page from the cells there are")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = list(
        itertools.product(*(getattr(options, part).split(",") for part in ("ways", "data", "models", "forget")))
    )
    found = read(options.out)
    if not options.page:
        with processes(options.jobs) as each:
            pairs = sorted({(data, model) for way, data, model, _ in wanted if way == "forgettable"})
            decays = dict(each(choose, [(*pair, options.device) for pair in pairs]))
            tasks = [
                (cell, decay, options.seeds, options.device)
                for cell in wanted
                for decay in [decays[cell[1:3]] if cell[0] == "forgettable" else ORDINARY_DECAY]
                if cell not in found or found[cell]["config"]["weight_decay"] != decay
            ]
            # The dearest first, so that no process is left with a long one at the end.
            tasks.sort(key=lambda task: (task[0][1] != "pubmed", task[0][2] not in ("gat", "gin")))
            for done, (cell, document) in enumerate(each(run, tasks), start=1):
                found[cell] = document
                write(options.out, found)
                print(f"{done} of {len(tasks)} cells", flush=True)
    (options.out / "README.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()

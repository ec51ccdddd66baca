"""The page of poison recovery: tables and one figure, all from the result file."""

import itertools
from pathlib import Path
from statistics import fmean
from typing import Any

from unweave.drawing import POISONS
from unweave.experiments.experiment import number, table

from unweave.experiments.style import Curve, band_panels

Cell = tuple[str, str, str, str]
"""Way of training, data, model and request."""

Results = dict[Cell, dict[str, Any]]

METHODS = {
    "none": "doing nothing",
    "finetune": "fine-tuned",
    "gif": "gif",
    "replay(share=0.2)": "replayed, the last 20 %",
    "retrain": "retrained",
}
BEFORE = "corrupted model, corrupted graph"
MATTERS = 0.01
"""F1 that a poison must have cost for a share of it to mean something."""


def cell_of(document: dict[str, Any]) -> Cell:
    """The cell that a document is of."""
    config = document["config"]
    return "forgettable" if config["forgettable"] else "ordinary", config["data"], config["model"], config["forget"]


def split(forget: str) -> tuple[str, float, bool]:
    """Kind, share, and whether all of the poison is in the request."""
    kind, _, rest = forget.partition(":")
    share, _, part = rest.partition("@")
    return kind, float(share), not part


def value(document: dict[str, Any], method: str, key: str) -> float | None:
    """A figure of a method."""
    found: float | None = next((row[key] for row in document["rows"] if row["method"] == method), None)
    return found


def attacks(documents: list[dict[str, Any]], method: str) -> list[float]:
    """Attack success over some cells; before, for the corrupted model."""
    name, key = ("none", "attack_before") if method == BEFORE else (method, "attack")
    found = [value(document, name, key) for document in documents]
    return [figure for figure in found if figure is not None]


def recovery(documents: list[dict[str, Any]], method: str) -> float | None:
    """Of the F1 that the poison cost over some cells together, what comes back; ``None`` where it cost too little."""
    rows = [[value(document, name, "f1_mean") for name in ("none", method, "retrain")] for document in documents]
    known = [(none, own, best) for none, own, best in rows if none is not None and own is not None and best is not None]
    lost = fmean(best - none for none, _, best in known) if known else 0.0
    return fmean(own - none for none, own, _ in known) / lost if lost >= MATTERS else None


def draw(results: Results, path: Path) -> Path:
    """Attack success against the share poisoned, a panel a kind; in every second row half of it is forgotten."""
    panels = {}
    for way, whole, kind in itertools.product(sorted({cell[0] for cell in results})[::-1], (True, False), POISONS):
        cells = [
            (share, d)
            for cell, d in results.items()
            for k, share, w in [split(cell[3])]
            if (cell[0], k, w) == (way, kind, whole)
        ]
        curves = []
        for method, label in {BEFORE: BEFORE, **METHODS}.items():
            points = [(share, attacks([d for s, d in cells if s == share], method)) for share in _shares(cells)]
            curves.append(Curve(label, [(share, found) for share, found in points if found]))
        panels[f"{way}: {kind}, {'all' if whole else 'half'} of it forgotten"] = curves
    return band_panels(panels, path, "share poisoned", "attack success", columns=len(POISONS), limits=(0.0, 1.0))


def _shares(cells: list[tuple[float, dict[str, Any]]]) -> list[float]:
    return sorted({share for share, _ in cells})


def page(results: Results) -> str:
    """The whole page."""
    if not results:
        return "# Poison recovery\n\nNothing has been run yet.\n"
    first = next(iter(results.values()))
    environment, config = first["environment"], first["config"]
    data, models = (", ".join(sorted({cell[i] for cell in results})) for i in (1, 2))
    lines = [
        "# Poison recovery",
        "",
        f"Made by `python benchmarks/poison.py` on {environment['device_name']}, torch {environment['torch']}, PyG "
        f"{environment['torch_geometric']}, commit {first['commit'][:12]}: {models} on {data}, {config['seeds']} "
        f"seeds, {config['epochs']} epochs. All of it, with spreads, times and gaps, is in `poison.jsonl`. What is "
        "poisoned, and what *attack success* and *recovery* are, is said in "
        "[Proof of forgetting](../../../docs/audit.md#poison). Recovery is shown where the poison cost at least "
        f"{MATTERS:g} of F1. Fine-tuning runs {config['finetune']}.",
        "",
        "![Attack success against the share poisoned](attack.png)",
        "",
        "Means over the models and graphs, in bands of one standard error.",
    ]
    titles = {"ordinary": "As the paper trains", "forgettable": "Trained to a minimum"}
    for (way, title), kind in itertools.product(titles.items(), POISONS):
        cells = {cell: d for cell, d in results.items() if cell[0] == way and split(cell[3])[0] == kind}
        if cells:
            lines += ["", f"## {title}: {kind}", "", *_summary(cells), "", *_cells(cells)]
    return "\n".join(lines) + "\n"


def _summary(cells: Results) -> list[str]:
    """Means over the models and graphs, by share and part."""
    rows = []
    for whole in (True, False):
        for share in sorted({split(cell[3])[1] for cell in cells}):
            some = [d for cell, d in cells.items() if split(cell[3])[1:] == (share, whole)]
            if some:
                found = [
                    number(fmean(known), ".2f") if (known := attacks(some, m)) else "–" for m in (BEFORE, *METHODS)
                ]
                back = [number(recovery(some, method)) for method in list(METHODS)[1:-1]]
                rows.append([f"{share:g}", "all" if whole else "half", *found, *back])
    names = list(METHODS.values())
    head = ["poisoned", "forgotten", "attack before", *names, *(f"recovery: {name}" for name in names[1:-1])]
    return table(head, rows)


def _cells(cells: Results) -> list[str]:
    """Every cell: attack success with its spread, F1 of doing nothing and of retraining."""
    rows = []
    for (_, data, model, forget), document in sorted(cells.items(), key=lambda pair: (pair[0][1:3], split(pair[0][3]))):
        spreads = [
            f"{number(value(document, m, 'attack'), '.2f')} ± {number(value(document, m, 'attack_std'), '.2f')}"
            for m in METHODS
        ]
        before = number(value(document, "none", "attack_before"), ".2f")
        f1 = [number(value(document, method, "f1_mean"), ".3f") for method in METHODS]
        rows.append([f"{model} {data} {forget}", before, *spreads, *f1])
    names = list(METHODS.values())
    head = ["cell", "attack before", *names, *(f"F1: {name}" for name in names)]
    return ["Every cell, mean ± standard deviation over the seeds:", "", *table(head, rows)]

"""The page of ``poison.py``: tables and one figure."""

from itertools import product
from pathlib import Path
from statistics import fmean

from shared import WAYS, Cell, Document, cells

from pages.parts import Blocks, Page, number, places, table
from unweave.experiments.style import Curve, band_panels
from unweave.graph.draw import POISONS

Results = dict[Cell, Document]

METHODS = {
    "none": "doing nothing",
    "finetune": "fine-tuned",
    "gif": "gif",
    "replay(share=0.2)": "replayed, the last 20 %",
    "retrain": "retrained",
}
BETWEEN = dict(list(METHODS.items())[1:-1])
BEFORE = "corrupted model, corrupted graph"
MATTERS = 0.01
"""F1 that a poison must have cost for a share of it to mean something."""


def read(out: Path) -> Results:
    """The cells that are done."""
    return cells(out / "poison.jsonl")


def split(forget: str) -> tuple[str, float, bool]:
    """Kind, share, and whether all of the poison is in the request."""
    kind, _, rest = forget.partition(":")
    share, _, part = rest.partition("@")
    return kind, float(share), not part


def value(document: Document, method: str, key: str) -> float | None:
    """A figure of a method."""
    return next((row[key] for row in document["rows"] if row["method"] == method), None)


def attacks(some: list[Document], method: str) -> list[float]:
    """Attack success over some cells; before, for the corrupted model."""
    name, key = ("none", "attack_before") if method == BEFORE else (method, "attack")
    return [figure for document in some if (figure := value(document, name, key)) is not None]


def recovery(some: list[Document], method: str) -> float | None:
    """Of the F1 that the poison cost over some cells together, what comes back; ``None`` where it cost too little."""
    rows = [[value(document, name, "f1_mean") for name in ("none", method, "retrain")] for document in some]
    known = [(none, own, best) for none, own, best in rows if none is not None and own is not None and best is not None]
    lost = fmean(best - none for none, _, best in known) if known else 0.0
    return fmean(own - none for none, own, _ in known) / lost if lost >= MATTERS else None


def by_share(found: Results, way: str, kind: str, *, whole: bool) -> dict[float, list[Document]]:
    """The cells of one way of training, kind of poison and part of it that is forgotten."""
    shares: dict[float, list[Document]] = {}
    for cell, document in found.items():
        own, share, all_of_it = split(cell[3])
        if (cell[0], own, all_of_it) == (way, kind, whole):
            shares.setdefault(share, []).append(document)
    return dict(sorted(shares.items()))


def blocks(found: Results) -> Blocks:
    """What was found."""
    first = next(iter(found.values()))
    data, models = (", ".join(sorted({cell[i] for cell in found})) for i in (1, 2))
    where = places([first], "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit:.12}")
    yield (
        f"Made by `python benchmarks/poison.py` on {where}: {models} on {data}, {first['config']['seeds']} "
        f"seeds, {first['config']['epochs']} epochs. All of it, with spreads, times and gaps, is in `poison.jsonl`. "
        "What is poisoned, and what *attack success* and *recovery* are, is said in "
        "[Proof of forgetting](../../../docs/audit.md#poison). Recovery is shown where the poison cost at least "
        f"{MATTERS:g} of F1. Fine-tuning runs {first['config']['finetune']}."
    )
    yield "![Attack success against the share poisoned](attack.png)"
    yield "Means over the models and graphs, in bands of one standard error."
    titles = {"ordinary": "As the paper trains", "forgettable": "Trained to a minimum"}
    for (way, title), kind in product(titles.items(), POISONS):
        mine = {cell: d for cell, d in found.items() if cell[0] == way and split(cell[3])[0] == kind}
        if mine:
            yield f"## {title}: {kind}"
            yield _summary(mine, way, kind)
            yield "Every cell, mean ± standard deviation over the seeds:"
            yield _every(mine)


def _summary(found: Results, way: str, kind: str) -> list[str]:
    """Means over the models and graphs, by share and part."""
    rows = []
    for part, whole in (("all", True), ("half", False)):
        for share, some in by_share(found, way, kind, whole=whole).items():
            means = [number(fmean(known) if (known := attacks(some, m)) else None, ".2f") for m in (BEFORE, *METHODS)]
            rows.append([f"{share:g}", part, *means, *(number(recovery(some, method)) for method in BETWEEN)])
    recovered = [f"recovery: {name}" for name in BETWEEN.values()]
    return table(["poisoned", "forgotten", "attack before", *METHODS.values(), *recovered], rows)


def _every(found: Results) -> list[str]:
    """Every cell: attack success with its spread, and F1."""
    rows = []
    for (_, data, model, forget), document in sorted(found.items(), key=lambda pair: (pair[0][1:3], split(pair[0][3]))):
        attacked, spreads, f1 = (
            [number(value(document, method, key), form) for method in METHODS]
            for key, form in (("attack", ".2f"), ("attack_std", ".2f"), ("f1_mean", ".3f"))
        )
        both = [f"{mean} ± {spread}" for mean, spread in zip(attacked, spreads, strict=True)]
        before = number(value(document, "none", "attack_before"), ".2f")
        rows.append([f"{model} {data} {forget}", before, *both, *f1])
    return table(["cell", "attack before", *METHODS.values(), *(f"F1: {name}" for name in METHODS.values())], rows)


def draw(found: Results, out: Path) -> Path:
    """Attack success against the share poisoned, a panel a kind; in every second row half of it is forgotten."""
    panels = {}
    ways = [way for way in WAYS if any(cell[0] == way for cell in found)]
    for way, (part, whole), kind in product(ways, (("all", True), ("half", False)), POISONS):
        shares = by_share(found, way, kind, whole=whole)
        panels[f"{way}: {kind}, {part} of it forgotten"] = [
            Curve(label, [(share, known) for share, some in shares.items() if (known := attacks(some, method))])
            for method, label in {BEFORE: BEFORE, **METHODS}.items()
        ]
    path = out / "attack.png"
    return band_panels(panels, path, "share poisoned", "attack success", columns=len(POISONS), limits=(0.0, 1.0))


PAGE = Page("Poison recovery", read, blocks, draw)

"""The paper's efficacy figure: edges between classes are added, trained on, and forgotten."""

from pathlib import Path

from unweave.experiments.experiment import (
    PUBLISHED_SCALES,
    Experiment,
    best_published,
    figure_name,
    joined,
    measure,
    number,
    table,
)
from unweave.experiments.results import BEFORE, Cell, Results
from unweave.experiments.style import Curve, band_panels
from unweave.experiments.trial import OTHER_SEED

__all__ = ["EXPERIMENT"]

RATIOS = (0.5, 0.6, 0.7, 0.8, 0.9)
MODELS = ("gcn", "sgc", "gin", "gat")
CURVES = {
    BEFORE: "corrupted model, corrupted graph",
    "none": "corrupted model, clean graph",
    "finetune": "fine-tuned",
    "if": "IF",
    "published": "GIF as published",
    "gif": "gif",
    "retrain": "retrained",
    OTHER_SEED: "retrained, another seed",
}
PAPER = (
    "The paper reports for GCN a fall of the corrupted model from 0.819 to 0.760, a gain of 5–10 % by IF and of "
    "2.1–4.7 % more by GIF; for SGC 1–5 % more by GIF. It shows neither the corrupted model on the clean graph nor "
    "the retrained one."
)


def cells(quick: bool) -> list[Cell]:
    """Cora with edges between classes added, 0.5 to 0.9 times as many as there are."""
    methods = (("if", "if"), *((f"gif-published(scale={s})",) * 2 for s in PUBLISHED_SCALES[1::2]), ("gif", "gif"))
    return [
        Cell("demo" if quick else "cora", model, f"crossed:{ratio}", methods)
        for model in (("gcn",) if quick else MODELS)
        for ratio in ((0.5, 0.9) if quick else RATIOS)
    ]


def section(results: Results) -> list[str]:
    """The figure, a table of its ends, and what it shows."""
    rows, lines, curves = [], [], _curves(results)
    for model, names in _by_model(results).items():
        for name in (names[0], names[-1]):
            figures = [number(results.mean(name, _method(results, name, m) or "", "f1"), ".3f") for m in curves]
            rows.append([model.upper(), name.split()[2].partition(":")[2], *figures])
        gains: dict[str, list[float]] = {"the graph": [], "gif's parameters": [], "retraining's": []}
        for name in names:
            f1 = {m: results.mean(name, m, "f1") or 0.0 for m in (BEFORE, "none", "gif", "retrain")}
            gains["the graph"].append(f1["none"] - f1[BEFORE])
            gains["gif's parameters"].append(f1["gif"] - f1["none"])
            gains["retraining's"].append(f1["retrain"] - f1["none"])
        parts = "; ".join(f"{what} {number(min(g), '+.3f')} … {number(max(g), '+.3f')}" for what, g in gains.items())
        lines.append(f"- {model.upper()}, gain of F1 over the corrupted model on the corrupted graph: {parts} on top.")
    return [
        "Edges between training nodes of different classes are added to Cora, 0.5 to 0.9 times as many as it has; "
        "the model is trained on that, and exactly those edges are forgotten. F1 on the test nodes of the clean "
        "graph, but for the corrupted model on the corrupted graph.",
        "",
        f"![F1 against the share of added edges, a panel for each backbone]({figure_name('efficacy')})",
        "",
        *lines,
        f"- {PAPER} The control it lacks is *corrupted model, clean graph*: what cleaning the graph alone gains.",
        "",
        *table(["", "added", *curves.values()], rows),
    ]


def draw(results: Results, folder: Path) -> list[Path]:
    """One panel a backbone."""
    panels = {}
    for model, names in _by_model(results).items():
        curves = []
        for method, label in _curves(results).items():
            points = []
            for name in names:
                found = _method(results, name, method)
                if found and results.values(name, found, "f1"):
                    points.append((float(name.split()[2].partition(":")[2]), results.values(name, found, "f1")))
            curves.append(Curve(label, points))
        panels[model.upper()] = curves
    return [band_panels(panels, folder / figure_name("efficacy"), "added edges / edges", "F1 on test nodes")]


def _curves(results: Results) -> dict[str, str]:
    return CURVES | {method: method for method in joined(results, results, CURVES)}


def _method(results: Results, name: str, method: str) -> str | None:
    return best_published(results, name) if method == "published" else method


def _by_model(results: Results) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for model in MODELS:
        names = [name for name in results if results.config(name)["model"] == model]
        if names:
            found[model] = sorted(names)
    return found


EXPERIMENT = Experiment("efficacy", cells, measure, section, draw)

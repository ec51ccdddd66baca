"""The paper's figure of unlearning ratios: nodes and features, a tenth to a half of them."""

from itertools import product
from pathlib import Path

from unweave.experiments.paper.experiment import (
    FEW_SCALES,
    Experiment,
    behind,
    figure_name,
    joined,
    measure,
    method_of,
    number,
    spread,
    table,
)
from unweave.experiments.paper.results import Cell, Results
from unweave.experiments.style import Curve, band_panels
from unweave.experiments.trial import OTHER_SEED

__all__ = ["EXPERIMENT"]

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5)
KINDS = ("nodes", "features")
MODELS = ("gcn", "sgc", "gat", "gin")
DATA = ("cora", "citeseer")
CURVES = {
    "none": "doing nothing",
    "finetune": "fine-tuned",
    "if": "IF",
    "published": "GIF as published",
    "gif": "gif",
    "retrain": "retrained",
}


def cells(quick: bool) -> list[Cell]:
    """Nodes and features on Cora and CiteSeer."""
    methods = (("if", "if"), *((f"gif-published(scale={s})",) * 2 for s in FEW_SCALES), ("gif", "gif"))
    return [
        Cell(data, model, f"{kind}:{ratio}", methods)
        for data in (("demo",) if quick else DATA)
        for model in (("gcn",) if quick else MODELS)
        for kind in KINDS
        for ratio in ((0.1, 0.5) if quick else RATIOS)
    ]


def section(results: Results) -> list[str]:
    """The figures, what they show, and a table of their ends."""
    lines = [
        "A share of the training nodes is deleted, or loses all features. The paper reports that GIF tracks retraining "
        "and that deleting nodes costs more than deleting features, from F1 alone; F1 above that of retraining is what "
        "was not forgotten. Gaps below −1 are cut off. *GIF as published* is the better of the scales "
        f"{' and '.join(map(str, FEW_SCALES))} in hindsight, where it diverges for no seed.",
    ]
    for data in _data(results):
        for figure, what in (("f1", "F1"), ("gap-closed", "Gap closed")):
            path = figure_name("ratio", f"{data}-{figure}")
            lines += ["", f"![{what} against the share forgotten, {data}, a panel for each backbone and kind]({path})"]
    lines += [""]
    for ratio in sorted({name.partition(":")[2] for name in results}):
        names = [name for name in results if name.endswith(f":{ratio}")]
        lines += [line.replace(" closes", f", {ratio} forgotten, closes", 1) for line in behind(results, names)]
    rows, closing = [], ("finetune", "if", "published", "gif", OTHER_SEED, *joined(results, results, CURVES))
    for data, model, kind in product(_data(results), MODELS, KINDS):
        names = _names(results, data, model, kind)
        for name in (names[0], names[-1]) if names else ():
            f1 = [spread(results, name, m, "f1", ".3f") for m in ("none", "gif", "retrain")]
            closed = [spread(results, name, method_of(results, name, m)) for m in closing]
            cost = number(results.median(name, "gif", "cost"), ".0%")
            rows.append([f"{model.upper()} {data}", name.split()[2], *f1, *closed, cost])
    head = ["", "forgotten", "F1 none", "F1 gif", "F1 retrain", *(f"closed: {CURVES.get(m, m)}" for m in closing)]
    return [*lines, "", *table([*head, "cost of gif"], rows)]


def draw(results: Results, folder: Path) -> list[Path]:
    """F1 and gap closed for each data set."""
    found = []
    for data in _data(results):
        for figure, up, limits in (("f1", "F1 on test nodes", None), ("gap_closed", "gap closed", (-1.05, 1.05))):
            panels = {}
            for kind in KINDS:
                for model in MODELS:
                    names = _names(results, data, model, kind)
                    if names:
                        panels[f"{model.upper()}, {kind}"] = [
                            _curve(results, names, m, figure) for m in (*CURVES, *joined(results, results, CURVES))
                        ]
            path = folder / figure_name("ratio", f"{data}-{figure.replace('_', '-')}")
            columns = min(len(MODELS), len(panels))
            found.append(band_panels(panels, path, "share forgotten", up, columns=columns, limits=limits))
    return found


def _curve(results: Results, names: list[str], method: str, figure: str) -> Curve:
    points = []
    for name in names:
        values = results.values(name, method_of(results, name, method), figure)
        if values:
            points.append((float(name.partition(":")[2]), values))
    return Curve(CURVES.get(method, method), points)


def _names(results: Results, data: str, model: str, kind: str) -> list[str]:
    return sorted(name for name in results if name.startswith(f"{model} {data} {kind}:"))


def _data(results: Results) -> list[str]:
    return sorted({results.config(name)["data"] for name in results}, reverse=True)


EXPERIMENT = Experiment("ratio", cells, measure, section, draw)

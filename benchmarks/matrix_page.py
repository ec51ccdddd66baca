"""The page of the matrix: tables and the targets, all from the result files."""

from statistics import fmean
from typing import Any

Cell = tuple[str, str, str, str]
Results = dict[Cell, dict[str, Any]]

COLUMNS = {
    "none": "none",
    "finetune": "fine-tune",
    "if": "IF",
    "published": "published",
    "gif(steps=1)": "gif 1",
    "gif(steps=3)": "3",
    "gif(steps=7)": "7",
    "gif(steps=15)": "15",
    "gif": "**gif**",
    "lbfgs(steps=3)": "plain 3",
    "lbfgs(steps=7)": "7",
    "lbfgs(steps=15)": "15",
    "retrain (other seed)": "other seed",
    "retrain(disturbed=0.001)": "chaos",
}
CONVEX = ("gcn", "sgc")
RANDOM = ("edges:0.05", "nodes:0.1", "features:0.1")


def value(document: dict[str, Any], method: str, key: str = "gap_closed_mean") -> float | None:
    """A figure of a method; ``published`` is the better of its scales, ``best`` the better fixed damping."""
    rows = {row["method"]: row for row in document["rows"]}
    if method in ("published", "best"):
        prefix = "gif-published" if method == "published" else "gif(damping="
        found = [row[key] for name, row in rows.items() if name.startswith(prefix) and row[key] is not None]
        return max(found, default=None)
    return rows[method][key] if method in rows else None


def number(figure: float | None, form: str = "+.2f") -> str:
    """A figure in a table."""
    return "–" if figure is None else "< −9" if figure < -9 else format(figure, form).replace("-", "−")


def page(results: Results) -> str:
    """The whole page."""
    if not results:
        return "# The matrix\n\nNothing has been run yet.\n"
    first = next(iter(results.values()))
    environment = first["environment"]
    lines = [
        "# The matrix",
        "",
        f"Made by `python benchmarks/matrix.py --device cuda --jobs 15` on {environment['device_name']}, torch "
        f"{environment['torch']}, PyG {environment['torch_geometric']}: {first['config']['seeds']} seeds, "
        f"{first['config']['epochs']} epochs. All of it, with spreads, times and passes, is in `ordinary.jsonl` and "
        "`forgettable.jsonl`.",
        "",
        "Gap closed, mean over the seeds: 0 as doing nothing, 1 indistinguishable from retraining with the same "
        "seed. `gif 1, 3, 7, 15`: so many gradients after the first, and on ordinary models up to 60 curvature "
        "products before them; **gif**: with no option. `plain`: L-BFGS from the trained parameters that knows "
        "nothing of the curvature. `published`: the paper's procedure, the better of scale 500 and 1000 over the "
        "seeds where it does not diverge; – where it always does, and seed-averaged where it ever does. `best "
        "damping`: the paper's single step with the best of eight dampings in hindsight. `other seed`: retrained "
        "from another seed; `chaos`: retrained from the same, initial weights disturbed by 0.1 %. `IF` was measured "
        "when it did not check its step. Fine-tuning runs as long as gif. Cost: time of gif / time of retraining, "
        "under the load of all processes. Decay: weight decay.",
    ]
    for way, title in (("ordinary", "As the paper trains"), ("forgettable", "Trained to a minimum")):
        cells = {cell: document for cell, document in sorted(results.items()) if cell[0] == way}
        if cells:
            lines += ["", f"## {title}", *_targets(way, cells, results), "", *_table(cells, "gap_closed_mean")]
            if way == "ordinary":
                lines += ["", "The same for predictions averaged over the seeds (`mean_gap_closed`):", ""]
                lines += _table(cells, "mean_gap_closed")
    return "\n".join(lines) + "\n"


def _table(cells: Results, key: str) -> list[str]:
    columns = dict(COLUMNS)
    if next(iter(cells))[0] == "ordinary":
        columns |= {"best": "best damping"}
    head = ["cell", *columns.values(), "cost", "F1", "decay"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (_, data, model, forget), document in cells.items():
        figures = [number(value(document, method, key)) for method in columns]
        tail = [
            number(value(document, "gif", "cost_median"), ".0%"),
            number(value(document, "gif", "f1_mean"), ".3f"),
            format(document["config"]["weight_decay"], "g"),
        ]
        lines.append("| " + " | ".join([f"{model} {data} {forget}", *figures, *tail]) + " |")
    return lines


def _targets(way: str, cells: Results, results: Results) -> list[str]:
    return ["", *(f"- {line}" for line in (_ordinary(cells) if way == "ordinary" else _forgettable(cells, results)))]


def _name(cell: Cell) -> str:
    return f"{cell[2]} {cell[1]} {cell[3]}"


def _listed(cells: list[str]) -> str:
    return f": {'; '.join(cells)}" if cells else ""


def _ordinary(cells: Results) -> list[str]:
    lines = []
    for key, title in (("gap_closed_mean", "gap closed"), ("mean_gap_closed", "seed-averaged gap closed")):
        gif = {cell: value(d, "gif", key) for cell, d in cells.items()}
        known = {cell: figure for cell, figure in gif.items() if figure is not None}

        def against(other: str, margin: float, key: str = key, known: dict[Cell, float] = known) -> list[str]:
            """Cells where a control beats gif by more than a margin."""
            beaten = []
            for cell, figure in known.items():
                rival = value(cells[cell], other, key)
                if rival is not None and rival > figure + margin:
                    beaten.append(f"{_name(cell)} ({number(figure)} against {number(rival)})")
            return beaten

        below = [f"{_name(c)} ({number(f)})" for c, f in known.items() if f < 0]
        far, published, tuned = against("best", 0.05), against("published", 0.0), against("finetune", 0.0)
        share = 1 - len(far) / max(len(known), 1)
        lines += [
            f"By {title}: mean of gif {number(fmean(known.values()))} over {len(known)} cells, of the best fixed "
            f"damping in hindsight {number(_mean(cells, 'best', key))}, of the published procedure where it gives "
            f"numbers {number(_mean(cells, 'published', key))}, of fine-tuning "
            f"{number(_mean(cells, 'finetune', key))} (cells below −1 counted as −1).",
            f"By {title}: {len(below)} cells of gif below 0{_listed(below)}.",
            f"By {title}: gif within 0.05 of the best fixed damping, or above it, in {share:.0%} of the cells; "
            f"not in{_listed(far)}.",
            f"By {title}: the published procedure is ahead of gif in {len(published)} cells{_listed(published)}.",
            f"By {title}: time-matched fine-tuning is ahead of gif in {len(tuned)} cells{_listed(tuned)}.",
        ]
    return lines


def _mean(cells: Results, method: str, key: str) -> float | None:
    found = [figure for d in cells.values() if (figure := value(d, method, key)) is not None]
    return fmean(max(figure, -1.0) for figure in found) if found else None


def _forgettable(cells: Results, results: Results) -> list[str]:
    f1 = []
    for (_, data, model, forget), document in cells.items():
        ordinary = results.get(("ordinary", data, model, forget))
        if ordinary is not None and forget in RANDOM:
            f1.append((value(document, "none", "f1_mean") or 0) - (value(ordinary, "none", "f1_mean") or 0))
    lines = [
        f"F1 before forgetting, against ordinary training, mean over {len(f1)} cells: {number(fmean(f1), '+.4f')}."
        if f1
        else "F1 against ordinary training: not measured."
    ]
    checks = (
        ("seed floor at least 0.9", CONVEX, (*RANDOM, "flipped:0.2"), "retrain (other seed)", 0.9),
        ("gif within 8 gradients at least 0.9", ("gcn",), RANDOM, "gif(steps=7)", 0.9),
        ("gif within 16 gradients at least 0.97", ("gcn",), RANDOM, "gif(steps=15)", 0.97),
        ("gif within 16 gradients at least 0.9", ("gcn",), ("flipped:0.2",), "gif(steps=15)", 0.9),
        ("gif within 16 gradients at least 0.999", ("sgc",), (*RANDOM, "flipped:0.2"), "gif(steps=15)", 0.999),
        ("gif within 16 gradients at least 0.8", ("gat", "gin"), (*RANDOM, "flipped:0.2"), "gif(steps=15)", 0.8),
    )
    for title, models, requests, method, least in checks:
        figures = {c: value(d, method) for c, d in cells.items() if c[2] in models and c[3] in requests}
        short = [f"{_name(c)} ({number(f, '+.3f')})" for c, f in figures.items() if f is None or f < least]
        lines.append(
            f"{' and '.join(m.upper() for m in models)}, {' / '.join(requests)}: {title} in "
            f"{len(figures) - len(short)} of {len(figures)} cells"
            + (f"; not in {'; '.join(short)}" if short else "")
            + "."
        )
    return lines

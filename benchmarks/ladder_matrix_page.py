"""The page of the extended matrix: claims, every cell, and gap closed against cost, all from the result files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from unweave.experiments.experiment import number, table

from unweave.experiments.style import grid, save

Line = dict[str, Any]

BUDGETS = (0.02, 0.05, 0.1, 0.2)
ORDER = {"data": ("cora", "citeseer", "pubmed"), "model": ("gcn", "gat", "sgc", "gin")}
REQUESTS = ("edges:0.05", "nodes:0.1", "features:0.1", "flipped:0.2")
WORSE = 0.05
"""By how much a fixed rung has to be better."""

FAMILIES = {
    "none": ("0.45", "s"),
    "finetune": ("#5c8a2f", "v"),
    "gif": ("#1f5fa8", "o"),
    "replay": ("#c65d21", "^"),
    "retrace": ("#7a4f9a", "D"),
    "retrain": ("black", "X"),
    "auto": ("#c4161c", "*"),
}


@dataclass(frozen=True)
class Cell:
    """One way of training, device, data set, model and request: a trial for each seed, and their averaged gap."""

    way: str
    device: str
    data: str
    model: str
    forget: str
    trials: list[Line]
    averaged: dict[str, float | None]

    @property
    def name(self) -> str:
        """In a table."""
        return f"{self.way} {self.model} {self.data} {self.forget} ({self.device})"

    @property
    def methods(self) -> list[str]:
        """Those that gave an answer for some seed."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial["methods"]))

    def values(self, method: str, key: str, among: Sequence[Line] | None = None) -> list[float]:
        """A figure of a method for every seed that has it."""
        trials = self.trials if among is None else among
        found = (trial["methods"].get(method, {}).get(key) for trial in trials)
        return [value for value in found if value is not None]

    def closed(self, method: str) -> float | None:
        """Gap closed, the mean over the seeds."""
        values = self.values(method, "gap_closed")
        return fmean(values) if values else None

    def cost(self, method: str) -> float | None:
        """Cost, the median over the seeds."""
        values = self.values(method, "cost")
        return median(values) if values else None

    def best_fixed(self, budget: float, *, within: bool) -> tuple[str, float] | None:
        """The best rung that costs no more than ``auto`` did, or than the budget, over the seeds it answered for."""
        auto = f"auto(budget={budget:g})"
        answered = [trial for trial in self.trials if auto in trial["methods"]]
        if not answered:
            return None
        limit = budget if within else median(self.values(auto, "cost", answered))
        found = {}
        for rung in self.methods:
            closed, costs = self.values(rung, "gap_closed", answered), self.values(rung, "cost", answered)
            if rung.startswith(("auto", "retrain")) or rung in ("none", "finetune") or len(closed) < len(answered):
                continue
            if median(costs) <= limit:
                found[rung] = fmean(closed)
        return max(found.items(), key=lambda pair: pair[1]) if found else None


def cells_of(lines: Sequence[Line]) -> list[Cell]:
    """The lines by cell, in the order of the page."""
    keys = ("way", "device", "data", "model", "forget")
    names = dict.fromkeys(tuple(line[key] for key in keys) for line in lines)

    def place(name: tuple[str, ...]) -> tuple[Any, ...]:
        way, device, data, model, forget = name
        return way == "forgettable", device, ORDER["model"].index(model), ORDER["data"].index(data), forget

    found = []
    for name in sorted(names, key=place):
        mine = [line for line in lines if tuple(line[key] for key in keys) == name]
        trials = [line for line in mine if "split" in line and line["split"] == line["seed"]]
        averaged: dict[str, float | None] = next((line["mean_gap_closed"] for line in mine if "seeds" in line), {})
        if trials:
            way, device, data, model, forget = name
            found.append(Cell(way, device, data, model, forget, trials, averaged))
    return found


def page(lines: Sequence[Line]) -> str:
    """The whole page."""
    cells = cells_of(lines)
    text = [
        "# The matrix and the ladder",
        "",
        "Made by `python benchmarks/ladder_matrix.py` from the files beside it, a line for each trial. A cell is one "
        "way of training, model, data set and request; its figures are means over the seeds, costs are medians. Costs "
        "are shares of a retraining in the same process, under the load of the other processes.",
        "",
        *_claims(cells),
        "",
        *_figures(cells),
        "",
        *_table(cells),
    ]
    trials = [line for line in lines if "split" in line]
    places = sorted(
        {f"{t['environment']['device_name']}, torch {t['environment']['torch']}, `{t['commit'][:12]}`" for t in trials}
    )
    deletions = sorted({t["calibration"]["deletions"] for t in trials})
    spread = f"{deletions[0]} to {deletions[-1]}" if len(deletions) > 1 else str(deletions[0]) if deletions else "no"
    text += ["", f"{len(trials)} trials, calibrated by {spread} deletions that changed something; {'; '.join(places)}."]
    return "\n".join([*text, ""])


def _claims(cells: list[Cell]) -> list[str]:
    """What was to be shown, and in how many cells it is."""
    answered = [(cell, budget) for cell in cells for budget in BUDGETS if cell.closed(_auto(budget)) is not None]
    usual = [c for c in cells if c.way == "ordinary" and c.model in ("gcn", "gat")]
    flipped = [c for c in usual if c.forget.startswith("flipped")]
    auto = _auto(0.2)

    def ahead(pair: tuple[Cell, float], *, within: bool) -> bool:
        best = pair[0].best_fixed(pair[1], within=within)
        own = pair[0].closed(_auto(pair[1]))
        return best is None or own is None or own >= best[1] - WORSE

    def least(figure: Callable[[Cell], float | None], limit: float) -> Callable[[Cell], bool]:
        return lambda cell: (found := figure(cell)) is not None and found >= limit

    averaged = [cell for cell in usual if auto in cell.averaged]
    own_trials = [(t, m) for c in cells for t in c.trials for m in t["methods"] if m.startswith("auto")]
    rows = [
        _row("`auto` is not below 0 (cell × budget)", answered, lambda p: (p[0].closed(_auto(p[1])) or 0.0) >= 0, 1.0),
        _row("… in every single trial", own_trials, lambda p: (p[0]["methods"][p[1]]["gap_closed"] or 0.0) >= 0, 1.0),
        _row(
            f"no fixed rung that costs no more closes {WORSE} more (cell × budget)",
            answered,
            lambda p: ahead(p, within=False),
            0.9,
        ),
        _row("… no fixed rung within the budget", answered, lambda p: ahead(p, within=True), 0.9),
        _row("ordinary GCN and GAT, 20 %: gap closed ≥ 0.5", usual, least(lambda c: c.closed(auto), 0.5), 0.8),
        _row(
            "ordinary GCN and GAT, 20 %: seed-averaged ≥ 0.75",
            averaged,
            least(lambda c: c.averaged.get(auto), 0.75),
            0.8,
        ),
        _row("… flipped labels: gap closed ≥ 0.8", flipped, least(lambda c: c.closed(auto), 0.8), 1.0),
        _row(
            "… flipped labels: seed-averaged ≥ 0.8",
            [c for c in flipped if auto in c.averaged],
            least(lambda c: c.averaged.get(auto), 0.8),
            1.0,
        ),
        *(_row(f"`auto` at {b:.0%} is not refused (trials)", *_refusals(cells, b), None) for b in BUDGETS),
        *(
            _row(f"90 % intervals hold: {name}", pairs, lambda p: p[0]["low"] <= p[1] <= p[0]["high"], None)
            for name, pairs in _intervals(cells).items()
        ),
    ]
    return ["## What was to be shown", "", *table(["", "in", "of", "share", "wanted"], rows)]


def _row(what: str, cases: Sequence[Any], holds: Callable[[Any], bool], wanted: float | None) -> list[str]:
    count = sum(map(holds, cases))
    share = number(count / len(cases), ".0%") if cases else "–"
    return [what, str(count), str(len(cases)), share, "–" if wanted is None else f"{wanted:.0%}"]


def _refusals(cells: list[Cell], budget: float) -> tuple[list[Line], Callable[[Line], bool]]:
    trials = [trial for cell in cells for trial in cell.trials]
    return trials, lambda trial: _auto(budget) in trial["methods"]


def _intervals(cells: list[Cell]) -> dict[str, list[tuple[Line, float]]]:
    """(interval, what was closed) of every rung in every trial, by model and way and kind of request."""
    found: dict[str, list[tuple[Line, float]]] = {"the rung that `auto` chose": []}
    for cell in cells:
        for trial in cell.trials:
            chosen = {told["rung"] for told in trial["auto"].values() if "rung" in told}
            for rung, belief in trial["believed"].items():
                closed = trial["methods"].get(rung, {}).get("gap_closed")
                if belief["low"] is None or closed is None or rung.startswith("finetune"):
                    continue
                for name in (f"all rungs, {cell.way} {cell.model}", f"all rungs, {cell.way} {cell.forget}"):
                    found.setdefault(name, []).append((belief, closed))
                if rung in chosen:
                    found["the rung that `auto` chose"].append((belief, closed))
    return dict(sorted(found.items(), key=lambda pair: pair[0]))


def _table(cells: list[Cell]) -> list[str]:
    """One row a cell: what ``auto`` closes at each budget, seed-averaged where that is known, and the controls."""
    rows = []
    for cell in cells:
        row = [cell.name]
        for budget in BUDGETS:
            auto = _auto(budget)
            rungs = [t["auto"][auto]["rung"] for t in cell.trials if "rung" in t["auto"].get(auto, {})]
            refused = len(cell.trials) - len(rungs)
            if not rungs:
                row.append("refused")
                continue
            mean = cell.averaged.get(auto)
            row.append(
                f"{number(cell.closed(auto))}"
                + ("" if mean is None else f" ({number(mean)})")
                + f" at {number(cell.cost(auto), '.1%')}, {max(set(rungs), key=rungs.count)}"
                + (f"; {refused} of {len(cell.trials)} refused" if refused else "")
            )
        best = cell.best_fixed(0.2, within=True)
        row.append("–" if best is None else f"{number(best[1])} {best[0]}")
        row += [number(cell.closed(name)) for name in ("gif", "replay(share=0.2)", "finetune", "retrain (other seed)")]
        rows.append(row)
    head = [
        "cell",
        *(f"auto {budget:.0%}" for budget in BUDGETS),
        "best fixed within 20 %",
        "gif",
        "replay 20 %",
        "fine-tuning as long as auto 20 %",
        "other seed",
    ]
    return ["## Every cell", "", "Seed-averaged figures in brackets.", "", *table(head, rows)]


def _figures(cells: list[Cell]) -> list[str]:
    lines = ["## Gap closed against cost"]
    for way, device, model in _groups(cells):
        title = f"{way} {model.upper()}, {device}"
        lines += ["", f"![{title}]({_file(way, device, model)})"]
    return lines


def _groups(cells: list[Cell]) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((cell.way, cell.device, cell.model) for cell in cells))


def _file(way: str, device: str, model: str) -> str:
    return f"{way}-{model}-{device}.png"


def draw(lines: Sequence[Line], out: Path) -> list[Path]:
    """One figure for each way of training and model: a panel for each data set and request, every method in it."""
    cells, made = cells_of(lines), []
    for way, device, model in _groups(cells):
        mine = [c for c in cells if (c.way, c.device, c.model) == (way, device, model)]
        graphs = list(dict.fromkeys(c.data for c in mine))
        figure, panels = grid(len(graphs), len(REQUESTS))
        for cell in mine:
            _panel(panels[graphs.index(cell.data)][REQUESTS.index(cell.forget)], cell)
        made.append(save(figure, out / _file(way, device, model)))
    return made


def _panel(axes: Any, cell: Cell) -> None:
    seen: dict[str, list[tuple[float, float]]] = {}
    for method in cell.methods:
        closed, cost = cell.closed(method), cell.cost(method)
        if closed is not None and cost is not None and method != "retrain (other seed)":
            seen.setdefault(method.partition("(")[0], []).append((max(cost, 1e-3), max(closed, -1.0)))
    for family, (colour, marker) in FAMILIES.items():
        points = sorted(seen.get(family, []))
        if not points:
            continue
        line = "-" if family in ("replay", "auto") else ""
        size = 9 if family == "auto" else 4.5
        axes.plot(*zip(*points, strict=True), line, color=colour, marker=marker, ms=size, lw=0.8, label=family)
    other = cell.closed("retrain (other seed)")
    if other is not None:
        axes.axhline(max(other, -1.0), color="0.55", ls=":", lw=1, label="retrain (other seed)")
    axes.set_xscale("log")
    axes.set_ylim(-1.08, 1.08)
    axes.set_title(f"{cell.data} {cell.forget}", size=9, loc="left")
    axes.set_xlabel("cost, of a retraining", size=8)
    axes.legend(fontsize=5.5, frameon=False, loc="lower right")


def _auto(budget: float) -> str:
    return f"auto(budget={budget:g})"

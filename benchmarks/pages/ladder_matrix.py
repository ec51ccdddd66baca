"""The page of ``ladder_matrix.py``: claims, every cell, and gap closed against cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median, mode
from typing import Any

from shared import DATA, MODELS, REQUESTS, Document, lines

from pages.parts import Blocks, Page, columns, number, places, table
from unweave.experiments.style import grid, save

BUDGETS = (0.02, 0.05, 0.1, 0.2)
CELL = ("way", "device", "data", "model", "forget")
OTHER = "retrain (other seed)"
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


def auto(budget: float) -> str:
    """The name of ``auto`` with a budget."""
    return f"auto(budget={budget:g})"


@dataclass(frozen=True)
class Cell:
    """One way of training, device, data set, model and request: a trial for each seed, and their averaged gap."""

    way: str
    device: str
    data: str
    model: str
    forget: str
    trials: list[Document]
    averaged: dict[str, float | None]

    @property
    def name(self) -> str:
        """In a table."""
        return f"{self.way} {self.model} {self.data} {self.forget} ({self.device})"

    @property
    def place(self) -> tuple[Any, ...]:
        """On the page."""
        order = MODELS.index(self.model), DATA.index(self.data), self.forget
        return self.way == "forgettable", self.device, *order

    @property
    def group(self) -> tuple[str, str, str]:
        """Whose figure it is in."""
        return self.way, self.device, self.model

    @property
    def methods(self) -> list[str]:
        """Those that gave an answer for some seed."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial["methods"]))

    def values(self, method: str, key: str, among: Sequence[Document] | None = None) -> list[float]:
        """A figure of a method for every seed that has it."""
        found = (t["methods"].get(method, {}).get(key) for t in (self.trials if among is None else among))
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
        answered = [trial for trial in self.trials if auto(budget) in trial["methods"]]
        if not answered:
            return None
        limit = budget if within else median(self.values(auto(budget), "cost", answered))
        found = {}
        for rung in self.methods:
            closed, costs = self.values(rung, "gap_closed", answered), self.values(rung, "cost", answered)
            if rung.startswith(("auto", "retrain")) or rung in ("none", "finetune") or len(closed) < len(answered):
                continue
            if median(costs) <= limit:
                found[rung] = fmean(closed)
        return max(found.items(), key=lambda pair: pair[1]) if found else None


def key_of(line: Document) -> tuple[Any, ...]:
    """What a line tells of: a trial, or a cell."""
    return tuple(line.get(part) for part in (*CELL, "split", "seed"))


def read(out: Path) -> dict[tuple[Any, ...], Document]:
    """What is done; of a line that was written twice the last."""
    return {key_of(line): line for line in lines(*sorted(out.glob("[of]*.jsonl")))}


def cells_of(found: dict[tuple[Any, ...], Document]) -> list[Cell]:
    """The lines by cell, in the order of the page."""
    groups: dict[tuple[Any, ...], list[Document]] = {}
    for key, line in found.items():
        groups.setdefault(key[: len(CELL)], []).append(line)
    cells = []
    for mine in groups.values():
        trials = [line for line in mine if "split" in line and line["split"] == line["seed"]]
        averaged: Document = next((line["mean_gap_closed"] for line in mine if "seeds" in line), {})
        if trials:
            cells.append(Cell(**{key: mine[0][key] for key in CELL}, trials=trials, averaged=averaged))
    return sorted(cells, key=lambda cell: cell.place)


def blocks(found: dict[tuple[Any, ...], Document]) -> Blocks:
    """What was found."""
    cells, trials = cells_of(found), [line for line in found.values() if "split" in line]
    yield (
        "Made by `python benchmarks/ladder_matrix.py` from the files beside it, a line for each trial. A cell is one "
        "way of training, model, data set and request; its figures are means over the seeds, costs are medians. Costs "
        "are shares of a retraining in the same process, under the load of the other processes."
    )
    yield "## What was to be shown"
    yield table(["", "in", "of", "share", "wanted"], list(_claims(cells)))
    yield "## Gap closed against cost"
    for way, device, model in dict.fromkeys(cell.group for cell in cells):
        yield f"![{way} {model.upper()}, {device}]({_file(way, device, model)})"
    yield "## Every cell"
    yield "Seed-averaged figures in brackets."
    yield columns(
        cells,
        {
            "cell": lambda c: c.name,
            **{f"auto {budget:.0%}": partial(_answer, auto(budget)) for budget in BUDGETS},
            "best fixed within 20 %": lambda c: (
                f"{number(best[1])} {best[0]}" if (best := c.best_fixed(0.2, within=True)) else None
            ),
            "gif": lambda c: number(c.closed("gif")),
            "replay 20 %": lambda c: number(c.closed("replay(share=0.2)")),
            "fine-tuning as long as auto 20 %": lambda c: number(c.closed("finetune")),
            "other seed": lambda c: number(c.closed(OTHER)),
        },
    )
    deletions = sorted({trial["calibration"]["deletions"] for trial in trials})
    spread = " to ".join(map(str, dict.fromkeys([deletions[0], deletions[-1]])))
    where = places(trials, "{device_name}, torch {torch}, `{commit:.12}`")
    yield f"{len(trials)} trials, calibrated by {spread} deletions that changed something; {where}."


def _claims(cells: list[Cell]) -> Iterator[list[str]]:
    """What was to be shown, and in how many cells it is."""
    answered = [(cell, budget) for cell in cells for budget in BUDGETS if cell.closed(auto(budget)) is not None]
    usual = [c for c in cells if c.way == "ordinary" and c.model in ("gcn", "gat")]
    flipped = [c for c in usual if c.forget.startswith("flipped")]
    trials = [trial for cell in cells for trial in cell.trials]
    own = [figures["gap_closed"] for t in trials for name, figures in t["methods"].items() if name.startswith("auto")]

    def row(what: str, holds: Sequence[bool], wanted: float | None = None) -> list[str]:
        share = number(sum(holds) / len(holds), ".0%") if holds else "–"
        return [what, str(sum(holds)), str(len(holds)), share, number(wanted, ".0%")]

    def ahead(*, within: bool) -> list[bool]:
        pairs = [(c.closed(auto(budget)) or 0.0, c.best_fixed(budget, within=within)) for c, budget in answered]
        return [best is None or closed >= best[1] - WORSE for closed, best in pairs]

    def closed(some: list[Cell], least: float) -> list[bool]:
        return [figure is not None and figure >= least for figure in (c.closed(auto(0.2)) for c in some)]

    def averaged(some: list[Cell], least: float) -> list[bool]:
        figures = [c.averaged[auto(0.2)] for c in some if auto(0.2) in c.averaged]
        return [figure is not None and figure >= least for figure in figures]

    yield row("`auto` is not below 0 (cell × budget)", [(c.closed(auto(b)) or 0.0) >= 0 for c, b in answered], 1.0)
    yield row("… in every single trial", [(figure or 0.0) >= 0 for figure in own], 1.0)
    yield row(f"no fixed rung that costs no more closes {WORSE} more (cell × budget)", ahead(within=False), 0.9)
    yield row("… no fixed rung within the budget", ahead(within=True), 0.9)
    yield row("ordinary GCN and GAT, 20 %: gap closed ≥ 0.5", closed(usual, 0.5), 0.8)
    yield row("ordinary GCN and GAT, 20 %: seed-averaged ≥ 0.75", averaged(usual, 0.75), 0.8)
    yield row("… flipped labels: gap closed ≥ 0.8", closed(flipped, 0.8), 1.0)
    yield row("… flipped labels: seed-averaged ≥ 0.8", averaged(flipped, 0.8), 1.0)
    for budget in BUDGETS:
        yield row(f"`auto` at {budget:.0%} is not refused (trials)", [auto(budget) in t["methods"] for t in trials])
    for name, held in sorted(_intervals(cells).items()):
        yield row(f"90 % intervals hold: {name}", held)


def _intervals(cells: list[Cell]) -> dict[str, list[bool]]:
    """Whether the interval of a rung held in a trial, by model and way and kind of request."""
    found: dict[str, list[bool]] = {"the rung that `auto` chose": []}
    for cell, trial in [(c, t) for c in cells for t in c.trials]:
        chosen = {told["rung"] for told in trial["auto"].values() if "rung" in told}
        for rung, belief in trial["believed"].items():
            closed = trial["methods"].get(rung, {}).get("gap_closed")
            if belief["low"] is None or closed is None or rung.startswith("finetune"):
                continue
            names = [f"all rungs, {cell.way} {cell.model}", f"all rungs, {cell.way} {cell.forget}"]
            for name in [*names, *["the rung that `auto` chose"] * (rung in chosen)]:
                found.setdefault(name, []).append(belief["low"] <= closed <= belief["high"])
    return found


def _answer(name: str, cell: Cell) -> str:
    """What ``auto`` closes at what cost, by the rung that most seeds chose (of two, that of the first)."""
    rungs = [t["auto"][name]["rung"] for t in cell.trials if "rung" in t["auto"].get(name, {})]
    if not rungs:
        return "refused"
    mean, refused = cell.averaged.get(name), len(cell.trials) - len(rungs)
    text = number(cell.closed(name)) + ("" if mean is None else f" ({number(mean)})")
    text += f" at {number(cell.cost(name), '.1%')}, {mode(rungs)}"
    return text + (f"; {refused} of {len(cell.trials)} refused" if refused else "")


def _file(way: str, device: str, model: str) -> str:
    return f"{way}-{model}-{device}.png"


def draw(found: dict[tuple[Any, ...], Document], out: Path) -> list[Path]:
    """One figure for each way of training and model: a panel for each data set and request, every method in it."""
    cells, made = cells_of(found), []
    for group in dict.fromkeys(cell.group for cell in cells):
        mine = [cell for cell in cells if cell.group == group]
        graphs = list(dict.fromkeys(cell.data for cell in mine))
        figure, panels = grid(len(graphs), len(REQUESTS))
        for cell in mine:
            _panel(panels[graphs.index(cell.data)][REQUESTS.index(cell.forget)], cell)
        made.append(save(figure, out / _file(*group)))
    return made


def _panel(axes: Any, cell: Cell) -> None:
    seen: dict[str, list[tuple[float, float]]] = {}
    for method in cell.methods:
        closed, cost = cell.closed(method), cell.cost(method)
        if closed is not None and cost is not None and method != OTHER:
            seen.setdefault(method.partition("(")[0], []).append((max(cost, 1e-3), max(closed, -1.0)))
    for family, (colour, marker) in FAMILIES.items():
        if points := sorted(seen.get(family, [])):
            line, size = "-" if family in ("replay", "auto") else "", 9 if family == "auto" else 4.5
            axes.plot(*zip(*points, strict=True), line, color=colour, marker=marker, ms=size, lw=0.8, label=family)
    other = cell.closed(OTHER)
    if other is not None:
        axes.axhline(max(other, -1.0), color="0.55", ls=":", lw=1, label=OTHER)
    axes.set_xscale("log")
    axes.set_ylim(-1.08, 1.08)
    axes.set_title(f"{cell.data} {cell.forget}", size=9, loc="left")
    axes.set_xlabel("cost, of a retraining", size=8)
    axes.legend(fontsize=5.5, frameon=False, loc="lower right")


PAGE = Page("The matrix and the ladder", read, blocks, draw)

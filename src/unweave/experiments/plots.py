"""Figures of a comparison and of an explanation. They need matplotlib (``pip install unweave[plot]``)."""

from pathlib import Path
from typing import Any

from unweave.experiments.compare import Comparison
from unweave.experiments.style import canvas, save
from unweave.inspection.explain import PULLS, RESISTANCES, Explanation, NodeForce
from unweave.inspection.felt import NodeChange

__all__ = ["plot_comparison", "plot_explanation"]

BLUE, ORANGE, GREY = "#1f5fa8", "#b04e14", "0.45"
Bar = tuple[str, float, str]
"""Name, value, colour."""

LOWEST = -1.5
"""Where the axis ends; a method that does worse is drawn at the edge with its figure."""


def plot_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Draw the gap closed by each method, between doing nothing and retraining, with its cost and score beside it."""
    rows = [row for row in reversed(comparison.rows) if row["gap_closed_mean"] is not None]
    key = comparison.config["metric"]
    figure = canvas(7.6, 1.5 + 0.42 * len(rows))
    axes = figure.add_subplot()
    for place, text in ((0.0, "doing\nnothing"), (1.0, "retraining")):
        axes.axvline(place, color="0.8", lw=1, zorder=0)
        axes.text(place, len(rows) - 0.35, text, ha="center", va="bottom", color="0.4", size=8)
    lowest = 0.0
    for height, row in enumerate(rows):
        mean, spread = row["gap_closed_mean"], row["gap_closed_std"]
        control = row["method"] in ("none", "finetune") or row["method"].startswith("retrain")
        colour = GREY if control else BLUE
        if mean < LOWEST:
            axes.plot(LOWEST, height, "<", color=colour, ms=7)
            axes.text(LOWEST + 0.06, height, f"{mean:+.1f}", va="center", color=colour, size=8)
            lowest = LOWEST
        else:
            axes.errorbar(mean, height, xerr=spread, fmt="o", ms=6, capsize=3, color=colour)
            lowest = min(lowest, max(mean - spread, LOWEST))
        axes.text(1.02, height, f"{row['cost_median']:.0%}", transform=axes.get_yaxis_transform(), va="center", size=9)
        axes.text(1.13, height, f"{row[f'{key}_mean']:.3f}", transform=axes.get_yaxis_transform(), va="center", size=9)
    for place, text in ((1.02, "cost"), (1.13, comparison.metric)):
        axes.text(place, len(rows) - 0.35, text, transform=axes.get_yaxis_transform(), va="bottom", color="0.4", size=8)
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.set_xlim(lowest - 0.15, 1.15)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    what = {"seconds": "time", "passes": "passes"}[comparison.config.get("matched", "seconds")]
    axes.set_xlabel(
        f"gap to the retrained model closed (mean ± standard deviation); cost: {what} / {what} of retraining", size=9
    )
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    config = comparison.config
    title = f"{config['model']} on {config['data']}, {config['seeds']} seeds, forgetting\n{config['forget']}"
    figure.suptitle(title, size=10, x=0.01, ha="left")
    return save(figure, Path(path))


def plot_explanation(explanation: Explanation, path: str | Path) -> Path:
    """Draw the forces behind an influence step, the nodes that pull and resist hardest, and the nodes that feel it."""
    work, unit = explanation.work, explanation.unit
    colours = {"touched": ORANGE, "neighbourhood": BLUE}
    forces = [(PULLS[k], v, colours.get(k, GREY)) for k, v in explanation.pulls.items() if v]
    held = [(RESISTANCES[k], v, GREY) for k, v in explanation.resistances.items() if v]
    names = {"touched": PULLS["touched"], "neighbourhood": PULLS["neighbourhood"], "nodes": "nodes that resist"}
    nodes = [
        (names[side], [(_label(n), n.work, colours.get(side, GREY)) for n in found])
        for side, found in explanation.hardest.items()
        if found
    ]
    lines = sum(1.5 + len(rows) for _, rows in nodes)
    figure = canvas(13.2, 1.4 + 0.24 * max(lines, 12))
    left, right, felt = figure.subplots(1, 3, width_ratios=(1, 1, 0.7))
    _bars(left, [(_total("what pulls", forces, unit), forces), (_total("what resists", held, unit), held)], work, unit)
    _bars(right, nodes, work, unit)
    for axes, text in ((left, "forces"), (right, "hardest nodes")):
        axes.set_title(text, size=9, loc="left", color="0.4")
        axes.set_xlabel(f"work along the step ({unit})", size=9)
    _felt(felt, explanation.changed)
    title = f"What moves the parameters when the model forgets {explanation.title}"
    figure.suptitle(title, size=10, x=0.01, ha="left")
    return save(figure, Path(path))


def _felt(axes: Any, changed: list[NodeChange]) -> None:
    """Each prediction that moves most: where it was, where one step takes it, and where it went."""
    for height, node in enumerate(reversed(changed)):
        end = node.predicted if node.actual is None else node.actual
        axes.plot([node.before, end], [height, height], color="0.7", lw=2, zorder=0)
        axes.plot(node.before, height, "o", ms=6, color=GREY, label="before" if height == 0 else None)
        if node.actual is not None:
            axes.plot(node.actual, height, "o", ms=7, color=ORANGE, label="actual" if height == 0 else None)
        axes.plot(node.predicted, height, "|", ms=12, mew=2, color=BLUE, label="predicted" if height == 0 else None)
    names = [f"{n.node}" + (f", {n.hops} hop{'s' * (n.hops != 1)}" if n.hops else "") for n in reversed(changed)]
    axes.set_yticks(range(len(changed)), names, size=9)
    axes.set_ylim(-0.8, max(len(changed), 5) - 0.2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title("predictions that move most", size=9, loc="left", color="0.4")
    axes.set_xlabel("probability of the predicted class" if _classes(changed) else "output", size=9)
    if changed:
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, handletextpad=0.2, columnspacing=0.8)


def _classes(changed: list[NodeChange]) -> bool:
    return any(node.label is not None for node in changed)


def _total(heading: str, rows: list[Bar], unit: str) -> str:
    return f"{heading}, together {sum(value for _, value, _ in rows):.3g} {unit}"


def _bars(axes: Any, groups: list[tuple[str, list[Bar]]], work: float, unit: str) -> None:
    """Horizontal bars in groups, each with its share of the work written beside it."""
    y, ticks, names = 0.0, [], []
    widest = max(abs(value) for _, rows in groups for _, value, _ in rows)
    for heading, rows in groups:
        axes.text(0.01 * widest, y, heading, size=8, color="0.4", va="center", ha="left")
        for name, value, colour in rows:
            y -= 1
            axes.barh(y, value, height=0.62, color=colour)
            end = max(value, 0.0) + 0.02 * widest
            axes.text(end, y, f"{value:.3g} {unit} ({value / work:.1%})", size=8, va="center")
            ticks.append(y)
            names.append(name)
        y -= 1.5
    low = min(0.0, *(value for _, rows in groups for _, value, _ in rows))
    axes.axvline(0, color="0.8", lw=1, zorder=0)
    axes.set_yticks(ticks, names, size=9)
    axes.set_ylim(y + 0.8, 0.7)
    axes.set_xlim(low * 1.05, widest * 1.75)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(node: NodeForce) -> str:
    facts = [f"node {node.node}"] + [f"class {node.label}"] * (node.label is not None)
    return ", ".join(facts + [f"{node.hops} hop{'s' * (node.hops != 1)}"] * bool(node.hops))

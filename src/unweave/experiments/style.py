"""One look for every figure: curves with bands of one standard error, labelled directly. Needs matplotlib.

A figure is a white card with a margin, whatever the page around it or the settings of matplotlib: what is drawn for
white paper stays legible on a dark page. Colours that words are written in have a contrast of at least 4.5 to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "Curve", "band_panels", "canvas", "draw_curve", "grid", "label_ends", "save"]

COLOURS = {
    "retrained": ("black", "-", 1.6),
    "retrained, another seed": ("0.45", ":", 1.2),
    "fine-tuned": ("#4a7423", "-", 1.2),
    "IF": ("#8a5d12", "-.", 1.2),
    "GIF as published": ("#b04e14", "--", 1.4),
    "gif": ("#1f5fa8", "-", 2.2),
    "corrupted model, corrupted graph": ("#8a3a6b", ":", 1.4),
    "corrupted model, clean graph": ("0.45", "-", 1.2),
    "doing nothing": ("0.45", "-", 1.2),
}
"""Colour, line and width of each curve, told apart in print too."""

OTHERS = ("#7b4fa3", "-", 1.6)
"""A method that joined by name."""

PANEL = (3.4, 2.7)
MARGIN = 0.14
"""Inches around every part of a figure."""


@dataclass(frozen=True)
class Curve:
    """A label and its points: x, and the values over the seeds."""

    label: str
    points: Sequence[tuple[float, Sequence[float]]]


def canvas(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UnweaveError("plots need matplotlib; install unweave[plot]") from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=MARGIN, h_pad=MARGIN)  # type: ignore[union-attr, call-arg]
    FigureCanvasAgg(figure)
    return figure


def grid(rows: int, columns: int, right: float = 0.0) -> "tuple[Figure, list[list[Axes]]]":
    """Panels in the house style, with room for labels at the right."""
    figure = canvas(PANEL[0] * columns + right, PANEL[1] * rows + 0.3)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="0.92", lw=0.8)
        axes.set_axisbelow(True)
    return figure, [list(row) for row in panels]


def draw_curve(axes: "Axes", curve: Curve) -> None:
    """The mean over the seeds, in a band of one standard error."""
    colour, line, width = COLOURS.get(curve.label, OTHERS)
    x = [point for point, _ in curve.points]
    mean = [fmean(values) for _, values in curve.points]
    spread = [stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0 for _, values in curve.points]
    axes.plot(x, mean, line, color=colour, lw=width, marker="o", ms=2.5)
    low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=colour, alpha=0.10, lw=0)


def label_ends(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Name each curve at its right end, pushing labels apart where curves meet."""
    low, high = axes.get_ylim()
    step = 0.075 * (high - low)
    ends = [(min(max(fmean(c.points[-1][1]), low), high), c) for c in curves if c.points]
    ends.sort(key=lambda pair: pair[0])
    place = low - step
    places = []
    for end, _ in ends:
        place = max(end, place + step)
        places.append(place)
    over = max(0.0, places[-1] - high) if places else 0.0
    for i in range(len(places) - 1, -1, -1):  # back below the top, keeping the distance
        ceiling = high if i == len(places) - 1 else places[i + 1] - step
        places[i] = min(places[i], ceiling) if over else places[i]
    for (end, curve), where in zip(ends, places, strict=True):
        axes.annotate(
            curve.label,
            (curve.points[-1][0], end),
            xytext=(1.05, (where - low) / (high - low)),
            textcoords="axes fraction",
            color=COLOURS.get(curve.label, OTHERS)[0],
            size=7.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "0.8", "lw": 0.5, "shrinkB": 2, "relpos": (0, 0.5)},
            annotation_clip=False,
        )
    for number, curve in enumerate(c for c in curves if not c.points):
        text, colour = f"{curve.label}: diverges here", COLOURS.get(curve.label, OTHERS)[0]
        axes.text(1.05, -0.08 - 0.075 * number, text, transform=axes.transAxes, size=7.5, color=colour, va="center")


def band_panels(
    panels: dict[str, list[Curve]],
    path: Path,
    across: str,
    up: str,
    *,
    columns: int = 2,
    limits: tuple[float, float] | None = None,
) -> Path:
    """One panel for each title; curves are named at the right of every row."""
    rows = -(-len(panels) // columns)
    figure, places = grid(rows, min(columns, len(panels)), right=1.9)
    flat = [axes for row in places for axes in row]
    for number, (axes, (title, curves)) in enumerate(zip(flat, panels.items(), strict=False)):
        for curve in curves:
            if curve.points:
                draw_curve(axes, curve)
        axes.set_title(title, size=9, loc="left")
        axes.set_xlabel(across, size=8)
        axes.set_xticks(sorted({x for curve in curves for x, _ in curve.points}))
        if number % columns == 0:
            axes.set_ylabel(up, size=8)
        if limits:
            axes.set_ylim(*limits)
        if number % columns == columns - 1 or number == len(panels) - 1:
            label_ends(axes, curves)
    for axes in flat[len(panels) :]:
        axes.set_visible(False)
    return save(figure, path)


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure, for print and for screens of any density."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the version of matplotlib, the same results give the same file.
        about = {"Software": None} if path.suffix == ".png" else None
        figure.savefig(path, dpi=150, facecolor="white", transparent=False, metadata=about)
    except (OSError, ValueError) as error:
        raise UnweaveError(f"cannot draw {path}: {error}") from error
    return path

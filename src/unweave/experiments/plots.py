"""Figures of a comparison. Needs matplotlib (``pip install unweave[plot]``)."""

from pathlib import Path

from unweave.errors import UnweaveError
from unweave.experiments.compare import Comparison

__all__ = ["plot_comparison"]

LOWEST = -1.5
"""Where the axis ends; a method that does worse is drawn at the edge with its figure."""


def plot_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Draw the gap closed by each method, between doing nothing and retraining, with its cost and F1 beside it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UnweaveError("plots need matplotlib; install unweave[plot]") from error

    rows = [row for row in reversed(comparison.rows) if row["gap_closed_mean"] is not None]
    figure = Figure(figsize=(7.6, 1.5 + 0.42 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, text in ((0.0, "doing\nnothing"), (1.0, "retraining")):
        axes.axvline(place, color="0.8", lw=1, zorder=0)
        axes.text(place, len(rows) - 0.35, text, ha="center", va="bottom", color="0.4", size=8)
    lowest = 0.0
    for height, row in enumerate(rows):
        mean, spread = row["gap_closed_mean"], row["gap_closed_std"]
        control = row["method"] in ("none", "finetune") or row["method"].startswith("retrain")
        colour = "0.45" if control else "#1f5fa8"
        if mean < LOWEST:
            axes.plot(LOWEST, height, "<", color=colour, ms=7)
            axes.text(LOWEST + 0.06, height, f"{mean:+.1f}", va="center", color=colour, size=8)
            lowest = LOWEST
        else:
            axes.errorbar(mean, height, xerr=spread, fmt="o", ms=6, capsize=3, color=colour)
            lowest = min(lowest, max(mean - spread, LOWEST))
        axes.text(1.02, height, f"{row['cost_median']:.0%}", transform=axes.get_yaxis_transform(), va="center", size=9)
        axes.text(1.13, height, f"{row['f1_mean']:.3f}", transform=axes.get_yaxis_transform(), va="center", size=9)
    for place, text in ((1.02, "cost"), (1.13, "F1")):
        axes.text(place, len(rows) - 0.35, text, transform=axes.get_yaxis_transform(), va="bottom", color="0.4", size=8)
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.set_xlim(lowest - 0.15, 1.15)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(
        "gap to the retrained model closed (mean ± standard deviation); cost: time / time of retraining", size=9
    )
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    config = comparison.config
    title = f"{config['model']} on {config['data']}, {config['seeds']} seeds, forgetting\n{config['forget']}"
    figure.suptitle(title, size=10, x=0.01, ha="left")
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise UnweaveError(f"cannot draw {path}: {error}") from error
    return path

"""Figures of a comparison. Needs matplotlib (``pip install unweave[plot]``)."""

from pathlib import Path

from unweave.errors import UnweaveError
from unweave.experiments.compare import OTHER_SEED, Comparison

__all__ = ["plot_comparison"]


def plot_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Draw gap closed against cost, one point a method, with doing nothing, retraining and the seed floor."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UnweaveError("plots need matplotlib; install unweave[plot]") from error

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = [
        row
        for row in comparison.rows
        if row["gap_closed_mean"] is not None and row["cost_median"] and row["method"] not in ("none", OTHER_SEED)
    ]
    for height, text in ((0.0, "none: as if nothing was done"), (1.0, "indistinguishable from retraining")):
        axes.axhline(height, color="0.75", lw=1, zorder=0)
        axes.text(
            0.995,
            height,
            text,
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="bottom",
            color="0.45",
            size=8,
        )
    floor = comparison.row(OTHER_SEED)["gap_closed_mean"]
    worst = min([row["gap_closed_mean"] - (row["gap_closed_std"] or 0) for row in drawn] + [0.0])
    bottom = max(worst, -3.0) - 0.25
    if floor is not None and floor >= bottom:
        axes.axhline(floor, color="#b8860b", lw=1, ls="--", zorder=0)
        axes.text(
            0.005, floor, f"retrained from another seed {floor:+.2f}", transform=axes.get_yaxis_transform(),
            va="bottom", color="#b8860b", size=8,
        )  # fmt: skip
    for row in drawn:
        mean, spread = row["gap_closed_mean"], row["gap_closed_std"] or 0.0
        colour = {"gif": "#1f5fa8", "retrain": "0.25"}.get(row["method"], "#7a7a7a")
        axes.errorbar(row["cost_median"], mean, yerr=spread, fmt="o", ms=7, capsize=3, color=colour)
        axes.annotate(
            row["method"], (row["cost_median"], max(mean, bottom + 0.05)), xytext=(9, 4), textcoords="offset points",
            color=colour, weight="bold",
        )  # fmt: skip
    axes.set_ylim(bottom, 1.25)
    axes.set_xscale("log")
    axes.set_xlabel("cost: time of the method / time of retraining")
    axes.set_ylabel("gap to the retrained model closed")
    config = comparison.config
    axes.set_title(
        f"{config['model']} on {config['data']}, forgetting {config['forget']} "
        f"({config['seeds']} seeds, mean ± standard deviation)",
        size=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path

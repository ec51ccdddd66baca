"""Numbers over versions as a small plot: where its lines and marks go; a template draws them."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Mark", "Plot", "plot"]

WIDE, HIGH = 340, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 12, 34
MOST_TICKS = 6


@dataclass(frozen=True)
class Mark:
    """A value of a version.

    Attributes:
        x: Where.
        y: Where.
        low: Of its interval, where it has one.
        high: Of its interval.
        words: For who cannot see it.
    """

    x: float
    y: float
    low: float | None
    high: float | None
    words: str


@dataclass(frozen=True)
class Plot:
    """All that is drawn.

    Attributes:
        title: What it shows.
        marks: Values.
        path: The line through them.
        rows: Lines across, with their labels.
        columns: Versions, with their labels.
    """

    title: str
    marks: tuple[Mark, ...]
    path: str
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]

    wide, high, left, top = WIDE, HIGH, LEFT, TOP
    right, bottom = WIDE - RIGHT, HIGH - BOTTOM


def plot(title: str, values: Sequence[tuple[int, float, float | None, float | None]]) -> Plot | None:
    """A plot of version, value and interval; ``None`` where there is nothing to draw."""
    if not values:
        return None
    seen = [each for _, value, low, high in values for each in (value, low, high) if each is not None]
    bottom, top = min(seen), max(seen)
    pad = 0.15 * (top - bottom) or 0.05
    bottom, top = bottom - pad, top + pad
    first, last = values[0][0], values[-1][0]

    def across(version: int) -> float:
        share = 0.5 if first == last else (version - first) / (last - first)
        return round(LEFT + 10 + share * (WIDE - LEFT - RIGHT - 20), 1)

    def up(value: float | None) -> float:
        return round(HIGH - BOTTOM - ((value or 0.0) - bottom) / (top - bottom) * (HIGH - TOP - BOTTOM), 1)

    marks = tuple(
        Mark(
            across(version),
            up(value),
            None if low is None else up(low),
            None if high is None else up(high),
            f"version {version}: {value:.3f}" + ("" if low is None else f", from {low:.3f} to {high:.3f}"),
        )
        for version, value, low, high in values
    )
    levels = [bottom + pad + share * (top - bottom - 2 * pad) for share in (0.0, 0.5, 1.0)]
    step = max(1, -(-len(values) // MOST_TICKS))
    return Plot(
        title=title,
        marks=marks,
        path="M" + "L".join(f"{mark.x} {mark.y}" for mark in marks),
        rows=tuple({f"{level:.3f}": (up(level), f"{level:.3f}") for level in levels}.values()),
        columns=tuple((across(version), str(version)) for version, *_ in values[::step]),
    )

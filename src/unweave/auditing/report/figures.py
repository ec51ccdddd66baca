"""The figures of a report as SVG: drawn by hand, styled by the page, as wide as the screen.

Places across are percentages and places down are pixels, so that letters keep their size on a phone and no script is
needed. What a mark means is told by its shape as well as by its colour.
"""

import math
from collections.abc import Sequence

from unweave.auditing.evidence import Evidence
from unweave.auditing.numbers import effect, interval, number, usual_range
from unweave.auditing.report.markup import Markup, tag

__all__ = ["icon", "legend", "reach", "small", "small_axis", "strip"]

MARGIN = 3.0
"""Percent of the width left free at both sides."""

FAR = 30.0
"""Seed floors beyond which the small figures do not go."""

MARKS = {
    "retrained": "retrained without the data",
    "trained": "trained with the data",
    "before": "this model before",
    "after": "this model after",
    "band": "usual for a retrained model",
}

ICONS = {
    "gone": "M6 12.5l4 4 8-9",
    "as retrained": "M6 12.5l4 4 8-9",
    "remembers": "M7.5 7.5l9 9M16.5 7.5l-9 9",
    "differs": "M6.5 9.5h11M6.5 14.5h11M15 6l-6 12",
    "cannot tell": "M9 9.5a3 3 0 1 1 4.3 2.7c-.9.5-1.3 1-1.3 2M12 17.4v.1",
    "no power": "M7 12h10",
}


def icon(what: str) -> Markup:
    """The sign of a verdict or a finding; the words stand beside it."""
    drawn = tag("circle", cx="12", cy="12", r="11"), tag("path", d=ICONS[what])
    return tag("svg", *drawn, viewBox="0 0 24 24", width="24", height="24", class_="icon", aria_hidden="true")


def legend(*kinds: str) -> Markup:
    """What the marks of a figure mean."""
    return tag("ul", *(tag("li", _sign(kind), MARKS[kind]) for kind in kinds), class_="legend")


def _sign(kind: str) -> Markup:
    drawn = {
        "retrained": _dot(50, 8, kind),
        "trained": _square(50, 8, kind),
        "before": _dot(50, 8, kind, 6),
        "after": _diamond(50, 8),
        "band": tag("rect", x="0", y="1", width="100%", height="14", class_=kind),
    }
    return tag("svg", drawn[kind], width="16", height="16", class_="figure", aria_hidden="true")


def strip(entry: Evidence) -> Markup:
    """One test: retrained models, models that saw the data, and the model before and after."""
    retrained, trained = ([reading.value for reading in group] for group in (entry.retrained, entry.trained))
    ends = [v for r in (entry.before, entry.after) for v in (r.value, r.low, r.high) if v is not None]
    low, high = entry.usual
    both = entry.side == "both"
    scale = _Scale([*retrained, *trained, *ends, high, *([low] if both else [])])
    left, right = (scale(low) if both else 0.0), scale(high)
    parts = [
        tag("rect", x=f"{left:.2f}%", y="0", width=f"{right - left:.2f}%", height="142", class_="band"),
        _text(f"{len(retrained)} retrained without the data", 0, 14),
        *(_dot(scale(value), 29 + _jitter(i), "retrained") for i, value in enumerate(retrained)),
        _text(f"{len(trained)} trained with the data", 0, 55),
        *(_square(scale(value), 70 + _jitter(i), "trained") for i, value in enumerate(trained)),
        *_whisker(scale, entry.before.low, entry.before.high, 106),
        *_whisker(scale, entry.after.low, entry.after.high, 118),
        _dot(scale(entry.before.value), 106, "before", 6),
        _diamond(scale(entry.after.value), 118),
        _beside("before", scale(entry.before.value), 97),
        _beside("after", scale(entry.after.value), 139),
        *_axis(scale, 148),
    ]
    words = (
        f"{entry.name}: before {number(entry.before.value, entry.unit)}, after {number(entry.after.value, entry.unit)} "
        f"{entry.unit}. Retrained models lie between {interval(min(retrained), max(retrained), entry.unit)}, models "
        f"trained with the data between {interval(min(trained), max(trained), entry.unit)}; usual for a retrained one "
        f"is {usual_range(entry)}."
    )
    return _figure(words, 170, parts)


def reach(entries: Sequence[Evidence]) -> float:
    """How far the small figures of all tests go, in seed floors."""
    values = [value for entry in entries if entry.floor > 0 for value in _towards(entry) if math.isfinite(value)]
    return min(FAR, max([4.0, *map(abs, values)]) * 1.05)


def small(entry: Evidence, far: float) -> Markup:
    """One test in units of the seed floor, as one line; to the right lies what models that saw the data do."""
    if not entry.floor > 0:
        return tag("span", "retrained models agree to the last digit", class_="small soft")
    before, after, low, high = _towards(entry)
    scale = _Scale([-far, far], pad=0)
    left, right = (scale(max(-far, min(far, value))) for value in (low, high))
    parts = [
        tag("rect", x=f"{left:.2f}%", y="2", width=f"{right - left:.2f}%", height="18", class_="band"),
        _line(0, 100, 11, "rule"),
        tag("line", x1="50%", x2="50%", y1="0", y2="22", class_="zero"),
        _mark(scale, before, far, 11, after=False),
        _mark(scale, after, far, 11, after=True),
    ]
    words = (
        f"{entry.name}, in seed floors from retrained models: before {effect(before)}, after {effect(after)}; usual is "
        f"{usual_range(entry)} {entry.unit}."
    )
    return _figure(words, 22, parts)


def small_axis(far: float) -> Markup:
    """The axis below the small figures."""
    words = f"Axis of the figures above: seed floors from retrained models, up to {far:.0f}."
    return _figure(words, 22, _axis(_Scale([-far, far], pad=0), 1))


def _towards(entry: Evidence) -> tuple[float, float, float, float]:
    """Before, after and the usual range in seed floors, turned so that models that saw the data are to the right."""
    middle, seen = (sum(reading.value for reading in group) / len(group) for group in (entry.retrained, entry.trained))
    sign = -1.0 if entry.asks == "gone" and seen < middle else 1.0
    low, high = entry.usual
    ends = sorted(sign * (value - middle) / entry.floor for value in (low if entry.side == "both" else -math.inf, high))
    before, after = (sign * (reading.value - middle) / entry.floor for reading in (entry.before, entry.after))
    return before, after, ends[0], ends[1]


class _Scale:
    """From a number to a percentage of the width."""

    def __init__(self, values: Sequence[float], pad: float = 0.04) -> None:
        low, high = min(values), max(values)
        wide = (high - low) or max(abs(high), 1e-9)
        self.low, self.high = low - pad * wide, high + pad * wide

    def __call__(self, value: float) -> float:
        return MARGIN + (100 - 2 * MARGIN) * (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """Two to five round numbers, with room for each on a phone."""
        wide = self.high - self.low
        step = 10 ** math.floor(math.log10(wide / 5))
        step *= next(factor for factor in (1, 2, 5, 10) if wide / (step * factor) <= 5)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [step * place for place in range(first, last + 1)]


def _figure(words: str, height: int, parts: Sequence[Markup]) -> Markup:
    drawn = tag("svg", tag("title", words), *parts, role="img", width="100%", height=str(height), class_="figure")
    return tag("div", drawn, class_="plot")


def _axis(scale: _Scale, top: int) -> list[Markup]:
    parts = [_line(0, 100, top, "axis")]
    ticks = scale.ticks
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 2
    for value in ticks:
        x = scale(value)
        told = f"{value:.{digits}f}" if digits < 6 else f"{value:.3g}"
        parts.append(tag("line", x1=f"{x:.2f}%", x2=f"{x:.2f}%", y1=str(top), y2=str(top + 4), class_="axis"))
        label = told.replace("-", "−") if float(told) else told.lstrip("-")
        parts.append(tag("text", label, x=f"{x:.2f}%", y=str(top + 18), class_="tick"))
    return parts


def _text(words: str, x: float, y: float) -> Markup:
    return tag("text", words, x=f"{x:.2f}%", y=f"{y:g}")


def _beside(words: str, x: float, y: float) -> Markup:
    return tag("text", words, x=f"{x:.2f}%", y=f"{y:g}", class_="name")


def _jitter(number: int) -> float:
    """Dots are moved up and down a little, always in the same way, so that they do not hide each other."""
    return 8 * ((number * 0.618034) % 1) - 4


def _dot(x: float, y: float, kind: str, radius: float = 3.5) -> Markup:
    return tag("circle", cx=f"{x:.2f}%", cy=f"{y:.1f}", r=f"{radius:g}", class_=kind)


def _square(x: float, y: float, kind: str) -> Markup:
    return tag(
        "rect", x=f"{x:.2f}%", y=f"{y:.1f}", width="6.5", height="6.5", transform="translate(-3.2 -3.2)", class_=kind
    )


def _diamond(x: float, y: float) -> Markup:
    drawn = tag("path", d="M0-6L5 0L0 6L-5 0Z", class_="after")
    return tag("svg", drawn, x=f"{x:.2f}%", y=f"{y:g}", overflow="visible")


def _mark(scale: _Scale, value: float, far: float, y: float, *, after: bool) -> Markup:
    """The model in a small figure; an arrow where it is farther away than is shown."""
    if abs(value) <= far:
        return _diamond(scale(value), y) if after else _dot(scale(value), y, "before", 7)
    tip = 1 if value > 0 else -1
    shift = 0 if after else -11 * tip
    drawn = tag(
        "path",
        d=f"M{-7 * tip}-6L{2 * tip} 0L{-7 * tip} 6Z",
        transform=f"translate({shift} 0)",
        class_="after" if after else "before",
    )
    return tag("svg", drawn, x=f"{scale(tip * far):.2f}%", y=f"{y:g}", overflow="visible")


def _whisker(scale: _Scale, low: float | None, high: float | None, y: float) -> list[Markup]:
    return [] if low is None or high is None else [_line(scale(low), scale(high), y, "whisker")]


def _line(left: float, right: float, y: float, kind: str) -> Markup:
    return tag("line", x1=f"{left:.2f}%", x2=f"{right:.2f}%", y1=f"{y:g}", y2=f"{y:g}", class_=kind)

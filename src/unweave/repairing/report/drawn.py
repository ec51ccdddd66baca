"""Figures of a repair as SVG: the neighbourhood of a suspect, and precision against what is known to be wrong."""

import math
from collections.abc import Sequence

from torch_geometric.data import Data

from unweave.auditing.report.markup import Markup, tag
from unweave.repairing.suspects import Suspect

__all__ = ["neighbourhood", "precision_curve"]

MOST = 8
"""Neighbours drawn of a node."""

WIDTH, HEIGHT = 240, 150


def neighbourhood(data: Data, suspect: Suspect) -> Markup:
    """A suspect with its neighbours; a number in a node is its label, where it may be read."""
    centres = list(suspect.item)
    middles = [(WIDTH / 2, HEIGHT / 2)] if len(centres) == 1 else [(75.0, HEIGHT / 2), (165.0, HEIGHT / 2)]
    places: dict[int, tuple[float, float]] = dict(zip(centres, middles, strict=True))
    lines, left_out = [], 0
    for centre, (x, y) in zip(centres, middles, strict=True):
        around = [node for node in _neighbours(data, centre) if node not in centres]
        left_out += max(0, len(around) - MOST)
        start, turn = (0.0, 2 * math.pi) if len(centres) == 1 else (math.pi / 2 if x < 100 else -math.pi / 2, math.pi)
        for place, node in enumerate(around[:MOST]):
            angle = start + turn * (place + 0.5) / min(len(around), MOST)
            places.setdefault(node, (x + 58 * math.cos(angle), y + 58 * math.sin(angle)))
            lines.append((centre, node))
    drawn = [_line(places[u], places[v], "tie") for u, v in lines]
    if len(centres) == 2:
        drawn.append(_line(middles[0], middles[1], "tie suspect"))
    for node, (x, y) in places.items():
        kind = "knot suspect" if node in centres and suspect.kind != "edges" else "knot"
        drawn.append(tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="11", class_=kind))
        drawn.append(tag("text", _label(data, node), x=f"{x:.1f}", y=f"{y + 4:.1f}", class_="tick"))
    words = f"{suspect.name} and {len(places) - len(centres)} neighbours" + (
        f", {left_out} more not drawn" * bool(left_out)
    )
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "width": str(WIDTH), "height": str(HEIGHT)}
    return tag("svg", tag("title", words), *drawn, role="img", class_="figure around", **size)


def _neighbours(data: Data, node: int) -> list[int]:
    row, column = data.edge_index
    found = set(column[row == node].tolist()) | set(row[column == node].tolist())
    return sorted(found - {node})


def _label(data: Data, node: int) -> str:
    """The label of a training or validation node; others are not looked at."""
    val = data.get("val_mask")
    known = bool(data.train_mask[node]) or (val is not None and bool(val[node]))
    return str(int(data.y[node])) if known and int(data.y[node]) >= 0 else "·"


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> Markup:
    (a, b), (c, d) = start, end
    return tag("line", x1=f"{a:.1f}", y1=f"{b:.1f}", x2=f"{c:.1f}", y2=f"{d:.1f}", class_=kind)


def precision_curve(hits: Sequence[bool], wrong: Sequence[float]) -> Markup:
    """Precision among the first k suspects, known and expected."""
    known, expected, found, hoped = [], [], 0, 0.0
    for k, (hit, chance) in enumerate(zip(hits, wrong, strict=True), start=1):
        found, hoped = found + hit, hoped + chance
        known.append(found / k)
        expected.append(hoped / k)
    wide, high = 480, 160

    def path(values: list[float], kind: str) -> Markup:
        step = max(1, len(values) // 200)
        points = [(k, value) for k, value in enumerate(values) if k % step == 0 or k == len(values) - 1]
        drawn = " ".join(f"{40 + wide * k / max(1, len(values) - 1):.1f},{10 + high * (1 - v):.1f}" for k, v in points)
        return tag("polyline", points=drawn, class_=kind)

    axes = [
        _line((40, 10 + high), (40 + wide, 10 + high), "axis"),
        *(tag("text", f"{v:g}", x="20", y=f"{14 + high * (1 - v):.0f}", class_="tick") for v in (0.0, 0.5, 1.0)),
        tag("text", "1", x="40", y=f"{high + 26}", class_="tick"),
        tag("text", f"{len(known)} suspects", x=f"{wide}", y=f"{high + 26}", class_="tick"),
    ]
    words = f"Precision among {len(known)} suspects: {known[-1]:.2f} known, {expected[-1]:.2f} expected."
    drawn = [tag("title", words), *axes, path(expected, "curve expected"), path(known, "curve")]
    size = {"viewBox": f"0 0 {wide + 60} {high + 34}", "width": "100%"}
    return tag("div", tag("svg", *drawn, role="img", class_="figure", **size), class_="plot")

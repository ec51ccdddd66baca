"""The page of ``ladder.py``: streams with the figure of their drift, and intervals."""

from pathlib import Path
from typing import Any

from shared import WAYS, Document, lines

from pages.parts import Blocks, Page, columns, number, places
from unweave.experiments.style import grid, save

COLOURS = ("#1f5fa8", "#c65d21", "#5c8a2f", "#7a4f9a")


def key_of(document: Document) -> tuple[Any, ...]:
    """What a measurement is of."""
    return tuple(document[key] for key in ("part", "forgettable", "model", "data", "seed"))


def read(out: Path) -> list[Document]:
    """What was measured, in a fixed order."""
    return sorted(lines(*out.glob("*.jsonl")), key=key_of)


def name_of(document: Document) -> str:
    """Way of training, model and graph."""
    return f"{WAYS[document['forgettable']]} {document['model']} {document['data']}"


def part_of(found: list[Document], part: str) -> list[Document]:
    """The measurements of one part."""
    return [document for document in found if document["part"] == part]


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Made by `python benchmarks/ladder.py` from the files beside it, a line for each measurement, with its "
        "settings, environment and commit. One split and one training seed each."
    )
    if streams := part_of(found, "stream"):
        yield "## Streams of single requests"
        yield (
            f"Nodes, edges, features and labels, one at a time; `auto` with at least {streams[0]['at_least']:g} "
            "wanted, and `gif` alone. *Retrainings spent* is the sum of the passes of all requests over those of one "
            "retraining."
        )
        yield "![Gap closed and passes over a stream](drift.png)"
        yield columns(
            [(document, look) for document in streams for look in document["looks"]],
            {
                "": lambda r: name_of(r[0]),
                "requests": lambda r: r[1]["requests"],
                "closed with the ladder": lambda r: number(r[1]["ladder"], ".3f"),
                "believed": lambda r: number(r[1]["believed"], ".3f"),
                "by gif alone": lambda r: number(r[1]["gif"], ".3f"),
                "retrainings spent": lambda r: number(r[1]["passes"][0] / r[0]["retrain_passes"], ".2f"),
                "by gif": lambda r: number(r[1]["passes"][1] / r[0]["retrain_passes"], ".2f"),
                "rungs": lambda r: ", ".join(f"{rung} × {count}" for rung, count in r[1]["used"].items()),
            },
        )
    if covered := part_of(found, "coverage"):
        means = ", ".join(f"{name_of(document)} {document['mean']:.0%}" for document in covered)
        yield "## Do the 90 % intervals hold?"
        yield (
            f"For {covered[0]['fresh']} deletions apart from the {covered[0]['deletions']} of the calibration. Over "
            f"all rungs: {means}."
        )
        yield columns(
            [(document, rung, figures) for document in covered for rung, figures in document["rungs"].items()],
            {
                "": lambda r: name_of(r[0]),
                "rung": lambda r: r[1],
                "held": lambda r: number(r[2]["held"], ".0%"),
                "median error": lambda r: number(r[2]["error"], ".2f"),
                "of retraining": lambda r: number(r[2]["cost"], ".1%"),
            },
        )
    commands = ", ".join(f"`{document['command']}`" for document in found)
    yield f"{commands} on {places(found, '{device_name}, torch {torch}, commit `{commit:.12}`')}."


def draw(found: list[Document], out: Path) -> Path:
    """Gap closed and passes of every stream, with the ladder and by ``gif`` alone."""
    figure, ((closed, passes),) = grid(1, 2)
    for place, document in enumerate(part_of(found, "stream")):
        colour, looks = COLOURS[place % len(COLOURS)], document["looks"]
        line = "-" if document["forgettable"] else "--"
        x = [look["requests"] for look in looks]
        closed.plot(x, [look["ladder"] for look in looks], line, color=colour, lw=1.6, label=name_of(document))
        closed.plot(x, [look["gif"] for look in looks], ":", color=colour, lw=1.2)
        for which, (style, width) in enumerate(((line, 1.6), (":", 1.2))):
            spent = [look["passes"][which] / document["retrain_passes"] for look in looks]
            passes.semilogy(x, spent, style, color=colour, lw=width)
    closed.set_title("gap closed (dotted: gif alone)", size=9, loc="left")
    passes.set_title("passes, as a share of one retraining", size=9, loc="left")
    for axes in (closed, passes):
        axes.set_xlabel("requests", size=8)
    closed.legend(fontsize=7, frameon=False)
    return save(figure, out / "drift.png")


PAGE = Page("The ladder", read, blocks, draw)

"""A repair as one page: what is suspect and why, what was done, and what it did."""

import json
from pathlib import Path

from unweave._core.writing import write_whole
from unweave.auditing.report.figures import icon
from unweave.auditing.report.markup import Markup, tag
from unweave.auditing.report.pieces import fact_list, scrolled, section
from unweave.auditing.report.sheet import sheet
from unweave.repairing.report.drawn import neighbourhood, precision_curve
from unweave.repairing.result import Repair
from unweave.repairing.suspects import Suspect
from unweave.request import Request

__all__ = ["render_report", "write_report"]

LISTED = 50
"""Suspects of a kind in its table."""

DRAWN = 6
"""Of those, how many are drawn."""

STYLE = """
.around { display: inline-block; margin: 0 .8rem .4rem 0; max-width: 100%; }
.figure .tie { stroke: var(--soft); stroke-width: 1.2; }
.figure .tie.suspect { stroke: var(--bad); stroke-width: 2.4; stroke-dasharray: 5 3; }
.figure .knot { fill: var(--card); stroke: var(--soft); stroke-width: 1.4; }
.figure .knot.suspect { stroke: var(--bad); stroke-width: 2.6; stroke-dasharray: 4 2; }
.figure .curve { fill: none; stroke: var(--retrained); stroke-width: 2; }
.figure .curve.expected { stroke: var(--trained); stroke-dasharray: 5 3; }
.suspects td.why { text-align: left; }
"""

WORDS = {"labels": "Labels", "edges": "Edges", "features": "Features", "triggers": "Backdoors"}
WRONG = {"edges": "the edge is one by chance", "features": "the features are those of another node"}


def write_report(repair: Repair, path: str | Path, *, truth: Request | None = None) -> Path:
    """Write a repair as one HTML file, whole or not at all.

    Args:
        repair: What was found and done.
        path: The file; one that exists is replaced.
        truth: What is known to be wrong, where an experiment knows it: the page then shows precision.
    """
    return write_whole(path, render_report(repair, truth=truth))


def render_report(repair: Repair, *, truth: Request | None = None) -> str:
    """The page as text; the arguments are those of :func:`write_report`."""
    kinds = [part for kind in repair.config["kinds"] for part in _suspects(repair, kind, truth)]
    name = type(repair.model).__name__
    return sheet(
        f"{_headline(repair)} – repair of {name}",
        _verdict(repair, name),
        _rounds(repair),
        _classes(repair),
        *kinds,
        _limits(),
        _made(repair),
        style=STYLE,
    )


def _headline(repair: Repair) -> str:
    done = len(repair.done)
    return f"Better without {done:,} suspect{'s' * (done != 1)}" if done else "Nothing was kept"


def _verdict(repair: Repair, name: str) -> Markup:
    before, after = repair.held_out
    lead = (
        f"On {len(repair.deciding)} validation nodes the loss went from {before.loss:.4f} "
        f"to {after.loss:.4f} and F1 from {before.f1:.3f} to {after.f1:.3f}."
        if repair.done
        else "No step made the model better on validation nodes that had not chosen it, so it is as it was."
        if any(step.after is not None for step in repair.steps)
        else "Nothing was suspect enough to be tried, so it is as it was."
    )
    expected = repair.expected_false
    facts = [
        ("Forgotten", f"{sum(s.action == 'forgotten' for s in repair.done):,}"),
        ("Labels corrected", f"{sum(s.action == 'relabelled' for s in repair.done):,}"),
        ("Expected to have been right", "–" if expected is None else f"{expected:.0%} of them"),
    ]
    return tag(
        "section",
        tag("p", f"Repair of {name}, {repair.before.data.num_nodes:,} nodes", class_="eyebrow"),
        tag("h1", icon("gone" if repair.done else "no power"), tag("span", _headline(repair))),
        tag("p", lead, class_="lead"),
        fact_list(facts),
        class_=f"verdict {'gone' if repair.done else 'no-power'}",
    )


def _table(heads: tuple[str, ...], rows: list[Markup], name: str, kind: str = "") -> Markup:
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    return scrolled(tag("table", tag("caption", name), head, tag("tbody", *rows), class_=kind), name)


def _rounds(repair: Repair) -> Markup:
    rows = []
    for step in repair.steps:
        share = "–" if step.expected_false is None else f"{step.expected_false:.0%}"
        cells = (
            str(step.suspects),
            share,
            str(step.forgotten),
            str(step.relabelled),
            "kept" if step.kept else "not kept",
        )
        first = tag("th", f"{step.round}: {step.kind}", scope="row")
        rows.append(tag("tr", first, *(tag("td", text) for text in cells), tag("td", step.why, class_="why")))
    heads = ("Round", "Proposed", "Expected right", "Forgotten", "Corrected", "", "Why")
    return section("Rounds", "rounds", _table(heads, rows, "What was tried, and what was kept.", "suspects"))


def _classes(repair: Repair) -> Markup:
    rows = [
        tag("tr", tag("th", str(label), scope="row"), *(tag("td", text) for text in (str(n), f"{a:.2f}", f"{b:.2f}")))
        for label, (n, a, b) in repair.by_class().items()
    ]
    caption = "Share of each class that is found, of the validation nodes."
    return section(
        "Before and after, by class", "classes", _table(("Class", "Nodes", "Before", "After"), rows, caption)
    )


def _suspects(repair: Repair, kind: str, truth: Request | None) -> list[Markup]:
    found = repair.of(kind)
    head = f"{WORDS[kind]}: {len(found):,} suspect"
    if not found:
        return [section(head, kind, tag("p", "None is likely enough to be wrong."))]
    drawn = [neighbourhood(repair.before.data, suspect) for suspect in found[:DRAWN]]
    rows = [_row(suspect) for suspect in found[:LISTED]]
    what = WRONG.get(kind, "the label is wrong")
    told = f"The {len(rows)} most suspect. A probability is how likely it is that {what}."
    parts = [
        tag(
            "p",
            "The most suspect with their neighbours: numbers are labels, a point is a node without one.",
            class_="small",
        ),
        tag("div", *drawn),
        _table(("Suspect", "Probability", "Done", "Why"), rows, told, "suspects"),
    ]
    if truth is not None:
        parts += _known(found, truth)
    return [section(head, kind, *parts)]


def _row(suspect: Suspect) -> Markup:
    done = suspect.action + (f" as {suspect.better}" if suspect.action == "relabelled" else "")
    first = tag("th", suspect.name, scope="row")
    return tag("tr", first, tag("td", f"{suspect.wrong:.0%}"), tag("td", done), tag("td", suspect.why, class_="why"))


def _known(found: tuple[Suspect, ...], truth: Request) -> list[Markup]:
    wrong = {(node,) for node in (*truth.labels, *truth.nodes)} | {tuple(sorted(edge)) for edge in truth.edges}
    ranked = sorted(found, key=lambda suspect: -suspect.wrong)
    hits = [tuple(sorted(suspect.item)) in wrong for suspect in ranked]
    words = f"{sum(hits):,} of these {len(hits):,} are known to be wrong. Drawn: known; dashed: as expected here."
    return [tag("h3", "Precision"), tag("p", words), precision_curve(hits, [suspect.wrong for suspect in ranked])]


def _limits() -> Markup:
    lines = (
        "Validation labels are taken to be right. Where they are as wrong as the others, too little is found.",
        "An expected share of right ones rests on probabilities that are fitted to validation nodes and to what chance "
        "looks like in this graph; it is no bound, least of all for a single item.",
        "The loss on this page is the squared error of the probabilities of the classes, 0 at best and 2 at worst; "
        "it is not the loss that the model was trained with.",
        "An edge is called wrong where it looks like one by chance. Graphs have such edges of their own: one that is "
        "suspect need not be an attack.",
        "What was forgotten or corrected has receipts in the new run. The run before is as it was.",
    )
    return section("What this cannot say", "limits", tag("ul", *(tag("li", line) for line in lines)))


def _made(repair: Repair) -> Markup:
    text = json.dumps(repair.to_dict(), allow_nan=False)
    details = tag("details", tag("summary", "Every figure of this page as JSON"), tag("pre", text))
    facts = [(key.replace("_", " ").capitalize(), _plain(value)) for key, value in repair.config.items()]
    return section("How it was made", "made", fact_list(facts), details)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

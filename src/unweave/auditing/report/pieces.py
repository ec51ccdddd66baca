"""Small pieces that the parts of a report are put together from."""

import re
from collections.abc import Sequence

from unweave.auditing.audit import Audit
from unweave.auditing.evidence import Evidence
from unweave.auditing.report.figures import icon
from unweave.auditing.report.markup import Markup, join, tag
from unweave.auditing.words import FINDINGS

__all__ = [
    "Pairs",
    "anchor",
    "aside",
    "badge",
    "fact_list",
    "listed",
    "model_of",
    "scrolled",
    "section",
    "shown",
    "slug",
]

Pairs = Sequence[tuple[str, str]]


def fact_list(pairs: Pairs, **special: Pairs) -> Markup:
    """Names and what they are; those that are given by a keyword have it as their class."""
    cells = [tag("div", tag("dt", name), tag("dd", text)) for name, text in pairs]
    for kind, others in special.items():
        cells += [tag("div", tag("dt", name), tag("dd", text), class_=kind) for name, text in others]
    return tag("dl", *cells, class_="facts")


def listed(pairs: Pairs) -> Markup:
    """Lines with a title each."""
    return tag("dl", *(join([tag("dt", name), tag("dd", text)]) for name, text in pairs), class_="lines")


def section(head: str, place: str, *parts: Markup) -> Markup:
    """A part of the page that can be linked to."""
    return tag("section", tag("h2", head), *parts, id=place)


def scrolled(table: Markup, name: str) -> Markup:
    """A table that scrolls by itself where it is too wide, not the page."""
    return tag("div", table, class_="scroll", role="region", aria_label=name, tabindex="0")


def aside(text: str) -> Markup:
    """A smaller line below a value."""
    return tag("span", text, class_="aside")


def badge(entry: Evidence) -> Markup:
    """What a test found: a sign, words and a colour."""
    return tag("span", icon(entry.finding), FINDINGS[entry.finding], class_=f"badge {slug(entry.finding)}")


def shown(entry: Evidence) -> str:
    """The name of a test as a heading."""
    return entry.name[:1].upper() + entry.name[1:]


def model_of(audit: Audit) -> str:
    """The model and its data."""
    data = audit.config.get("data")
    return f"{audit.config['model']} on {data if data else 'a graph of your own'}"


def slug(text: str) -> str:
    """Text as the name of a class or a place."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def anchor(entry: Evidence) -> str:
    """The place of a test on the page."""
    return f"test-{slug(entry.name)}"

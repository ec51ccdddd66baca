"""The tests on the page: a table of all, and a panel for each."""

from unweave.auditing.audit import Audit
from unweave.auditing.evidence import Evidence, Reading
from unweave.auditing.numbers import GAP, effect, interval, noticed, number, percent, spread, usual_range
from unweave.auditing.report.figures import legend, reach, small, small_axis, strip
from unweave.auditing.report.markup import Markup, join, tag
from unweave.auditing.report.pieces import anchor, aside, badge, fact_list, scrolled, section, shown, slug
from unweave.auditing.report.words import GROUPS, READING, explain_power
from unweave.auditing.words import answer, sentence

__all__ = ["figures", "glance", "groups"]


HEADS = ("Test", "What it asks, and the answer", "Finding")


def glance(audit: Audit) -> Markup:
    """Every test in a sentence."""
    rows = [
        tag(
            "tr",
            tag("th", tag("a", shown(entry), href=f"#{anchor(entry)}"), scope="row", role="rowheader"),
            tag("td", tag("span", entry.question, class_="soft"), " ", answer(entry), class_="told", role="cell"),
            tag("td", badge(entry), class_="found", role="cell"),
            role="row",
        )
        for entry in audit.evidence
    ]
    heads = tag("tr", *(tag("th", head, scope="col", role="columnheader") for head in HEADS), role="row")
    table = tag("table", tag("thead", heads), tag("tbody", *rows, role="rowgroup"), class_="answers", role="table")
    return section("What each test found", "glance", scrolled(table, "What each test found"))


def figures(audit: Audit) -> Markup:
    """The figures behind the answers: all tests in one table, with a small figure each."""
    heads = ("Test", "In seed floors", "Before → after", "Usual if retrained", "Effect", "Noticed", "Least share")
    far, rows = reach(audit.evidence), []
    for entry in audit.evidence:
        cells = (
            (heads[2], f"{number(entry.before.value, entry.unit)} → {number(entry.after.value, entry.unit)}"),
            (heads[3], usual_range(entry)),
            (heads[4], f"{effect(entry.effect_before)} → {effect(entry.effect)}"),
            (heads[5], noticed(entry)),
            (heads[6], "–" if entry.noticeable is None else percent(entry.noticeable)),
        )
        name = tag("a", shown(entry), href=f"#{anchor(entry)}"), " ", tag("span", entry.unit, class_="unit")
        rows.append(
            tag(
                "tr",
                tag("th", *name, scope="row", role="rowheader"),
                tag("td", small(entry, far), class_="drawn", role="cell"),
                *(tag("td", text.replace(" → ", f"{GAP}→ "), data_label=head, role="cell") for head, text in cells),
                role="row",
            )
        )
    drawn = tag("td", small_axis(far), class_="drawn", role="cell")
    axis = tag("tr", tag("td", role="cell"), drawn, tag("td", colspan="5", role="cell"), role="row")
    table = tag(
        "table",
        tag(
            "caption",
            "Noticed: how many of the models that saw the data the test tells from retrained ones. Least share: how "
            "much of the data a model must remember for the test to notice.",
        ),
        tag("thead", tag("tr", *(tag("th", head, scope="col", role="columnheader") for head in heads), role="row")),
        tag("tbody", *rows, role="rowgroup"),
        tag("tfoot", axis, role="rowgroup"),
        class_="summary",
        role="table",
    )
    intro = (
        "The figures and the effect are in seed floors: 0 is the mean of retrained models, shaded is what is usual for "
        "one of them. In the figures of tests that ask whether the data is gone, models that saw it lie to the right."
    )
    explained = tag("details", tag("summary", "How to read the figures"), *(tag("p", text) for text in READING))
    return section(
        "The figures behind it",
        "figures",
        tag("p", intro),
        legend("after", "before", "band"),
        scrolled(table, "The figures of all tests"),
        explained,
    )


def groups(audit: Audit) -> list[Markup]:
    """Every test with its figure, group by group."""
    found, members = [], dict[str, list[Evidence]]()
    for entry in audit.evidence:
        members.setdefault(entry.group, []).append(entry)
    for group, entries in members.items():
        name, words = GROUPS.get(group, (group[:1].upper() + group[1:], ""))
        start = [tag("p", words, class_="soft")] if words else []
        found.append(section(name, slug(group), *start, *(_test(entry) for entry in entries)))
    return found


def _test(entry: Evidence) -> Markup:
    retrained, trained = ([reading.value for reading in group] for group in (entry.retrained, entry.trained))
    facts = [
        ("After", _value(entry.after, entry.unit)),
        ("Before: nothing done", _value(entry.before, entry.unit)),
        ("Retrained", join([spread(retrained, entry.unit), aside(f"mean ± sd of {len(retrained)}")])),
        ("Usual if retrained", usual_range(entry)),
        ("With the data", join([spread(trained, entry.unit), aside(f"mean ± sd of {len(trained)}")])),
        ("Effect, in seed floors", join([effect(entry.effect), aside(f"before {effect(entry.effect_before)}")])),
    ]
    more = []
    for name in entry.after.more:
        after, before = (number(reading.more[name], "AUC") for reading in (entry.after, entry.before))
        usual = spread([reading.more[name] for reading in entry.retrained], "AUC")
        more.append((name, join([after, aside(f"before {before}, retrained {usual}")])))
    wide = [("Who could do this", sentence(entry.threat)), ("Could it have noticed?", explain_power(entry))]
    return tag(
        "article",
        tag("header", tag("h3", shown(entry)), badge(entry)),
        tag("p", entry.question, class_="question"),
        tag("p", answer(entry), class_="finding"),
        strip(entry),
        tag("p", _caption(entry), class_="small soft caption"),
        fact_list(facts, more=more, wide=wide),
        class_="test",
        id=anchor(entry),
    )


def _caption(entry: Evidence) -> str:
    lines = " Lines are 95 % intervals over the items." if entry.after.low is not None else ""
    return f"{entry.unit}. Shaded is what is usual for a retrained model.{lines}"


def _value(reading: Reading, unit: str) -> Markup:
    told = [number(reading.value, unit), " ", tag("span", unit, class_="unit")]
    if reading.low is None:
        return join(told)
    return join([*told, aside(f"95 % interval {interval(reading.low, reading.high, unit)}")])

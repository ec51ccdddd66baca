"""A page as one file: it opens offline, on a phone and on paper, and loads nothing from anywhere."""

from datetime import UTC, datetime
from importlib.resources import files

from unweave._core.version import __version__
from unweave.auditing.report.markup import Markup, tag

__all__ = ["sheet"]

NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser is told that the page may load."""


def sheet(title: str, *sections: Markup, style: str = "") -> str:
    """The whole page as text.

    Args:
        title: What a browser calls it.
        *sections: What is on it.
        style: CSS of its own, beside that of all reports.
    """
    shared = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=NOTHING_ELSE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(shared + style)),
    )
    body = tag("body", tag("div", tag("main", *sections), _foot(), class_="page"))
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _foot() -> Markup:
    now = datetime.now(UTC)
    return tag(
        "footer",
        f"Written by unweave {__version__} on ",
        tag("time", f"{now:%Y-%m-%d at %H:%M} UTC", datetime=f"{now:%Y-%m-%dT%H:%MZ}"),
        ". This page is one file: it loads nothing and runs nothing.",
    )

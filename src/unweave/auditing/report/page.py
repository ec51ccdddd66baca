"""An audit as one page: a file that opens offline, on a phone and on paper, and loads nothing from anywhere."""

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from unweave._core.version import __version__
from unweave._core.writing import write_whole
from unweave.auditing.audit import Audit
from unweave.auditing.report.markup import Markup, tag
from unweave.auditing.report.panels import figures, glance, groups
from unweave.auditing.report.sections import classes, limits, made, paper, request, title, verdict

__all__ = ["render_report", "write_report"]

NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser is told that the page may load."""


def write_report(
    audit: Audit, path: str | Path, *, models: str | Path | None = None, command: str | None = None
) -> Path:
    """Write an audit as one HTML file, whole or not at all.

    Args:
        audit: What was found.
        path: The file; one that exists is replaced.
        models: The folder that keeps the models that were trained to compare with, so that the page can name it.
        command: What gives the same figures again, so that the page can say so.

    Returns:
        The file.
    """
    text = render_report(audit, models=None if models is None else str(models), command=command)
    return write_whole(path, text)


def render_report(audit: Audit, *, models: str | None = None, command: str | None = None) -> str:
    """The page as text; the arguments are those of :func:`write_report`."""
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=NOTHING_ELSE),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title(audit)),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )
    tests = [glance(audit), figures(audit), *groups(audit), *classes(audit)]
    end = [limits(audit, models), made(audit, command), *paper(audit)]
    main = tag("main", verdict(audit), request(audit), *tests, *end)
    body = tag("body", tag("div", main, _foot(), class_="page"))
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _foot() -> Markup:
    now = datetime.now(UTC)
    return tag(
        "footer",
        f"Written by unweave {__version__} on ",
        tag("time", f"{now:%Y-%m-%d at %H:%M} UTC", datetime=f"{now:%Y-%m-%dT%H:%MZ}"),
        ". This page is one file: it loads nothing and runs nothing.",
    )

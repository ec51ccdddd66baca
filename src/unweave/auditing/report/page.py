"""An audit as one page: a file that opens offline, on a phone and on paper, and loads nothing from anywhere."""

from pathlib import Path

from unweave._core import ranks
from unweave._core.writing import write_whole
from unweave.auditing.audit import Audit
from unweave.auditing.report.panels import figures, glance, groups
from unweave.auditing.report.sections import classes, limits, made, paper, request, title, verdict
from unweave.auditing.report.sheet import sheet

__all__ = ["render_report", "write_report"]


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
    return Path(ranks.first(lambda: str(write_whole(path, text))))


def render_report(audit: Audit, *, models: str | None = None, command: str | None = None) -> str:
    """The page as text; the arguments are those of :func:`write_report`."""
    tests = [glance(audit), figures(audit), *groups(audit), *classes(audit)]
    end = [limits(audit, models), made(audit, command), *paper(audit)]
    return sheet(title(audit), verdict(audit), request(audit), *tests, *end)

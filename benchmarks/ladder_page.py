"""The page of the ladder: streams, intervals and budgets, with the figure of the drift, all from the result files."""

from pathlib import Path
from typing import Any

from unweave.experiments.experiment import number, table

from unweave.experiments.style import grid, save

Documents = list[dict[str, Any]]

COLOURS = ("#1f5fa8", "#c65d21", "#5c8a2f", "#7a4f9a")


def name_of(document: dict[str, Any]) -> str:
    """Way of training, model and graph."""
    way = "forgettable" if document["forgettable"] else "ordinary"
    return f"{way} {document['model']} {document['data']}"


def draw(documents: Documents, path: Path) -> Path:
    """Gap closed and passes of every stream, with the ladder and by ``gif`` alone."""
    figure, ((closed, passes),) = grid(1, 2)
    streams = [document for document in documents if document["part"] == "stream"]
    for number_of, document in enumerate(streams):
        colour, looks = COLOURS[number_of % len(COLOURS)], document["looks"]
        line = "-" if document["forgettable"] else "--"
        x = [look["requests"] for look in looks]
        closed.plot(x, [look["ladder"] for look in looks], line, color=colour, lw=1.6, label=name_of(document))
        closed.plot(x, [look["gif"] for look in looks], ":", color=colour, lw=1.2)
        retrain = document["retrain_passes"]
        passes.semilogy(x, [look["passes"][0] / retrain for look in looks], line, color=colour, lw=1.6)
        passes.semilogy(x, [look["passes"][1] / retrain for look in looks], ":", color=colour, lw=1.2)
    closed.set_title("gap closed (dotted: gif alone)", size=9, loc="left")
    passes.set_title("passes, as a share of one retraining", size=9, loc="left")
    for axes in (closed, passes):
        axes.set_xlabel("requests", size=8)
    closed.legend(fontsize=7, frameon=False)
    return save(figure, path)


def page(documents: Documents) -> str:
    """The whole page."""
    lines = [
        "# The ladder",
        "",
        "Made by `python benchmarks/ladder.py` from the files beside it, a line for each measurement, with its "
        "settings, environment and commit. One split and one training seed each.",
    ]
    streams = [document for document in documents if document["part"] == "stream"]
    if streams:
        rows = []
        for document in streams:
            for look in document["looks"]:
                ladder, gif = (spent / document["retrain_passes"] for spent in look["passes"])
                used = ", ".join(f"{rung} × {count}" for rung, count in look["used"].items())
                figures = [number(look[key], ".3f") for key in ("ladder", "believed", "gif")]
                costs = [number(ladder, ".2f"), number(gif, ".2f")]
                rows.append([name_of(document), str(look["requests"]), *figures, *costs, used])
        head = [
            "",
            "requests",
            "closed with the ladder",
            "believed",
            "by gif alone",
            "retrainings spent",
            "by gif",
            "rungs",
        ]
        lines += [
            "",
            "## Streams of single requests",
            "",
            f"Nodes, edges, features and labels, one at a time; `auto` with at least {streams[0]['at_least']:g} "
            "wanted, and `gif` alone. *Retrainings spent* is the sum of the passes of all requests over those of one "
            "retraining.",
            "",
            "![Gap closed and passes over a stream](drift.png)",
            "",
            *table(head, rows),
        ]
    covered = [document for document in documents if document["part"] == "coverage"]
    if covered:
        rows = [
            [
                name_of(document),
                rung,
                number(figures["held"], ".0%"),
                number(figures["error"], ".2f"),
                number(figures["cost"], ".1%"),
            ]
            for document in covered
            for rung, figures in document["rungs"].items()
        ]
        means = ", ".join(f"{name_of(document)} {document['mean']:.0%}" for document in covered)
        lines += [
            "",
            "## Do the 90 % intervals hold?",
            "",
            f"For {covered[0]['fresh']} deletions apart from the {covered[0]['deletions']} of the calibration. Over "
            f"all rungs: {means}.",
            "",
            *table(["", "rung", "held", "median error", "of retraining"], rows),
        ]
    bought = [document for document in documents if document["part"] == "budgets"]
    if bought:
        rows = [
            [
                name_of(document),
                cell["forget"],
                f"{float(budget):.0%}",
                found.get("rung", "refused"),
                number(found.get("closed"), "+.2f"),
                number(found.get("best_fixed_within"), "+.2f"),
                number(found.get("cost"), ".1%"),
            ]
            for document in bought
            for cell in document["cells"]
            for budget, found in cell["auto"].items()
        ]
        head = ["", "request", "budget", "rung", "closed", "best fixed rung within", "of retraining"]
        lines += ["", "## Budgets", "", *table(head, rows)]
    where = [(document["environment"], document["commit"][:12]) for document in documents]
    places = {f"{place['device_name']}, torch {place['torch']}, commit `{at}`" for place, at in where}
    commands = ", ".join(f"`{document['command']}`" for document in documents)
    return "\n".join([*lines, "", f"{commands} on {'; '.join(sorted(places))}.", ""])

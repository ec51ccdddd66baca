"""The page of the soak: a table, a figure and what went wrong, all from the result files."""

from pathlib import Path
from statistics import fmean
from typing import Any

from unweave.experiments.experiment import number, table

from unweave.experiments.style import grid, save

Results = dict[str, dict[str, Any]]

LOOKS = {
    "forgettable": ("#1f5fa8", "-"),
    "ordinary": ("#c65d21", "--"),
}
OTHERS = ("#5c8a2f", ":")
UNTOUCHED = "0.45"


def drawn_checks(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The checks that have a retrained model to compare with."""
    return [check for check in document["checks"] if check.get("gap") is not None]


def draw(results: Results, path: Path) -> Path:
    """Gap to a retrained model, gap closed, passes and memory against the number of requests."""
    figure, ((gap, closed), (passes, memory)) = grid(2, 2)
    for name, document in results.items():
        colour, line = LOOKS.get(name, OTHERS)
        checks, every = drawn_checks(document), document["config"]["every"]
        x = [check["requests"] for check in checks]
        gap.semilogy(x, [check["gap"] for check in checks], line, color=colour, lw=1.6, label=name)
        gap.semilogy(x, [check["gap_none"] for check in checks], line, color=UNTOUCHED, lw=1.0)
        closed.plot(x, [check["gap_closed"] for check in checks], line, color=colour, lw=1.6)
        spent = document["requests"]["passes"]
        means = [fmean(spent[i : i + every]) for i in range(0, len(spent), every)]
        passes.plot([every * (i + 1) for i in range(len(means))], means, line, color=colour, lw=1.6)
        memory.plot(
            [check["requests"] for check in document["checks"]],
            [check["resident_mib"] for check in document["checks"]],
            line,
            color=colour,
            lw=1.6,
        )
    titles = {
        gap: "KL to a retrained model (grey: untouched)",
        closed: "gap closed",
        passes: "passes per request",
        memory: "resident memory, MiB",
    }
    for axes, title in titles.items():
        axes.set_title(title, size=9, loc="left")
        axes.set_xlabel("requests", size=8)
    for axes in (passes, memory):
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    gap.legend(fontsize=7.5, frameon=False)
    return save(figure, path)


def page(results: Results) -> str:
    """The whole page."""
    if not results:
        return "# Soak\n\nNothing has been run yet.\n"
    lines = [
        "# Soak",
        "",
        "Small requests one after another on the embedded graph with a GCN: 70 % one edge, 15 % up to three "
        "features of a node, 10 % one label, 5 % one node. Every 50 or 250 requests a model is retrained from "
        "scratch on what remains, with the seed of the first training. *Gap*: mean KL of the remaining nodes' "
        "predictions to that model, at the end; *untouched*: the same for the model as it was first trained. "
        "`refresh-N`: the prepared state is computed anew after N requests; elsewhere the curvature is as old as "
        "the run. A receipt verifies when its digests, counts and JSON agree with the request, the model and the "
        "graph, and the problem that was solved is smaller than before, or it warns. On a model at a minimum that"
        " problem is L'; the *residual* speaks of L' less the slope that training left, which for one edge is as "
        "large as what the edge pulls. *Of a larger request*: what four gradients gain of 5 % of the edges, as a "
        "share of what thirty gain, with the curvature that the run has and with one computed anew; nothing of it"
        " is kept.",
        "",
        *table(
            [
                "",
                "requests",
                "receipts that verify",
                "residual above 1",
                "refused",
                "gap",
                "untouched",
                "gap closed, least / last",
                "passes, first / last 50",
                "MiB, first / last check",
                "tensors alive, first / last check",
            ],
            [_row(name, document) for name, document in results.items()],
        ),
        "",
        "![Drift, passes and memory over the requests](drift.png)",
    ]
    for name, document in results.items():
        place = document["environment"]
        lines += [
            "",
            f"*{name}*: `{document['command'].strip()}` on {place['device_name']}, torch {place['torch']}, PyG "
            f"{place['torch_geometric']}.",
        ]
        lines += _ageing(document)
        for what, entries in (("Not verified", document["faults"]), ("Refused", document["refused"])):
            lines += [f"- {what}: {entry}" for entry in entries[:5]]
            if len(entries) > 5:
                lines.append(f"- {what}: {len(entries) - 5} more, in the JSON file")
    return "\n".join(lines) + "\n"


def _ageing(document: dict[str, Any]) -> list[str]:
    """The worth of old curvature, by quarters of the soak."""
    checks = [check for check in document["checks"] if check.get("aged") is not None]
    if not checks:
        return []
    whole, parts = document["config"]["requests"], []
    for quarter in range(4):
        low, high = quarter * whole // 4, (quarter + 1) * whole // 4
        found = [check for check in checks if low < check["requests"] <= high]
        if found:
            means = [number(fmean(check[key] for check in found), ".1%") for key in ("aged", "fresh")]
            parts.append(f"up to {high:,} requests {means[0]} and {means[1]}")
    return [f"- Of a larger request, old and new curvature, means over the checks: {'; '.join(parts)}."]


def _row(name: str, document: dict[str, Any]) -> list[str]:
    checks, spent = drawn_checks(document), document["requests"]["passes"]
    first, last = document["checks"][1], document["checks"][-1]
    asked = document["config"]["requests"]
    return [
        name,
        f"{asked:,}",
        f"{len(spent) - len({fault.split(',')[0] for fault in document['faults']}):,} of {len(spent):,}",
        f"{sum((left or 0) > 1 for left in document['requests']['residual']):,}",
        str(len(document["refused"])),
        f"{checks[-1]['gap']:.1e}",
        f"{checks[-1]['gap_none']:.1e}",
        f"{number(min(check['gap_closed'] for check in checks), '+.3f')} / {number(checks[-1]['gap_closed'], '+.3f')}",
        f"{fmean(spent[:50]):.0f} / {fmean(spent[-50:]):.0f}",
        f"{first['resident_mib']:.0f} / {last['resident_mib']:.0f}",
        f"{first['tensors']:,} / {last['tensors']:,}",
    ]

"""The page of ``soak.py``: a table, a figure and what went wrong."""

from pathlib import Path
from statistics import fmean

from shared import Document, documents

from pages.parts import Blocks, Page, columns, number, places
from unweave.experiments.style import grid, save

LOOKS = {"forgettable": ("#1f5fa8", "-"), "ordinary": ("#c65d21", "--")}
OTHERS = ("#5c8a2f", ":")
UNTOUCHED = "0.45"


def compared(document: Document) -> list[Document]:
    """The checks that have a retrained model to compare with."""
    return [check for check in document["checks"] if check.get("gap") is not None]


def blocks(found: dict[str, Document]) -> Blocks:
    """What was found."""
    yield (
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
        " is kept."
    )
    yield columns(
        [(name, d, compared(d), d["requests"]["passes"], d["checks"]) for name, d in found.items()],
        {
            "": lambda r: r[0],
            "requests": lambda r: f"{r[1]['config']['requests']:,}",
            "receipts that verify": lambda r: (
                f"{len(r[3]) - len({fault.split(',')[0] for fault in r[1]['faults']}):,} of {len(r[3]):,}"
            ),
            "residual above 1": lambda r: f"{sum((left or 0) > 1 for left in r[1]['requests']['residual']):,}",
            "refused": lambda r: len(r[1]["refused"]),
            "gap": lambda r: f"{r[2][-1]['gap']:.1e}",
            "untouched": lambda r: f"{r[2][-1]['gap_none']:.1e}",
            "gap closed, least / last": lambda r: " / ".join(
                number(closed, "+.3f") for closed in (min(c["gap_closed"] for c in r[2]), r[2][-1]["gap_closed"])
            ),
            "passes, first / last 50": lambda r: f"{fmean(r[3][:50]):.0f} / {fmean(r[3][-50:]):.0f}",
            "MiB, first / last check": lambda r: f"{r[4][1]['resident_mib']:.0f} / {r[4][-1]['resident_mib']:.0f}",
            "tensors alive, first / last check": lambda r: f"{r[4][1]['tensors']:,} / {r[4][-1]['tensors']:,}",
        },
    )
    yield "![Drift, passes and memory over the requests](drift.png)"
    for name, document in found.items():
        where = places([document], "{device_name}, torch {torch}, PyG {torch_geometric}")
        lines = [f"*{name}*: `{document['command'].strip()}` on {where}.", *_ageing(document)]
        for what, entries in (("Not verified", document["faults"]), ("Refused", document["refused"])):
            lines += [f"- {what}: {entry}" for entry in entries[:5]]
            if len(entries) > 5:
                lines.append(f"- {what}: {len(entries) - 5} more, in the JSON file")
        yield lines


def _ageing(document: Document) -> list[str]:
    """The worth of old curvature, by quarters of the soak."""
    whole, parts = document["config"]["requests"], []
    for quarter in range(4):
        low, high = quarter * whole // 4, (quarter + 1) * whole // 4
        found = [c for c in document["checks"] if c.get("aged") is not None and low < c["requests"] <= high]
        if found:
            old, new = (number(fmean(check[key] for check in found), ".1%") for key in ("aged", "fresh"))
            parts.append(f"up to {high:,} requests {old} and {new}")
    return [f"- Of a larger request, old and new curvature, means over the checks: {'; '.join(parts)}."] * bool(parts)


def draw(found: dict[str, Document], out: Path) -> Path:
    """Gap to a retrained model, gap closed, passes and memory against the number of requests."""
    figure, ((gap, closed), (passes, memory)) = grid(2, 2)
    for name, document in found.items():
        colour, line = LOOKS.get(name, OTHERS)
        checks, every, spent = compared(document), document["config"]["every"], document["requests"]["passes"]
        x = [check["requests"] for check in checks]
        gap.semilogy(x, [check["gap"] for check in checks], line, color=colour, lw=1.6, label=name)
        gap.semilogy(x, [check["gap_none"] for check in checks], line, color=UNTOUCHED, lw=1.0)
        closed.plot(x, [check["gap_closed"] for check in checks], line, color=colour, lw=1.6)
        means = [fmean(spent[i : i + every]) for i in range(0, len(spent), every)]
        passes.plot([every * (i + 1) for i in range(len(means))], means, line, color=colour, lw=1.6)
        looks = [(check["requests"], check["resident_mib"]) for check in document["checks"]]
        memory.plot(*zip(*looks, strict=True), line, color=colour, lw=1.6)
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
    return save(figure, out / "drift.png")


PAGE = Page("Soak", documents, blocks, draw)

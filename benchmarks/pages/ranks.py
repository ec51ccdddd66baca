"""The page of ``ranks.py``: how much faster several ranks are, where the time goes, and what a network would allow."""

from pathlib import Path
from statistics import fmean
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places

PARTS = ("gradient", "product", "request")


def read(out: Path) -> list[Document]:
    """What was measured and predicted; of what was done twice with a version the last."""
    return list({_key(cell): cell for cell in lines(out / "cells.jsonl")}.values())


def _key(cell: Document) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in ("part", "graph", "nodes", "ranks", "commit"))


def slowest(cell: Document, part: str) -> float:
    """Seconds of the process that took longest."""
    return float(max(own[part]["seconds"] for own in cell["found"]))


def _row(cell: Document, one: Document, control: Document | None, part: str) -> Document:
    took, alone, count = slowest(cell, part), slowest(one, part), cell["ranks"]
    own = [told[part] for told in cell["found"]]
    computed = [told["seconds"] - told["wait"] - told["send"] for told in own]
    held = sum(told["nodes"] + told["edges"] for told in cell["found"])
    copies = None
    if control is not None and part in control["found"][0]:
        copies = alone / fmean(told[part]["seconds"] for told in control["found"])
    efficiency = alone / took / count
    return {
        "ranks": count,
        "part": part,
        "seconds": took,
        "speedup": alone / took,
        "efficiency": efficiency,
        "copies": copies,
        "allowed": None if copies is None else efficiency / copies,
        "again": held / (cell["nodes"] + cell["edges"]) - 1,
        "uneven": 1 - fmean(computed) / max(computed),
        "sent": fmean(told["send"] / told["seconds"] for told in own),
        "mib": max(told["mib"] for told in cell["found"]),
    }


SAYS = (
    "Every rank is a process of one thread, compared with one process of one thread without ranks, which evaluates the "
    "whole graph. *Efficiency* is the speed-up over the number of ranks. *Copies* is the control: as many copies of "
    "the one process side by side, which know nothing of each other, keep this share of its speed on this machine; *of "
    "that* is the efficiency over it, what is lost to ranks themselves. *Halos* is how many nodes and edges all ranks "
    "hold more than the graph has, *uneven* what the mean rank computes less than the slowest, *sent* the share of its "
    "time in adding and gathering."
)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield SAYS
    by = {_key(cell): cell for cell in found}
    for one in (cell for cell in found if cell["part"] == "measure" and not cell["ranks"]):
        graph, nodes, commit = (one[name] for name in ("graph", "nodes", "commit"))
        parts = [part for part in PARTS if part in one["found"][0]]
        own = [cell for cell in found if _key(cell)[1:3] == (graph, nodes) and cell["commit"] == commit]
        spread = [cell for cell in own if cell["part"] == "measure" and cell["ranks"]]
        spread.sort(key=lambda cell: int(cell["ranks"]))
        alone = ", ".join(f"{part} {slowest(one, part):.3g} s" for part in parts)
        blocks = max((told.get("blocks", 1) for cell in spread for told in cell["found"]), default=1)
        cut = "several blocks" if blocks > 1 else "one block"
        yield f"## {graph}: {nodes:,} nodes, {one['edges']:,} stored edges, {cut} a rank"
        yield (
            f"One process: {alone}; {one['training']:,} training nodes, {one['parameters']:,} parameters. Commit "
            f"{commit[:7]}."
        )
        yield columns(
            [
                _row(cell, one, by.get(("control", graph, nodes, cell["ranks"], commit)), part)
                for part in parts
                for cell in spread
                if part in cell["found"][0]
            ],
            {
                "": lambda r: r["part"],
                "ranks": lambda r: r["ranks"],
                "seconds": lambda r: f"{r['seconds']:.3g}",
                "speed-up": lambda r: f"{r['speedup']:.2f}",
                "efficiency": lambda r: f"{r['efficiency']:.0%}",
                "copies": lambda r: _share(r["copies"]),
                "of that": lambda r: _share(r["allowed"]),
                "halos": lambda r: f"+{r['again']:.1%}",
                "uneven": lambda r: f"{r['uneven']:.0%}",
                "sent": lambda r: f"{r['sent']:.1%}",
                "MiB a rank": lambda r: f"{r['mib']:,.0f}",
            },
        )
        cell = by.get(("predict", graph, nodes, 0, commit))
        if cell is not None:
            yield from _predicted(cell)
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/ranks.py` on {where}."


def _predicted(cell: Document) -> Blocks:
    fit = cell["network"]
    yield f"### The model: {cell['graph']}, {cell['nodes']:,} nodes"
    yield (
        f"gloo here: latency {fit['latency'] * 1e6:.0f} µs, {fit['bandwidth'] / 1e9:.2f} GB/s, half of what was "
        f"measured within {fit['off']:.0%} of that. *Here* is what the model says of this machine from the other "
        "numbers of ranks alone, beside what was measured; the rest is for as many machines with a process each, "
        f"{cell['gbit']:g} Gbit/s and {cell['latency_us']:g} µs between them."
    )
    yield columns(
        cell["found"],
        {
            "": lambda r: r["part"],
            "ranks": lambda r: r["ranks"],
            "here": lambda r: None if r["here"] is None else f"{r['here']:.3g} s",
            "measured": lambda r: None if r["measured"] is None else f"{r['measured']:.3g} s",
            "off": lambda r: None if r["here"] is None else f"{r['here'] / r['measured'] - 1:+.0%}",
            "machines: computing": lambda r: f"{r['compute']:.3g} s",
            "sending": lambda r: f"{r['send']:.2g} s",
            "efficiency": lambda r: f"{r['efficiency']:.0%}",
        },
    )


PAGE = Page("Several ranks", read, blocks)

"""The page of ``ranks.py``: how much faster several ranks are, where the time goes, and what a network would allow."""

from pathlib import Path
from statistics import fmean
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places

PARTS = ("gradient", "product", "request")
NOTHING = {"wait": 0.0, "send": 0.0}


def read(out: Path) -> list[Document]:
    """What was measured and predicted; of a cell that was done twice the last."""
    known = {_key(cell): cell for cell in lines(out / "cells.jsonl")}
    return list(known.values())


def _key(cell: Document) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in ("part", "graph", "nodes", "ranks", "name"))


def slowest(cell: Document, part: str) -> float | None:
    """Seconds of the rank that took longest."""
    return max(own[part]["seconds"] for own in cell["found"]) if part in cell["found"][0] else None


def _computed(cell: Document, part: str) -> list[float]:
    return [
        own[part]["seconds"] - (NOTHING | own[part])["wait"] - (NOTHING | own[part])["send"] for own in cell["found"]
    ]


def _row(cell: Document, one: Document, part: str) -> Document | None:
    took, alone = slowest(cell, part), slowest(one, part)
    if took is None or alone is None:
        return None
    computed = _computed(cell, part)
    return {
        "ranks": cell["ranks"],
        "part": part,
        "seconds": took,
        "speedup": alone / took,
        "efficiency": alone / took / cell["ranks"],
        "again": 1 - alone / sum(computed),
        "uneven": 1 - fmean(computed) / max(computed),
        "sent": fmean((NOTHING | own[part])["send"] / own[part]["seconds"] for own in cell["found"]),
        "mib": max(own["mib"] for own in cell["found"]),
    }


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Every rank is a process of one thread, compared with one process without ranks, which evaluates the whole "
        "graph. *Again* is the share of all computing that one process does not do: nodes that lie in several "
        "halos (below 0 where ranks, with less each, compute faster). *Uneven* is what the mean rank waits for the "
        "slowest, *sent* the share of its time in adding and gathering."
    )
    measured = [cell for cell in found if cell["part"] == "measure"]
    for graph, nodes in dict.fromkeys((cell["graph"], cell["nodes"]) for cell in measured):
        own = [cell for cell in measured if (cell["graph"], cell["nodes"]) == (graph, nodes)]
        one = next((cell for cell in own if cell["ranks"] == 0), None)
        if one is None:
            continue
        alone = ", ".join(f"{part} {slowest(one, part):.3g} s" for part in PARTS if slowest(one, part) is not None)
        yield f"## {graph}: {nodes:,} nodes, {one['edges']:,} stored edges"
        yield f"One process: {alone}; {one['training']:,} training nodes, {one['parameters']:,} parameters."
        rows = (_row(cell, one, part) for part in PARTS for cell in own if cell["ranks"])
        yield columns(
            [row for row in rows if row is not None],
            {
                "": lambda r: r["part"],
                "ranks": lambda r: r["ranks"],
                "seconds": lambda r: f"{r['seconds']:.3g}",
                "speed-up": lambda r: f"{r['speedup']:.2f}",
                "efficiency": lambda r: f"{r['efficiency']:.0%}",
                "again": lambda r: f"{r['again']:.0%}",
                "uneven": lambda r: f"{r['uneven']:.0%}",
                "sent": lambda r: f"{r['sent']:.1%}",
                "MiB a rank": lambda r: f"{r['mib']:,.0f}",
            },
        )
    for cell in (cell for cell in found if cell["part"] == "predict"):
        fit = cell["network"]
        yield f"## {cell['graph']}, {cell['nodes']:,} nodes: a gradient by the model, {cell['name']}"
        yield (
            f"gloo here: latency {fit['latency'] * 1e6:.0f} µs, {fit['bandwidth'] / 1e9:.2f} GB/s, half of what was "
            f"measured within {fit['off']:.0%} of that."
        )
        yield columns(
            cell["found"],
            {
                "ranks": lambda r: r["ranks"],
                "computing": lambda r: f"{r['compute']:.3g} s",
                "sending": lambda r: f"{r['send']:.3g} s",
                "together": lambda r: f"{r['seconds']:.3g} s",
                "speed-up": lambda r: f"{r['speedup']:.2f}",
                "measured": lambda r: None if r["measured"] is None else f"{r['measured']:.3g} s",
            },
        )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/ranks.py` on {where}."


PAGE = Page("Several ranks", read, blocks)

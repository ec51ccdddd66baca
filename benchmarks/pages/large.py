"""The page of ``large.py``: what training and forgetting on a graph on disk takes."""

from pathlib import Path
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

GIB = 2**30


def read(out: Path) -> list[Document]:
    """The phases that were measured, and what was found beside ScaleGUN."""
    return lines(out / "cells.jsonl", out / "scalegun.jsonl")


def _size(cell: Document) -> tuple[Any, ...]:
    """What the phases of one table have in common."""
    keys = ("nodes", "stored_edges", "features", "model", "hidden")
    return (*(cell[key] for key in keys), cell["environment"]["device_name"], cell["environment"]["torch"])


def _own(cell: Document) -> float:
    """Seconds of the phase itself, without starting a process and opening the folder."""
    return float(next((cell[key] for key in ("forgot", "trained", "propagated") if key in cell), cell["seconds"]))


def _rows(cell: Document) -> str | None:
    rows = cell.get("rows") or {}
    if "recomputed" in rows:
        return f"{rows['training'] + rows['others']:,} read, {rows['recomputed']:,} of {rows['differing']:,} anew"
    if "rows" in rows:
        return f"{rows['rows']:,} read, {rows['rows_recomputed']:,} anew"
    return f"{rows['halo_nodes']:,} in the halo" if "halo_nodes" in rows else None


PHASES = {"open": "opening", "propagate": "propagating", "train": "training", "forget": "a request"}
"""What a plan calls the phases."""

THOUSANDS = "a request of thousands"
"""What it calls a large request; plans of earlier versions did not tell these apart."""


def _planned(cell: Document, plan: Document | None, what: str) -> str | None:
    """What was foretold of a phase."""
    kind, count = (*cell["phase"].split(), "1")[:2]
    phases = {} if plan is None else plan[what]
    told = phases.get(PHASES.get(kind))
    if told is None:
        return None
    if count.isdecimal() and int(count) > 1:
        told = phases.get(THOUSANDS, told)
    return f"{told / 1024:.2f}" if what == "memory_mib" else f"{told[0]:.3g} to {told[1]:.3g}"


def _table(cells: list[Document], plan: Document | None) -> list[str]:
    """The phases on one graph."""
    return columns(
        [c for c in cells if "planned" not in c],
        {
            "": lambda c: c["phase"],
            "seconds": lambda c: number(_own(c), ".3g"),
            "planned": lambda c: _planned(c, plan, "seconds"),
            "peak, GiB": lambda c: number(c["peak_mib"] / 1024, ".2f"),
            "planned peak": lambda c: _planned(c, plan, "memory_mib"),
            "from disk, GiB": lambda c: number(c.get("request_read_bytes", c["read_bytes"]) / GIB, ".2f"),
            "passes": lambda c: None if "passes" not in c else f"{c['passes']:,.3g}",
            "rows": _rows,
            "retraining, seconds": lambda c: None if "retrained" not in c else number(c["retrained"], ".3g"),
            "gap closed": lambda c: None if c.get("gap_closed") is None else number(c["gap_closed"], "+.3f"),
        },
    )


def _beside(found: list[Document]) -> Blocks:
    """ScaleGUN and ours, by graph."""
    yield "## Beside ScaleGUN"
    yield (
        "One-vs-rest logistic regression on P²X, the same for both, without noise; batches of random edges are removed "
        "one after the other. ScaleGUN is the authors' code: its C++ keeps P²X within `rmax` 1e-7, its own functions "
        "take one Newton step a batch. It holds the graph and three matrices of all nodes in memory; ours is a folder "
        "on disk, and its time includes everything up to the receipt. Seconds are those of the processor, on one "
        "thread. *Distance*: of the parameters after the last batch to the minimum on the remaining graph, found in "
        "double precision, over the norm of that minimum."
    )
    for graph in dict.fromkeys(c["graph"] for c in found):
        cells = [c for c in found if c["graph"] == graph]
        one, last = cells[0], max(c["number"] for c in cells)
        yield (
            f"{graph}: {one['nodes']:,} nodes, {one['stored_edges']:,} stored edges; {last + 1} batches of "
            f"{one['batch']:,} edges. Doing nothing leaves a distance of "
            f"{next(c['distance_of_nothing'] for c in cells if c['number'] == last):.2g}."
        )
        ends = [
            {**c, "mean": sum(o["seconds"] for o in cells if o["who"] == c["who"]) / (last + 1)}
            for c in cells
            if c["number"] == last
        ]
        yield columns(
            ends,
            {
                "": lambda c: c["who"],
                "processor seconds a batch": lambda c: number(c["mean"], ".3g"),
                "distance": lambda c: f"{c['distance']:.2g}",
                "test F1": lambda c: number(c["f1"], ".3f"),
            },
        )


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    beside, found = [c for c in found if "who" in c], [c for c in found if "who" not in c]
    yield (
        "Graphs drawn onto disk with hubs, wrong labels and classes that neighbours do not tell alone, in folders that "
        "are mapped. Every phase is a process of its own. *Peak*: the most memory that process had, pages of mapped "
        "files included. *From disk*: bytes that came from the disk; before each phase the system's cache of files is "
        "emptied of the folder, but where it says not. *Rows*: "
        "rows of PᵏX that a request read and computed anew, of those that differ after it. *Planned*: "
        "what `unweave plan` says by the sizes alone, with the least and the most passes of this version. *Gap "
        "closed*: of the mean KL of validation and test nodes to a model retrained with the same seed, where it was."
    )
    for size in dict.fromkeys(map(_size, found)):
        # of a phase that was measured again the last counts
        cells = list({c["phase"]: c for c in found if _size(c) == size}.values())
        nodes, edges, features, model, hidden = size[:5]
        wide = "" if model == "sgc" else f" of {hidden} units"
        yield f"## {model}{wide}: {nodes:,} nodes, {edges:,} stored edges, {features} features"
        first = cells[0]
        scores = next((c["metrics"] for c in cells if "metrics" in c), None)
        told = "" if scores is None else f" Test F1 {scores['test_f1']:.3f}."
        yield (
            f"{first['training']:.1%} of the nodes are trained on; `memory_mib` {first['memory_mib']:g}, on "
            f"{first['cores']} cores ({first['environment']['device_name']})"
            f"{', shared with other work' if first.get('shared') else ''}"
            f"{'' if first.get('emptied') else ', with one thread, and the cache not emptied'}.{told}"
        )
        yield _table(cells, next((c["planned"] for c in reversed(cells) if "planned" in c), None))
    if beside:
        yield from _beside(beside)
    where = places(found + beside, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield (
        "Measured by `python benchmarks/large.py --nodes … --edges … --model …` and `python benchmarks/scalegun.py` on "
        f"{where}."
    )


PAGE = Page("Graphs on disk", read, blocks)

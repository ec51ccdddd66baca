"""The page of ``repair.py``: who finds what is wrong, and what comes back."""

from itertools import product
from pathlib import Path
from statistics import fmean

from shared import Document, lines

from pages.parts import Blocks, Page, number, places, table

Cell = tuple[str, str, str, str, int]
Results = dict[Cell, Document]

NEAR = 0.01
"""Within so much of the best counts as best."""

COST = 0.03
"""F1 that an attack must have cost for a share of it to mean something."""

HONEST = 0.1
"""An expected share of false discoveries that is lower than the known one by no more is honest."""

MATRIX = (
    ("cora", "citeseer", "pubmed", "photo", "demo"),
    ("gcn", "sage", "sgc", "sign"),
    ("uniform", "nearest", "backdoor", "random", "dice", "prbcd", "grbcd", "swapped"),
)
"""Graphs, models and attacks: what is there to be measured."""

PLACE = "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit:.12}"
"""Where and by what a cell was measured."""

GROUPS = {
    "wrong labels": ("uniform", "nearest", "backdoor"),
    "attacked edges": ("random", "dice", "prbcd", "grbcd"),
    "swapped features": ("swapped",),
}


def cell_of(document: Document) -> Cell:
    """Way of training, data, model, attack and seed."""
    config = document["config"]
    return config["way"], config["data"], config["model"], config["attack"], config["seed"]


def read(out: Path) -> Results:
    """The cells that are done."""
    return {cell_of(document): document for document in lines(out / "repair.jsonl")}


def is_best(document: Document, measure: str) -> bool:
    """Whether ours is the best detector of a cell, or near it."""
    found = document["detection"][measure]
    return bool(found["ours"] >= max(found.values()) - NEAR)


def recovered(document: Document) -> float | None:
    """The share of the lost F1 that came back; ``None`` where the attack cost too little."""
    f1 = document["f1"]
    lost = f1["clean"] - f1["before"]
    return (f1["after"] - f1["before"]) / lost if lost >= COST else None


def sums(found: Results) -> dict[str, dict[str, float]]:
    """What the page and the guide say in short, of each group of attacks."""
    told = {}
    for title in GROUPS:
        some = list(_group(found, title).values())
        shares = [share for d in some if (share := recovered(d)) is not None]
        told[title] = {
            "cells": len(some),
            "best ap": sum(is_best(d, "ap") for d in some),
            "best auc": sum(is_best(d, "auc") for d in some),
            "cost": len(shares),
            "back": sum(share >= 0.7 for share in shares),
            "mean": fmean(shares) if shares else 0.0,
            "lower": sum(d["f1"]["after"] < d["f1"]["before"] for d in some),
            "done": len(_surer(some)),
            "honest": sum(surer <= HONEST for surer in _surer(some)),
        }
    return told


def _surer(some: list[Document]) -> list[float]:
    """By how much more of what was done was right than expected, of each repair that did something."""
    return [d["known_false"] - d["expected_false"] for d in some if d["done"]]


def _group(found: Results, title: str) -> Results:
    return {cell: d for cell, d in found.items() if _split(cell[3])[0] in GROUPS[title]}


def blocks(found: Results) -> Blocks:
    """What was found."""
    where = places(found.values(), PLACE)
    yield (
        f"Made by `python benchmarks/repair.py` on {where}. A model is trained on an attacked graph and repaired "
        "(`uw.repair` as it is by default), knowing nothing of the attack. Everything is in `repair.jsonl`."
    )
    if looked := [document["looked"] for document in found.values() if "looked" in document]:
        yield (
            f"In {len(looked)} of {len(found)} cells the figures of detection are those of an earlier measurement that "
            f"had cleanlab ({places(looked, PLACE)}): our own was the same here."
        )
    yield "## In short"
    yield _short(found)
    yield "## What was measured"
    yield "The levels of each attack, as shares; – is missing."
    yield _levels(found)
    for group in GROUPS:
        some, title = _group(found, group), group.capitalize()
        if some:
            yield f"## {title}: average precision of detection"
            yield _detectors(some, "ap")
            yield f"## {title}: area under the ROC curve"
            yield _detectors(some, "auc")
            yield f"## {title}: F1 and false discoveries"
            yield _repairs(some)
    backdoors = {cell: d for cell, d in found.items() if d.get("success")}
    if backdoors:
        yield "## Backdoors: success of the attack"
        yield "Nodes that are not trained on, of other classes: the share that the trigger turns into the target."
        names = {"before": "attacked", "after": "repaired", "truth": "truth known"}
        rows = [[_named(c), *(f"{d['success'][key]:.3f}" for key in names)] for c, d in _sorted(backdoors)]
        yield table(["cell", *names.values()], rows)
    yield (
        "*Truth known* forgets exactly what the attacker put there; for DICE and the attacks by gradients it does not "
        "bring back the edges that they took. *Proposed* is what the first look finds at an expected share of false "
        "discoveries of 0.2 at most, *done* what was forgotten or corrected in the end; *expected* and *known* are the "
        "share of false ones as it was estimated and as it is by the attacker's own account. Edges that were there "
        "before the attack and look like chance count as false here. cleanlab gets the out-of-sample probabilities of "
        "our first look. F1 is of the test nodes."
    )


def _short(found: Results) -> list[str]:
    rows = [
        [
            title,
            *(f"{told[key]:.0f}" for key in ("cells", "best ap", "best auc", "cost", "back")),
            f"{told['mean']:.2f}" if told["cost"] else "–",
            f"{told['lower']:.0f}",
            f"{told['honest']:.0f} of {told['done']:.0f}",
        ]
        for title, told in sums(found).items()
        if told["cells"]
    ]
    heads = ["", "cells", f"best AP (within {NEAR:g})", "best AUC", f"cost F1 ≥ {COST:g}", "of these ≥ 70 % back"]
    return table([*heads, "mean share back", "test F1 lower after", "false ones no more than 0.1 over expected"], rows)


def _levels(found: Results) -> list[str]:
    graphs, models, attacks = MATRIX
    known: dict[tuple[str, ...], set[float]] = {}
    for way, data, model, spec, _ in found:
        kind, level = _split(spec)
        known.setdefault((data, model, way, kind), set()).add(level)
    ways = [(data, model, way) for data, model, way in product(graphs, models, ("forgettable", "ordinary"))]
    rows = [
        [f"{data} {model}" + (" ordinary" if way == "ordinary" else "")]
        + [
            ", ".join(f"{level:g}" for level in sorted(known.get((data, model, way, kind), ()))) or "–"
            for kind in attacks
        ]
        for data, model, way in ways
        if (way == "forgettable" and data != "demo") or any((data, model, way, kind) in known for kind in attacks)
    ]
    return table(["", *attacks], rows)


def _named(cell: Cell) -> str:
    way, data, model, spec, seed = cell
    return f"{data} {model} {spec}" + (" ordinary" if way == "ordinary" else "") + (f" seed {seed}" if seed else "")


def _sorted(found: Results) -> list[tuple[Cell, Document]]:
    return sorted(found.items(), key=lambda pair: (pair[0][:3], *_split(pair[0][3]), pair[0][4]))


def _split(spec: str) -> tuple[str, float]:
    kind, _, share = spec.partition(":")
    return kind, float(share)


def _detectors(found: Results, measure: str) -> list[str]:
    names = list(dict.fromkeys(name for d in found.values() for name in d["detection"][measure]))
    rows = []
    for cell, document in _sorted(found):
        values = document["detection"][measure]
        best = max(values.values())
        cells = [
            "–" if name not in values else f"**{values[name]:.3f}**" if values[name] == best else f"{values[name]:.3f}"
            for name in names
        ]
        rows.append([_named(cell), *cells])
    return table(["cell", *names], rows)


def _repairs(found: Results) -> list[str]:
    rows = []
    for cell, document in _sorted(found):
        f1, told = document["f1"], document["detection"]
        rows.append(
            [
                _named(cell),
                *(number(f1[key], ".3f") for key in ("clean", "before", "after", "truth")),
                number(recovered(document), ".2f"),
                f"{told['wrong']:,}",
                f"{told['proposed']:,}",
                number(told["expected_false"], ".2f"),
                number(told["known_false"], ".2f"),
                f"{document['done']:,}",
                number(document["expected_false"], ".2f"),
                number(document["known_false"], ".2f"),
                f"{document['seconds']['repair'] / document['seconds']['training']:.1f}",
            ]
        )
    heads = ["cell", "clean", "attacked", "repaired", "truth known", "share back"]
    looks = ["wrong", "proposed", "expected false", "known false", "done", "expected false", "known false"]
    return table([*heads, *looks, "time / training"], rows)


PAGE = Page("Repair", read, blocks)

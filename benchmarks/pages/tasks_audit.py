"""The page of ``tasks_audit.py``: the audit on links, recommenders, relations and whole graphs."""

from collections.abc import Callable
from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, places

LEGEND = (
    "*Unusual*: tests whose number lies outside of the range of retrained models. *As retrained*: how many lie within "
    "it, and *no power*: how many could not have told. *Noticeable*: the least share of the deleted data that a model "
    "could not remember without being noticed, about."
)


def read(out: Path) -> list[Document]:
    """The audits that are done."""
    return lines(out / "cells.jsonl")


def _found(cell: Document, *findings: str) -> list[str]:
    return [name for name, test in cell["tests"].items() if test["finding"] in findings]


def table(found: list[Document], name: Callable[[Document], str]) -> list[str]:
    """Every audit with its verdict."""
    return columns(
        found,
        {
            "": name,
            "method": lambda c: c["method"],
            "verdict": lambda c: c["verdict"],
            "unusual": lambda c: ", ".join(_found(c, "remembers", "differs")) or None,
            "as retrained": lambda c: len(_found(c, "as retrained")),
            "no power": lambda c: len(_found(c, "no power")) or None,
            "noticeable": lambda c: None if c["noticeable"] is None else f"{c['noticeable']:.0%}",
        },
    )


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Forgettable models of each task and a deletion of 5 % of the interactions, pairs, papers or graphs. "
        "`listeners` is a generated recommender of 300 users with 20 interactions each, `literature` the generated "
        "papers of [whole graphs and relations](../tasks_graphs/README.md); of `mutag` 56 of 188 graphs are held out. "
        + LEGEND
    )
    yield table(found, lambda c: f"{c['data']}, seed {c['seed']}, {c['asked']}")
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/tasks_audit.py` on {where}."


PAGE = Page("The audit on every task", read, blocks)

"""The page of ``tasks_audit.py``: the audit on links, recommenders, relations and whole graphs."""

from collections.abc import Callable
from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

LEGEND = (
    "*Unusual*: tests whose number lies outside of the range of retrained models. *As retrained*: how many lie within "
    "it, and *no power*: how many could not have told. *Noticeable*: the least share of the deleted data that a model "
    "could not remember without being noticed, about."
)


def read(out: Path) -> list[Document]:
    """The audits that are done."""
    return lines(out / "cells.jsonl")


def _found(cell: Document, *findings: str) -> list[str]:
    return [name for name, test in cell.get("tests", {}).items() if test["finding"] in findings]


Column = Callable[[Document], object]


def table(found: list[Document], name: Column, **more: Column) -> list[str]:
    """Every audit with its verdict."""
    return columns(
        found,
        {
            "": name,
            **more,
            "method": lambda c: c["method"],
            "verdict": lambda c: c.get("verdict", "refused"),
            "unusual": lambda c: ", ".join(_found(c, "remembers", "differs")) or None,
            "as retrained": lambda c: len(_found(c, "as retrained")),
            "no power": lambda c: len(_found(c, "no power")) or None,
            "noticeable": lambda c: None if c.get("noticeable") is None else f"{c['noticeable']:.0%}",
        },
    )


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Models of each task, trained both ways, and a deletion of 5 % of the interactions, pairs, papers or graphs. "
        "*Forgettable*: as `unweave train --forgettable` trains them; *ordinary*: small ones (64 columns, a GIN of 32 "
        "units, 16 units), Adam until validation says enough. `none` takes the data out and keeps the parameters, "
        "`finetune` has as many passes as `gif`. *Agreement*: of retrained models of different seeds; 1 where they are "
        "one model, 0 or less where luck moves them as much as the deletion does, and what is smaller cannot be seen. "
        "`listeners` is a generated recommender of 300 users with 20 interactions each, `literature` the generated "
        "papers of [whole graphs and relations](../tasks_graphs/README.md); of `mutag` 56 of 188 graphs are held out. "
        + LEGEND
    )
    yield table(
        found,
        lambda c: f"{c['data']}, {c['way']}, seed {c['seed']}, {c['asked']}",
        agreement=lambda c: number(c.get("agreement"), "+.3f"),
    )
    where = places(found, "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield f"Measured by `python benchmarks/tasks_audit.py` on {where}."


PAGE = Page("The audit on every task", read, blocks)

"""The page of ``decays.py``: which rule chooses the better weight decay."""

from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

OURS = "lowest loss"


def read(out: Path) -> list[Document]:
    """The cells that are done."""
    return sorted(lines(out / "cells.jsonl"), key=lambda d: (d["data"], d["model"], d["seed"]))


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "Rules that choose a weight decay by validation nodes, each by a half of them, and judged by the other half; "
        f"means over a hundred cuts. No test label was read. `train --forgettable` goes by the *{OURS}*. *Beside it*: "
        "F1 of a rule less that of this one, mean and standard error over the cells."
    )
    rules = list(found[0]["rules"])
    yield columns(
        rules,
        {
            "rule": lambda rule: rule,
            "F1": lambda rule: f"{fmean(cell['rules'][rule]['f1'] for cell in found):.4f}",
            "loss": lambda rule: f"{fmean(cell['rules'][rule]['loss'] for cell in found):.3f}",
            "beside it": lambda rule: _beside(found, rule) if rule != OURS else None,
        },
    )
    yield columns(
        found,
        {
            "": lambda d: f"{d['model']} {d['data']}" + (f" (seed {d['seed']})" if d["seed"] else ""),
            "validation nodes": lambda d: f"{d['validation']:,}",
            **{rule: partial(_chosen, rule) for rule in rules},
        },
    )
    yield "F1 by the unseen half, loss by it, and the decay that the rule chooses with all of the validation nodes."
    yield (
        "Measured by `python benchmarks/decays.py`, as far as there was time, on "
        f"{places(found, '{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}')}. The cells of "
        "2f6274e were measured before the script was committed, by the same calls; `gcn` on Cora by the script is the "
        "same to the last digit."
    )


def _beside(found: list[Document], rule: str) -> str | None:
    apart = [cell["rules"][rule]["f1"] - cell["rules"][OURS]["f1"] for cell in found]
    return f"{number(fmean(apart), '+.4f')} ± {stdev(apart) / len(apart) ** 0.5:.4f}" if len(apart) > 1 else None


def _chosen(rule: str, cell: Document) -> str:
    told = cell["rules"][rule]
    return f"{told['f1']:.4f}, {told['loss']:.3f}, {told['decay']:g}"


PAGE = Page("Which rule chooses the weight decay", read, blocks)

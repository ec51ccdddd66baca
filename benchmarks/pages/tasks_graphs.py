"""The page of ``tasks_graphs.py``: every request on whole graphs and on several types of nodes."""

from pathlib import Path
from typing import Any

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places


def read(out: Path) -> list[Document]:
    """The cells that are done."""
    return lines(out / "cells.jsonl")


def blocks(found: list[Document]) -> Blocks:
    """What was found."""
    yield (
        "`literature` is a generated graph of 400 papers, their authors and venues, with a two-layer `to_hetero` "
        "model of 128 units; `mutag` and `proteins` have whole graphs, with `pooled-sign`. *Ordinary*: a small model "
        "of the same kind (GIN on whole graphs), trained until validation says enough. *Closed*: what `gif` closes "
        "of the gap to a model retrained the same way, on all examples that remain. Where another seed closes little "
        "or less than nothing, retraining itself is no better known than that. *Fine-tuning* had as many passes, at "
        "Adam's 0.01 from a new state, which leaves a minimum: a weak control. With the decay of 0.01, the best by "
        "the 43 papers of validation of `literature`, seeds agree to 0.985 and `gif` closed 0.84 to 0.94; `train` "
        "goes on to larger ones that validation does not show to be worse, until they agree. *Auto*: what the ladder "
        "closes, neither prepared nor calibrated, and the rung that it took: where training had not come to rest it "
        "takes no step, and retrains. With a hidden layer that is trained, `pooled-sign` closed 0.15 of the gap for "
        "5 % of the graphs of MUTAG, as `gif` and retraining ended at different minima; now it is drawn and not "
        "trained."
    )
    rows: list[dict[str, Any]] = [
        {"cell": cell, "name": name, **request} for cell in found for name, request in cell["requests"].items()
    ]
    yield columns(
        rows,
        {
            "": lambda r: f"{r['cell']['data']}, {r['cell']['way']}, seed {r['cell']['seed']}, {r['name']}",
            "decay": lambda r: f"{r['cell']['weight_decay']:g}",
            "F1": lambda r: f"{r['cell']['scores']['test_f1']:.3f}",
            "agreement": lambda r: number(r["cell"]["scores"].get("agreement"), "+.3f"),
            "gap": lambda r: f"{r['gap']:.1e}",
            "closed": lambda r: "refused" if "refused" in r else number(r["gap_closed"], "+.4f"),
            "auto": lambda r: f"{number(r['auto'], '+.4f')} ({r['rung']})" if "auto" in r else None,
            "another seed": lambda r: number(r.get("other_seed"), "+.4f"),
            "fine-tuning": lambda r: number(r.get("finetune"), "+.1f"),
            "passes": lambda r: f"{r.get('passes', '–')} of {r['retrain_passes']}",
        },
    )
    forgettable = [r for r in rows if r["cell"]["way"] == "forgettable"]
    short = [f"{r['cell']['data']}, {r['name']} ({r['gap_closed']:+.2f})" for r in forgettable if r["gap_closed"] < 0.9]
    yield f"Forgettable and short of 0.9: {'; '.join(short) or 'none'}."
    below = [f"{r['cell']['data']}, {r['cell']['way']}, {r['name']}" for r in rows if r.get("gap_closed", 0) < 0]
    yield f"`gif` worse than doing nothing: {'; '.join(below) or 'none'}."
    harmed = [f"{r['cell']['data']}, {r['cell']['way']}, {r['name']}" for r in rows if r.get("auto", 0) < 0]
    yield f"`auto` worse than doing nothing, of {sum('auto' in r for r in rows)}: {'; '.join(harmed) or 'none'}."
    where = places(found, "{device_name}, torch {torch}, commit {commit}")
    yield f"Measured by `python benchmarks/tasks_graphs.py`, on {where}."


PAGE = Page("Whole graphs and several types of nodes", read, blocks)

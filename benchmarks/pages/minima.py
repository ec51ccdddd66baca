"""The page of ``minima.py``: do seeds come nearer the longer they are polished, and does a restart that goes on?"""

from functools import partial
from pathlib import Path

from shared import Document, lines

from pages.parts import Blocks, Page, columns, number, places

LOOKED = (30, 60, 120, 240)
"""Gradients of a restart that the page shows."""


def read(out: Path) -> dict[str, list[Document]]:
    """What is done."""
    found = {name: lines(out / f"{name}.jsonl") for name in ("rounds", "requests")}
    return found if any(found.values()) else {}


def _name(row: Document) -> str:
    units = f", {row['hidden']} units" if row["hidden"] else ""
    units += f", {row['activation']}" if "activation" in row else ""
    return f"{row['model']} {row['data']}{units}, decay {row['decay']:g}, {row['request']}"


def _after(gradients: int, row: Document) -> str | None:
    return number(dict(map(tuple, row["closed"])).get(gradients), "+.4f")


def blocks(found: dict[str, list[Document]]) -> Blocks:
    """What was found."""
    yield (
        "Wide models polished on from two seeds, at one weight decay. *Agreement*: 1 less the distance of the two, in "
        "units of what 60 gradients after the request change. Where it rises with the gradients the polish was short; "
        "where it does not, while the objectives come no nearer, the minima are several."
    )
    yield columns(
        found["rounds"],
        {
            "": _name,
            "gradients": lambda r: r["round"] * r["gradients"],
            "objective": lambda r: f"{r['objective']:.2f}",
            "other seed": lambda r: f"{r['other']:.2f}",
            "gradient": lambda r: f"{r['gradient_norm']:.2g}",
            "test F1": lambda r: f"{r['test_f1']:.3f}",
            "agreement": lambda r: number(r["agreement"], "+.3f"),
        },
    )
    done = [row for row in found["requests"] if row["how"] == "gif"]
    yield (
        "*Closed* by `gif` as it is, of the gap to a model retrained without the request and polished as long as the "
        "first was; its cost is a share of that retraining's passes."
    )
    yield columns(
        done,
        {
            "": _name,
            "polished": lambda r: r["round"] * r["gradients"],
            "gap": lambda r: f"{r['gap']:.1e}",
            "closed": lambda r: number(r["closed"], "+.4f"),
            "gradients": lambda r: r["evaluations"],
            "cost": lambda r: f"{r['passes'] / r['retrain_passes']:.1%}",
        },
    )
    yield "*Closed* by a restart that goes on, after so many gradients:"
    on = [row for row in found["requests"] if row["how"] != "gif"]
    named = {"": lambda r: f"{_name(r)}, polished for {r['round'] * r['gradients']}: {r['how']}"}
    yield columns(on, named | {str(count): partial(_after, count) for count in LOOKED})
    where = places(found["rounds"], "{device_name}, torch {torch}, PyG {torch_geometric}, commit {commit}")
    yield (
        "Measured by `python benchmarks/minima.py --device cuda --data DATA --model MODEL --decay DECAY "
        f"--gradients 300 --rounds 8 --minutes 3.3` and with `--rounds 3`, beside other work, on {where}."
    )


PAGE = Page("Several minima, or too few gradients", read, blocks)

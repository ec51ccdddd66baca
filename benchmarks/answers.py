"""Record the answers of unweave, and check that another version gives the same ones.

    python benchmarks/answers.py record FILE.json
    python benchmarks/answers.py check FILE.json [--found OTHER.json]

Every cell is a request, a stream of them or a question, on the embedded graph or on generated ones, in double precision
and on one thread. It keeps what the answer is, as a few projections of parameters and outputs, and every figure of the
receipt that does not depend on the clock. A refusal keeps the class of its error. ``check`` prints what differs by more
than rounding, and ends with 1 where that is no exception of the table below. ``--only gcn,own`` does some groups alone,
by the beginning of their names.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers_cells import GROUPS
from answers_interface import Refused, answered, plain

import unweave as uw

TOLERANCE, FLOOR = 1e-12, 1e-13

EXCEPTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "0.1.0": (
        (
            "refusals/twice",
            ".*",
            "a request of which nothing is left is no error: its receipt says that there was nothing to do",
        ),
        (
            "later/(stream|worn)/.*",
            r".*\.warnings: of the request .* earlier requests had taken .*",
            "what had gone already is the status and the reason of the request's own receipt, no note in the last one",
        ),
        (
            "own/sage-norm/(edges|nodes|mixed)/(gif|gif/prepared|if)",
            ".*",
            "running statistics are carried over, by two passes and before the step is solved, not taken anew after it",
        ),
        (
            "ladder/path/calibrated/both/edges",
            r"receipts\[0\]\.ladder\.estimate\.low",
            "rounding: the difference of two numbers near 1, off by 1.3e-13",
        ),
        (
            ".*",
            r".*\.warnings: the step did not solve its own problem: .*",
            "receipts warn wherever a step left a larger gradient of its local problem than it found, in these words",
        ),
        (
            ".*",
            r".*\.warnings: \d+ gradients lowered the local objective Q but left .*",
            "that warning has other words now, and looks at the gradient without damping, as the residual does",
        ),
    ),
}
"""What may differ from the record of a version: cells and figures as regular expressions, and why."""


def measure(only: str = "") -> dict[str, Any]:
    """All cells of the groups whose names begin so."""
    cells: dict[str, Any] = {}
    for group, make in GROUPS.items():
        if not group.startswith(tuple(only.split(","))):
            continue
        start, count = time.perf_counter(), len(cells)
        for name, cell in make():
            try:
                cells[f"{group}/{name}"] = plain(cell())
            except Refused as error:
                cells[f"{group}/{name}"] = {"refused": type(error).__name__}
            except Exception as error:  # a cell that breaks must not hide the others
                cells[f"{group}/{name}"] = {"raised": f"{type(error).__name__}: {error}"}
        print(f"{group:<12} {len(cells) - count:4} cells {time.perf_counter() - start:7.1f} s", file=sys.stderr)
    made_with = {"unweave": uw.__version__, "torch": torch.__version__, "numpy": np.__version__}
    made_with |= {"machine": platform.machine(), "cpu": torch.backends.cpu.get_cpu_capability()}
    return {"made_with": made_with, "requests": len(answered), "cells": cells}


def differences(known: Any, found: Any, at: str = "") -> Iterator[tuple[str, str, float]]:
    """Where two figures differ at all: the place, what differs, and by how much of the tolerance."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in {**known, **found}:
            there = f"{at}.{key}" if at else key
            if key == "warnings":
                yield from _said(known.get(key, []), found.get(key, []), there)
            elif key in known and key in found:
                yield from differences(known[key], found[key], there)
            else:
                yield there, "is missing" if key in known else "is new", math.inf
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for number, pair in enumerate(zip(known, found, strict=True)):
            yield from differences(*pair, f"{at}[{number}]")
    elif isinstance(known, float) and isinstance(found, float | int) and not isinstance(found, bool):
        if known != found:
            off = abs(known - found)
            share = off / max(TOLERANCE * max(abs(known), abs(found)), FLOOR)
            yield at, f"{known!r} → {found!r} ({off / max(abs(known), 1e-300):.1e} of it)", share
    elif known != found:
        yield at, f"{known!r} → {found!r}", math.inf


def _said(known: list[str], found: list[str], at: str) -> Iterator[tuple[str, str, float]]:
    """Texts that are no longer said, and new ones; each is a place of its own."""
    for text in dict.fromkeys([*known, *found]):
        if (text in known) != (text in found):
            yield f"{at}: {text}", "is not said" if text in known else "is new", math.inf


def excused(version: str, cell: str, figure: str) -> str | None:
    """Why a figure of a cell may differ from a record."""
    found = (
        why
        for cells, figures, why in EXCEPTIONS.get(version, ())
        if re.fullmatch(cells, cell) and re.fullmatch(figures, figure)
    )
    return next(found, None)


def check(known: dict[str, Any], found: dict[str, Any], only: str = "") -> int:
    """Compare two records; the number of cells that differ without being an exception."""
    version = known["made_with"]["unweave"]
    if known["made_with"] | {"unweave": ""} != found["made_with"] | {"unweave": ""}:
        print(f"recorded with {known['made_with']}, here {found['made_with']}: rounding may differ")
    old = {name: cell for name, cell in known["cells"].items() if name.startswith(tuple(only.split(",")))}
    wrong, other, nearly, largest = 0, 0, 0, 0.0
    reasons: dict[str, list[str]] = {}
    for name in {**old, **found["cells"]}:
        if name not in old:
            print(f"{name}: new")
            continue
        off = list(differences(old[name], found["cells"].get(name, {"missing": True})))
        beyond = [(where, what, excused(version, name, where)) for where, what, share in off if share > 1]
        largest = max([largest, *(share for _, _, share in off if share <= 1)])
        for where, what, why in beyond:
            if why is None:
                print(f"{name}: {where}: {what}")
            else:
                reasons.setdefault(why, []).append(name)
        unexcused = any(why is None for _, _, why in beyond)
        wrong, other = wrong + unexcused, other + bool(beyond and not unexcused)
        nearly += bool(off and not beyond)
    for why, names in reasons.items():
        print(f"exception: {why} ({len(set(names))} cells, e.g. {names[0]})")
    same = len(old) - wrong - other - nearly
    print(f"{same} of {len(old)} cells are the same to the bit, {nearly} more to {TOLERANCE:g}, {other} are exceptions")
    print(f"{wrong} differ; {found['requests']} requests; the most within the tolerance is {largest:.2g} of it")
    return wrong


def main() -> int:
    """Record, or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("record", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="groups whose names begin so, with commas between")
    parser.add_argument("--found", type=Path, help="check this record, instead of measuring")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"unweave of {Path(uw.__file__).parent}", file=sys.stderr)
    found = measure(given.only) if given.found is None else json.loads(given.found.read_text())
    if given.command == "check":
        return int(check(json.loads(given.file.read_text()), found, given.only) > 0)
    given.file.write_text(json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n")
    raised = [f"{name}: {cell['raised']}" for name, cell in found["cells"].items() if "raised" in cell]
    print(f"{len(found['cells'])} cells, {found['requests']} requests", *raised, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

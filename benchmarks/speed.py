"""Every target of speed, measured: what a request costs after ``prepare``, on small graphs and on large ones.

Usage: python benchmarks/speed.py --device cuda

Cells are written to one file for each machine as they are done, so that an interrupted run goes on where it stopped;
``--only NAME`` takes some of the measurements, ``--anew`` measures again what is there. The page ``README.md`` beside
the files has every target with what was measured, and is made from the files alone (``--page``).
"""

import argparse
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import speed_large
import speed_rows
import torch
from speed_page import page
from unweave.experiments.results import commit, rounded
from unweave.meter import find_device

from unweave.receipt import environment

RESULTS = Path(__file__).parent / "results" / "speed"


@dataclass(frozen=True)
class Measurement:
    """A set of cells that are measured alike.

    Attributes:
        measure: What is written for a cell, from its name and the device.
        cells: Their names.
        device: The only kind of device it makes sense on.
    """

    measure: Callable[[str, str], dict[str, Any]]
    cells: tuple[str, ...]
    device: str | None = None


def _cells(*parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(names) for names in product(*parts))


MEASUREMENTS = {
    "passes": Measurement(speed_rows.ordinary, _cells(speed_rows.MODELS, speed_rows.DATA)),
    "forgettable": Measurement(speed_rows.forgettable, _cells(("gcn",), speed_rows.DATA)),
    "request": Measurement(speed_rows.request, _cells(("ordinary", "forgettable"), speed_rows.MODELS, speed_rows.DATA)),
    "edge": Measurement(speed_large.edge, ("10000", "100000", "1000000")),
    "products": Measurement(speed_large.products, ("2.4e6 62e6",), "cuda"),
    "million": Measurement(speed_large.million, ("1e6 10e6",), "cpu"),
}


def machine_name(device: torch.device) -> str:
    """The file of a machine: ``cpu``, or the name of the GPU."""
    if device.type == "cpu":
        return "cpu"
    return torch.cuda.get_device_name(device).lower().replace("nvidia ", "").replace(" ", "-")


def read(out: Path) -> dict[str, dict[str, Any]]:
    """What was measured, by machine."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))}


def run(options: argparse.Namespace) -> None:
    """Measure what is missing, cell by cell."""
    device = find_device(options.device)
    name = options.name or machine_name(device)
    path = options.out / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for what, measurement in MEASUREMENTS.items():
        if (options.only and what not in options.only) or measurement.device not in (None, device.type):
            continue
        known = found.setdefault(what, {})
        for cell in measurement.cells:
            if options.cells and not all(word in cell.split() for word in options.cells):
                continue
            if cell in known and not options.anew and "error" not in known[cell]:
                continue
            start = perf_counter()
            try:
                result = measurement.measure(cell, options.device)
            except Exception as error:  # one cell that fails must not cost the others
                traceback.print_exc()
                result = {"error": f"{type(error).__name__}: {error}"}
            if device.type == "cuda":
                torch.cuda.empty_cache()
            known[cell] = rounded(result) | {
                "command": f"python benchmarks/speed.py --device {options.device} --only {what}",
                "commit": commit(),
                "environment": environment(device),
                "took_seconds": round(perf_counter() - start, 1),
            }
            path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            (options.out / "README.md").write_text(page(read(options.out)), encoding="utf-8")
            took = known[cell]["took_seconds"]
            print(f"{what} {cell}: {took} s{' FAILED' if 'error' in known[cell] else ''}", flush=True)


def main() -> None:
    """Measure what is missing and make the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", action="append", choices=tuple(MEASUREMENTS), help="may be repeated")
    parser.add_argument("--cells", action="append", help="only cells with this word, e.g. cora; may be repeated")
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    parser.add_argument("--name", help="of the machine's file; cpu, or the name of the GPU")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="make the page from the files there are")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.page:
        run(options)
    (options.out / "README.md").write_text(page(read(options.out)), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Every target of speed, measured: what a request costs after ``prepare``, on small graphs and on large ones.

Usage: python benchmarks/speed.py --device cuda

Cells are written to one file for each machine as they are done, so that an interrupted run goes on where it stopped;
``--only NAME`` takes some of the measurements, ``--anew`` measures again what is there. The page beside the files has
every target with what was measured, and is made from the files alone (``page.py``).
"""

import argparse
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from time import perf_counter

import speed_large
import speed_rows
import torch
from pages.speed import PAGE
from shared import Document, arguments, documents, made, write_document

from unweave._core.cost import find_device
from unweave.experiments.paper.results import rounded


@dataclass(frozen=True)
class Measurement:
    """A set of cells that are measured alike.

    Attributes:
        measure: What is written for a cell, from its name and the device.
        cells: Their names.
        device: The only kind of device it makes sense on.
    """

    measure: Callable[[str, str], Document]
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


def run(asked: argparse.Namespace) -> None:
    """Measure what is missing, cell by cell."""
    device = find_device(asked.device)
    name = asked.name or machine_name(device)
    found = documents(asked.out).get(name, {})
    for what, measurement in MEASUREMENTS.items():
        if (asked.only and what not in asked.only) or measurement.device not in (None, device.type):
            continue
        known = found.setdefault(what, {})
        for cell in measurement.cells:
            if asked.cells and not all(word in cell.split() for word in asked.cells):
                continue
            if cell in known and not asked.anew and "error" not in known[cell]:
                continue
            start = perf_counter()
            try:
                result = measurement.measure(cell, asked.device)
            except Exception as error:  # one cell that fails must not cost the others
                traceback.print_exc()
                result = {"error": f"{type(error).__name__}: {error}"}
            if device.type == "cuda":
                torch.cuda.empty_cache()
            took = round(perf_counter() - start, 1)
            command = f"python benchmarks/speed.py --device {asked.device} --only {what}"
            known[cell] = {**rounded(result), "command": command, **made(asked.device), "took_seconds": took}
            write_document(asked.out / f"{name}.json", found)
            print(f"{what} {cell}: {took} s{' FAILED' if 'error' in result else ''}", flush=True)


def main() -> None:
    """Measure what is missing and make the page."""
    parser = arguments(__doc__, "speed", device="cpu")
    parser.add_argument("--only", action="append", choices=tuple(MEASUREMENTS), help="may be repeated")
    parser.add_argument("--cells", action="append", help="only cells with this word, e.g. cora; may be repeated")
    parser.add_argument("--anew", action="store_true", help="measure again what is there")
    parser.add_argument("--name", help="of the machine's file; cpu, or the name of the GPU")
    asked = parser.parse_args()
    run(asked)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

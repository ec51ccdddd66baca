"""Cells of an experiment and what was measured on them, kept in one JSON file that can be added to.

A cell is one setting: data set, model, request, way of training, methods. Each seed is a trial. A file holds every
figure of every trial, with the settings, the environment and the commit that produced it, so that an interrupted run
goes on where it stopped and a page can be made from the files alone.
"""

import csv
import io
import json
import math
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from unweave._core.writing import write_whole
from unweave.errors import RunError, UnweaveError

__all__ = ["BEFORE", "Cell", "Measured", "Results", "commit", "rounded"]

FORMAT = "unweave-results-1"
BEFORE = "before"
"""The row of the trained model on the graph it was trained on."""

DIGITS = 5
"""Significant digits that are kept: the files are read by people too."""


@dataclass(frozen=True)
class Cell:
    """One setting.

    Attributes:
        data: Data set.
        model: Backbone.
        forget: Request.
        methods: Label and specification of each method under test; fine-tuning gets as long as the last.
        forgettable: Whether every model is trained to a minimum.
        epochs: Of training.
        lr: Learning rate.
        weight_decay: Weight decay; ``None`` until validation has chosen it.
    """

    data: str
    model: str
    forget: str
    methods: tuple[tuple[str, str], ...] = ()
    forgettable: bool = False
    epochs: int = 100
    lr: float = 0.01
    weight_decay: float | None = 1e-4

    @property
    def name(self) -> str:
        """What the cell is known by."""
        return f"{self.model} {self.data} {self.forget}" + (" forgettable" if self.forgettable else "")

    @property
    def config(self) -> dict[str, Any]:
        """What must be the same for two trials to belong together."""
        return {key: value for key, value in asdict(self).items() if key != "methods"}


@dataclass(frozen=True)
class Measured:
    """What one trial gave: figures by method, and the reasons of those that failed."""

    figures: Mapping[str, Mapping[str, float | None]]
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Entry:
    """A cell's trials: method → seed → figures, or the reason of a failure."""

    config: dict[str, Any]
    environment: dict[str, Any]
    elsewhere: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    commits: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, dict[int, dict[str, float | None]]] = field(default_factory=dict)
    failures: dict[str, dict[int, str]] = field(default_factory=dict)


class Results:
    """All cells of one experiment, in a JSON file and a CSV file beside it.

    Args:
        folder: Where the files are.
        experiment: Their name.
    """

    def __init__(self, folder: Path, experiment: str) -> None:
        self.path = folder / f"{experiment}.json"
        self.experiment = experiment
        self._entries: dict[str, _Entry] = {}
        if self.path.exists():
            self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def config(self, name: str) -> dict[str, Any]:
        """The settings of a cell."""
        return self._entries[name].config

    def environments(self) -> list[dict[str, Any]]:
        """Where cells and rows were measured, each once."""
        found = [e for entry in self._entries.values() for e in (entry.environment, *entry.elsewhere.values())]
        return [e for number, e in enumerate(found) if not any(_same(e, other) for other in found[:number])]

    def elsewhere(self, name: str, method: str) -> str | None:
        """The device of a row that was measured on another one than its cell."""
        entry = self._entries.get(name)
        return entry.elsewhere[method]["device_name"] if entry and method in entry.elsewhere else None

    def commits(self) -> list[str]:
        """Every commit that produced a figure."""
        rows = (row for entry in self._entries.values() for row in entry.commits.values())
        return sorted({commit for row in rows for commit in row})

    def known(self, cell: Cell) -> bool:
        """Whether trials of the cell, with these settings, are there."""
        entry = self._entries.get(cell.name)
        return entry is not None and entry.config == cell.config

    def measured(self, cell: Cell, seed: int) -> bool:
        """Whether a trial of the cell, with these settings, was done with a seed."""
        return self.known(cell) and any(seed in trials for trials in self._entries[cell.name].figures.values())

    def missing(self, cell: Cell, seed: int) -> tuple[tuple[str, str], ...]:
        """The methods of a cell that were not measured with a seed."""
        entry = self._entries.get(cell.name)
        if entry is None or entry.config != cell.config:
            return cell.methods
        return tuple(
            (label, spec)
            for label, spec in cell.methods
            if entry.settings.get(label) != spec
            or (seed not in entry.figures.get(label, {}) and seed not in entry.failures.get(label, {}))
        )

    def add(self, cell: Cell, seed: int, measured: Measured, environment: dict[str, Any], commit: str) -> None:
        """Take in a trial and write the files."""
        self.refuse_mixture(cell, measured.figures, environment)
        entry = self._entries.get(cell.name)
        if entry is None or entry.config != cell.config:
            entry = self._entries[cell.name] = _Entry(cell.config, environment)
        for label, spec in cell.methods:
            if entry.settings.get(label, spec) != spec:  # measured with other options: none of that counts
                for rows in (entry.figures, entry.failures, entry.commits, entry.elsewhere):
                    rows.pop(label, None)
            entry.settings[label] = spec
        for method, figures in measured.figures.items():
            if seed in entry.figures.get(method, {}):
                continue
            if not _same(environment, entry.environment):
                entry.elsewhere[method] = environment
            entry.figures.setdefault(method, {})[seed] = rounded(figures)
            _once(entry.commits.setdefault(method, []), commit)
        for method, reason in measured.failures.items():
            entry.failures.setdefault(method, {})[seed] = reason
            _once(entry.commits.setdefault(method, []), commit)
        self.write()

    def refuse_mixture(self, cell: Cell, methods: Iterable[str], environment: dict[str, Any]) -> None:
        """Times of two machines are no row: raise where one has been begun on another machine.

        Args:
            cell: The cell.
            methods: Its rows that are to be added to.
            environment: Where that would be.
        """
        if not self.known(cell):
            return
        entry, wanted = self._entries[cell.name], dict(cell.methods)
        for method in methods:
            there = entry.elsewhere.get(method, entry.environment)
            replaced = wanted.get(method, entry.settings.get(method)) != entry.settings.get(method)
            if entry.figures.get(method) and not replaced and not _same(environment, there):
                raise UnweaveError(
                    f"{self.path} has {len(entry.figures[method])} seeds of {method} on {cell.name} from "
                    f"{there.get('device_name')} with torch {there.get('torch')}, and this is "
                    f"{environment.get('device_name')} with torch {environment.get('torch')}; give another folder "
                    "(--out)"
                )

    def values(self, name: str, method: str, figure: str) -> list[float]:
        """A figure of a method for every seed that has it, in the order of the seeds."""
        entry = self._entries.get(name)
        trials = entry.figures.get(method, {}) if entry else {}
        found = (trials[seed].get(figure) for seed in sorted(trials))
        return [value for value in found if value is not None]

    def mean(self, name: str, method: str, figure: str) -> float | None:
        """The mean of a figure over the seeds."""
        return fmean(found) if (found := self.values(name, method, figure)) else None

    def median(self, name: str, method: str, figure: str) -> float | None:
        """The median of a figure over the seeds; for times, which have outliers."""
        return median(found) if (found := self.values(name, method, figure)) else None

    def std(self, name: str, method: str, figure: str) -> float | None:
        """The standard deviation of a figure over the seeds."""
        found = self.values(name, method, figure)
        return stdev(found) if len(found) > 1 else 0.0 if found else None

    def methods(self, name: str) -> list[str]:
        """Methods measured on a cell, in the order they were first named."""
        entry = self._entries[name]
        return list(dict.fromkeys([*entry.figures, *entry.failures]))

    def failures(self, name: str, method: str) -> dict[int, str]:
        """Why a method failed, by seed."""
        return self._entries[name].failures.get(method, {}) if name in self._entries else {}

    def trials(self, name: str) -> int:
        """How many seeds the row that has most has."""
        return max(len(self.seeds(name, method)) for method in self.methods(name))

    def seeds(self, name: str, method: str = "retrain") -> list[int]:
        """Seeds with which a method was measured, or failed."""
        entry = self._entries[name]
        return sorted({*entry.figures.get(method, {}), *entry.failures.get(method, {})})

    def write(self) -> None:
        """Write the JSON and the CSV file, each in one step."""
        document = {"format": FORMAT, "experiment": self.experiment, "cells": [self._cell(name) for name in self]}
        text = io.StringIO()
        columns = ("data", "model", "forget", "forgettable", "weight_decay", "method", "seeds", "failures")
        figures = ("f1", "gap_closed", "forget_gap_closed", "cost", "passes", "seconds", "prepare_seconds")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *(f"{key}_{part}" for key in figures for part in ("mean", "std"))])
        for cell in document["cells"]:
            for row in cell["rows"]:  # type: ignore[index]
                values = [row.get(f"{key}_{part}") for key in figures for part in ("mean", "std")]
                config = [cell["config"][key] for key in columns[:5]]  # type: ignore[index]
                writer.writerow([*config, row["method"], len(row["seeds"]), len(row["failures"]), *values])
        write_whole(self.path, "\n".join(_lines(document)) + "\n")
        write_whole(self.path.with_suffix(".csv"), text.getvalue())

    def _cell(self, name: str) -> dict[str, Any]:
        entry = self._entries[name]
        rows = []
        for method in self.methods(name):
            trials = entry.figures.get(method, {})
            seeds = sorted(trials)
            row: dict[str, Any] = {"method": method, "settings": entry.settings.get(method, method), "seeds": seeds}
            for figure in dict.fromkeys(key for seed in seeds for key in trials[seed]):
                row[figure] = [trials[seed].get(figure) for seed in seeds]
                row[f"{figure}_mean"] = rounded(self.mean(name, method, figure))
                row[f"{figure}_std"] = rounded(self.std(name, method, figure))
            row["commits"] = entry.commits.get(method, [])
            if method in entry.elsewhere:
                row["environment"] = entry.elsewhere[method]
            row["failures"] = {str(seed): reason for seed, reason in sorted(entry.failures.get(method, {}).items())}
            rows.append(row)
        return {
            "name": name,
            "config": entry.config,
            "environment": entry.environment,
            "rows": rows,
        }

    def _read(self) -> None:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r}")
            for cell in document["cells"]:
                entry = _Entry(cell["config"], cell["environment"])
                for row in cell["rows"]:
                    method, kept = row["method"], [key for key, value in row.items() if isinstance(value, list)]
                    kept.remove("commits")
                    entry.commits[method] = row["commits"]
                    entry.settings[method] = row["settings"]
                    if "environment" in row:
                        entry.elsewhere[method] = row["environment"]
                    for i, seed in enumerate(row["seeds"]):
                        figures = {key: row[key][i] for key in kept if key != "seeds"}
                        entry.figures.setdefault(method, {})[seed] = figures
                    for seed, reason in row["failures"].items():
                        entry.failures.setdefault(method, {})[int(seed)] = reason
                self._entries[cell["name"]] = entry
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise RunError(f"{self.path} does not hold results of this version: {error}; move it away") from error


def commit() -> str:
    """The commit of the source that is running, with ``+`` when it was changed; the version where there is none."""
    given = os.environ.get("UNWEAVE_COMMIT")
    if given:
        return given
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        tracked = git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if tracked and git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return version("unweave")


def _once(entries: list[str], entry: str) -> None:
    if entry not in entries:
        entries.append(entry)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("device_name", "torch"))


def rounded(value: Any) -> Any:
    """A document with five digits of every number, as people read the files too, and none for what is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """JSON with one line for each row, so that a change of one row is a change of one line."""
    head = {key: value for key, value in document.items() if key != "cells"}
    yield json.dumps(head)[:-1] + ', "cells": ['
    for number, cell in enumerate(document["cells"]):
        rest = {key: value for key, value in cell.items() if key != "rows"}
        yield ("," if number else "") + json.dumps(rest)[:-1] + ', "rows": ['
        yield ",\n".join(json.dumps(row, allow_nan=False) for row in cell["rows"])
        yield "]}"
    yield "]}"

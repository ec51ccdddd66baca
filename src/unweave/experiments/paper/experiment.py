"""What an experiment is: cells to measure, a way to measure one, and what to show of it."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unweave._core.cost import find_device
from unweave.experiments.making import data_maker, model_maker
from unweave.experiments.paper.results import BEFORE, Cell, Measured, Results
from unweave.experiments.trial import OTHER_SEED, Setting
from unweave.methods import Method
from unweave.training.recipe import Recipe

__all__ = [
    "FEW_SCALES",
    "PUBLISHED_SCALES",
    "Experiment",
    "Task",
    "behind",
    "best_published",
    "figure_name",
    "joined",
    "measure",
    "method_of",
    "number",
    "setting",
    "spread",
    "table",
]

PUBLISHED_SCALES = (500, 1000, 2000, 5000, 20000)
FEW_SCALES = (1000, 5000)
"""The paper tunes the scale by hand; tables show the best of these in hindsight, the figures of these few."""


@dataclass(frozen=True)
class Task:
    """One trial that is to be done: a cell with the methods that are missing, and a seed.

    ``controls`` says whether the controls are missing too.
    """

    experiment: str
    cell: Cell
    seed: int
    device: str
    root: str | None
    controls: bool = True


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        name: On the command line, and of its result files.
        cells: The cells; a small version of them for ``quick``.
        measure: How one trial of a cell is measured.
        section: The Markdown of its part of the page.
        draw: Draws its figures into a folder and returns them.
        open: Whether a method that is registered later can join.
        most_seeds: More are not measured, whatever is asked.
    """

    name: str
    cells: Callable[[bool], list[Cell]]
    measure: Callable[[Task], Measured]
    section: Callable[[Results], list[str]]
    draw: Callable[[Results, Path], list[Path]] | None = None
    open: bool = True
    most_seeds: int | None = None


def setting(task: Task, resolve: Callable[[str], str | Method] = str) -> Setting:
    """The setting of a task's trial.

    Args:
        task: What is to be done.
        resolve: Turns the specification of a method into a method, where its name is not registered.
    """
    cell = task.cell
    return Setting(
        data_maker(cell.data, task.root),
        model_maker(cell.model, cell.forgettable, wide=False),
        cell.forget,
        {label: resolve(spec) for label, spec in cell.methods},
        Recipe(epochs=cell.epochs, lr=cell.lr, weight_decay=cell.weight_decay or 0.0, forgettable=cell.forgettable),
        find_device(task.device),
        task.controls,
    )


RIVALS = {"none": "Doing nothing", "published": "The published procedure", "finetune": "Fine-tuning"}
SHOWN = 4
"""Cells that are named; more are only counted."""

_warm: set[tuple[str, str, bool, str]] = set()


def measure(task: Task, resolve: Callable[[str], str | Method] = str) -> Measured:
    """One trial: train, forget by every method, retrain, score."""
    trials = setting(task, resolve)
    cell = task.cell
    kind = (cell.data, cell.model, cell.forgettable, task.experiment)
    if kind not in _warm:
        trials.warm_up()
        _warm.add(kind)
    trial = trials.trial(task.seed, task.seed)
    return Measured(trial.figures | {BEFORE: {"f1": trial.f1_before}}, trial.failures)


def figure_name(experiment: str, part: str = "") -> str:
    """The file of a figure."""
    return f"results-{experiment}{'-' * bool(part)}{part}.png"


def best_published(results: Results, name: str, prefix: str = "gif-published") -> str | None:
    """The method of that prefix that closes most of the gap, among those that no seed saw fail."""
    found: dict[str, float] = {}
    for method in results.methods(name):
        closed = results.mean(name, method, "gap_closed")
        if method.startswith(prefix) and closed is not None and not results.failures(name, method):
            found[method] = closed
    return max(found, key=lambda method: found[method]) if found else None


def joined(results: Results, names: Iterable[str], known: Container[str]) -> list[str]:
    """Methods of some cells that joined by name: neither among those known nor a variant of the published procedure."""
    found = dict.fromkeys(method for name in names if name in set(results) for method in results.methods(name))
    own = (BEFORE, OTHER_SEED)
    return [m for m in found if m not in known and m not in own and not m.startswith("gif-published")]


def number(value: float | None, form: str = "+.2f") -> str:
    """A figure in a table."""
    if value is None:
        return "–"
    text = format(value, form)
    return text.replace("-", "−") if float(text.rstrip("%").replace(",", "")) else format(0.0, form)


def spread(results: Results, name: str, method: str, figure: str = "gap_closed", form: str = "+.2f") -> str:
    """Mean ± standard deviation over the seeds; what is far below 0 only as such."""
    mean, std = results.mean(name, method, figure), results.std(name, method, figure)
    if mean is None or std is None:
        return "–"
    text = "< −9" if mean < -9 else f"{number(mean, form)} ± {number(std, form.lstrip('+'))}"
    count, trials = len(results.values(name, method, figure)), results.trials(name)
    return text if count == trials else f"{text} ({count} of {trials} seeds)"


def method_of(results: Results, name: str, method: str) -> str:
    """The method of a row: for ``published`` the best of its scales, or one that was never measured."""
    return (best_published(results, name) or "") if method == "published" else method


def behind(results: Results, names: Sequence[str]) -> list[str]:
    """In which cells a rival closes more of the gap than gif, counted, one line a rival."""
    lines = []
    for rival, shown in RIVALS.items():
        ahead = []
        for name in names:
            other = results.mean(name, method_of(results, name, rival), "gap_closed")
            own = results.mean(name, "gif", "gap_closed")
            if other is not None and own is not None and other > own:
                ahead.append(f"{name.removesuffix(' forgettable')} ({number(other)} against {number(own)})")
        where = f": {', '.join(ahead)}" if 0 < len(ahead) <= SHOWN else ""
        lines.append(f"- {shown} closes more of the gap than gif in {len(ahead)} of {len(names)} cells{where}.")
    return lines


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows)]

"""Every table and figure of the paper with one call: measured, written down, drawn, and put on one page."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from unweave._core.cost import find_device
from unweave._core.writing import write_whole
from unweave.errors import MethodError, UnweaveError
from unweave.experiments.paper import ablation, efficacy, erasers, ratio, scale, setups, table2
from unweave.experiments.paper.experiment import Experiment, Task, setting
from unweave.experiments.paper.page import page
from unweave.experiments.paper.results import Cell, Measured, Results, commit
from unweave.experiments.trial import CONTROLS, OTHER_SEED
from unweave.methods import GIFPublished
from unweave.methods.registry import make, parse
from unweave.receipt.record import environment
from unweave.training.adam import Progress

__all__ = ["EXPERIMENTS", "Plan", "reproduce", "show", "text"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        table2.EXPERIMENT,
        efficacy.EXPERIMENT,
        ratio.EXPERIMENT,
        scale.EXPERIMENT,
        ablation.EXPERIMENT,
        setups.EXPERIMENT,
        erasers.EXPERIMENT,
    )
}


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        experiments: Names.
        seeds: Trials of each cell.
        quick: The small version on the embedded graph.
        only: Words that the name of a cell must hold, e.g. ``("cora", "gcn")``.
        methods: Further methods, with options where they differ from the defaults.
    """

    experiments: tuple[str, ...] = tuple(EXPERIMENTS)
    seeds: int = 10
    quick: bool = False
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.experiments if name not in EXPERIMENTS]
        if unknown:
            raise UnweaveError(f"unknown experiment {unknown[0]!r}; known: all, {', '.join(EXPERIMENTS)}")
        if self.seeds < 1:
            raise UnweaveError(f"seeds must be at least 1, got {self.seeds}")
        if not any(self.cells(name) for name in self.experiments):
            raise UnweaveError(f"no cell of {', '.join(self.experiments)} has all of: {' '.join(self.only)}")
        taking = [name for name in self.experiments if EXPERIMENTS[name].open]
        if self.methods and not taking:
            others = [name for name, experiment in EXPERIMENTS.items() if experiment.open]
            raise UnweaveError(f"{', '.join(self.experiments)} takes no further method; {', '.join(others)} do")
        for spec in self.methods:
            name, options = parse(spec)
            make(name, options)
            own = {label for e in taking for cell in EXPERIMENTS[e].cells(self.quick) for label, _ in cell.methods}
            if spec in own or spec in CONTROLS or name == GIFPublished.name:
                raise MethodError(
                    f"{spec!r} is part of the experiments already; further methods are those that are not"
                )

    def cells(self, experiment: str) -> list[Cell]:
        """The cells of an experiment that are wanted."""
        found = []
        for cell in EXPERIMENTS[experiment].cells(self.quick):
            words = [*cell.name.split(), "ordinary" * (not cell.forgettable)]
            if all(word in words for word in self.only):
                # Further methods come first: fine-tuning gets as long as the last.
                more = tuple((spec, spec) for spec in self.methods) if EXPERIMENTS[experiment].open else ()
                found.append(replace(cell, methods=(*more, *cell.methods)))
        return found


def reproduce(
    plan: Plan,
    out: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Results]:
    """Measure what is missing and write it to a folder, trial by trial.

    Args:
        plan: What to measure.
        out: Folder of the result files; trials that they hold are not repeated.
        device: ``cpu`` or ``cuda``.
        jobs: Processes that share the device. Times are then ratios under load.
        root: Data folder.
        progress: Called with (trials done, trials).
    """
    where = environment(find_device(device)) | {"processes": jobs}
    source, folder = commit(), None if root is None else str(root)
    cells = {name: plan.cells(name) for name in plan.experiments}
    with _alone(out), _pool(jobs, most=plan.seeds * sum(map(len, cells.values()))) as run:
        results = {name: Results(out, name) for name in plan.experiments}
        undecided = [
            Task(name, cell, 0, device, folder)
            for name in cells
            for cell in cells[name]
            if cell.weight_decay is None and not _decay(results[name], cell)
        ]
        chosen = {task.cell.name: decay for task, decay in run(_choose, undecided)}
        tasks = []
        for name, wanted in cells.items():
            for cell in wanted:
                decay = cell.weight_decay or _decay(results[name], cell) or chosen[cell.name]
                decided = replace(cell, weight_decay=decay)
                for seed in range(min(plan.seeds, EXPERIMENTS[name].most_seeds or plan.seeds)):
                    missing = results[name].missing(decided, seed)
                    if missing:
                        cut = replace(decided, methods=missing)
                        fresh = not results[name].measured(decided, seed)
                        rows = [label for label, _ in missing] + ([*CONTROLS, OTHER_SEED] if fresh else [])
                        results[name].refuse_mixture(decided, rows, where)
                        tasks.append(Task(name, cut, seed, device, folder, fresh))
        tasks.sort(key=_dearest_first)
        for done, (task, measured) in enumerate(run(_measure, tasks), start=1):
            results[task.experiment].add(task.cell, task.seed, measured, where, source)
            if progress is not None:
                progress(done, len(tasks))
    return results


def show(results: dict[str, Results], path: Path) -> list[Path]:
    """Write the page, then draw the figures beside it.

    Args:
        results: What was measured, by experiment.
        path: The page.
    """
    written = [write_whole(path, text(results))]
    for name, found in results.items():
        draw = EXPERIMENTS[name].draw
        if draw is not None and list(found):
            written += draw(found, path.parent)
    return written


def text(results: dict[str, Results]) -> str:
    """The page."""
    known = {name: found for name, found in results.items() if list(found)}
    return page(known, {name: EXPERIMENTS[name].section(found) for name, found in known.items()})


def _decay(results: Results, cell: Cell) -> float | None:
    """The weight decay that was chosen for a cell before."""
    if cell.name not in set(results):
        return None
    decay: float | None = results.config(cell.name)["weight_decay"]
    return decay if results.known(replace(cell, weight_decay=decay)) else None


def _choose(task: Task) -> tuple[Task, float]:
    return task, setting(replace(task, cell=replace(task.cell, methods=()))).chosen_decay()


def _measure(task: Task) -> tuple[Task, Measured]:
    return task, EXPERIMENTS[task.experiment].measure(task)


def _dearest_first(task: Task) -> tuple[bool, bool, bool]:
    """So that no process is left with a long one at the end."""
    cell = task.cell
    sharded = any("eraser" in spec for _, spec in cell.methods)
    return cell.data != "cs", not sharded, cell.model not in ("gat", "gin")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep two runs from writing to one folder; the lock goes with the process, however it ends."""
    try:
        import fcntl  # noqa: PLC0415 (not on every platform)
    except ImportError:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise UnweaveError(f"cannot write to {folder}: {error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UnweaveError(f"another run writes to {folder}; wait for it, or give another --out") from error
        yield


Run = Callable[[Callable[[Task], tuple[Task, Any]], Sequence[Task]], Iterator[tuple[Task, Any]]]


@contextmanager
def _pool(jobs: int, most: int) -> Iterator[Run]:
    """A way to run tasks: in this process, or in several that share the device, no more than have something to do."""
    if jobs < 1:
        raise UnweaveError(f"jobs must be at least 1, got {jobs}")
    if jobs == 1:
        yield map
        return
    spawned = multiprocessing.get_context("spawn")
    with spawned.Pool(min(jobs, most), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.imap_unordered

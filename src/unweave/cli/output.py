"""What every command shares: consoles, progress, tables, and errors without a traceback."""

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from unweave._core.text import printable
from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.experiments.compare import Comparison
    from unweave.run.peek import Peeked
    from unweave.run.run import Run
    from unweave.training.checkpoints import Checkpoint

__all__ = [
    "audit_table",
    "certified_in_words",
    "checkpoint_sizes",
    "comparison_table",
    "describe_checkpoints",
    "drawable",
    "in_place",
    "launched",
    "out",
    "plus_minus",
    "print_json",
    "progress_bar",
    "reports_errors",
    "say",
    "split_methods",
    "writable",
]

P = ParamSpec("P")


def out() -> Console:
    """Standard output: full width when not a terminal, so that nothing is folded in a file."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def say(text: str = "") -> None:
    """Print lines as they are; what a file had put in them to do something to a terminal is shown, not done."""
    if _speaks():
        out().print(printable(text, lines=True), markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """Print a document for scripts."""
    if _speaks():
        typer.echo(json.dumps(document, indent=1, allow_nan=False))


@contextmanager
def progress_bar(label: str, lines: int = 0) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; when that is not a terminal, so many lines in all."""
    console = Console(stderr=True)
    if not _speaks():
        yield lambda done, total: None
        return
    if not console.is_terminal:

        def tell(done: int, total: int) -> None:
            if lines and (done * lines) // total > ((done - 1) * lines) // total:
                typer.echo(f"{label}: {done} of {total}", err=True)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn an :class:`UnweaveError` into a reason on standard error and exit code 1.

    A folder that is no run is refused at once, before torch is imported. Where ``torchrun`` started several of a
    command they do it together, or not at all.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _ranks(command.__name__):
                if "run" in kwargs:
                    from unweave.run.manifest import read_manifest

                    read_manifest(Path(str(kwargs["run"])))
                command(*args, **kwargs)
        except UnweaveError as error:
            _complain(str(error), error)
            raise typer.Exit(1) from error
        except RuntimeError as error:
            from unweave._core.memory import no_memory

            told = no_memory(error)
            if told is None:
                raise
            _complain(str(told), told)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            _complain(str(error) or "interrupted; nothing was written", error)
            raise typer.Exit(1) from None

    return wrapped


SPREAD = ("train", "prepare", "forget", "verify", "audit")
"""Commands that several ranks do together."""


def launched() -> bool:
    """Whether ``torchrun`` started this as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _ranks(command: str) -> AbstractContextManager[None]:
    """Take part where ``torchrun`` started this."""
    if not launched():
        return nullcontext()
    if command not in SPREAD:
        refusal = UnweaveError(f"unweave {command} is done in one process; start it without torchrun")
        refusal.told = True  # each comes to it by itself
        raise refusal
    from unweave._core.ranks import ranks

    return ranks()


def _speaks() -> bool:
    """Whether this process is the one of several that is heard."""
    return not launched() or os.environ.get("RANK", "0") == "0"


def _complain(text: str, error: BaseException) -> None:
    """Say what went wrong: of what all ranks know the first one does."""
    if _speaks() or not getattr(error, "told", False):
        typer.echo(f"unweave: {printable(text, lines=True)}", err=True)


def in_place(command: Callable[P, None]) -> Callable[P, None]:
    """Let nobody else write a run from before a command opens it until it has saved it in its place.

    Two such commands wait for each other, so that what one of them did is there for the other.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        from unweave.run.lock import locked

        run, out = Path(str(kwargs["run"])), kwargs.get("out", kwargs["run"])
        here = out is not None and Path(str(out)).resolve() == run.resolve() and not kwargs.get("dry_run")
        writes = here and run.is_dir() and os.access(run.resolve().parent, os.W_OK)  # otherwise who saves will say so
        told = f"waiting for another process, which is writing {run}"
        with _held(lambda: locked(run, lambda: typer.echo(told, err=True)) if writes else nullcontext()):
            command(*args, **kwargs)

    return wrapped


def _held(lock: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
    """A lock that the first of several ranks holds for all."""
    if not launched():
        return lock()
    from unweave._core.ranks import first_holds

    return first_holds(lock)


def checkpoint_sizes(checkpoints: "tuple[Checkpoint, ...]") -> dict[str, Any]:
    """The epochs of checkpoints, and their bytes on disk."""
    from unweave.training.checkpoints import write_checkpoints

    size = sum(len(content) for content in write_checkpoints(checkpoints).values()) if checkpoints else 0
    return {"epochs": [state.epoch for state in checkpoints], "bytes": size}


def describe_checkpoints(checkpoints: "tuple[Checkpoint, ...]", epochs: int | None) -> str:
    """The same in words."""
    found = checkpoint_sizes(checkpoints)
    which = ", ".join(str(epoch) for epoch in found["epochs"])
    of = "" if epochs is None else f" of {epochs}"
    return f"{len(checkpoints)} (epoch {which}{of}), {found['bytes'] / 2**20:.2g} MiB on disk"


def certified_in_words(run: "Run | Peeked") -> str:
    """What a certified run promises, and the noise that its training took, where that is what was last done."""
    promise = None if run.training.recipe is None else run.training.recipe.certify
    epsilon, delta = promise or (0.0, 0.0)
    last = run.receipts[-1].certificate if run.receipts else None
    if run.receipts and (last is None or last["kind"] != "removal"):
        return (
            f"this model is not; trained for ({epsilon:g}, {delta:g})-certified removal, which method certified gives"
        )
    text = f"every model that method certified makes of this run is ({epsilon:g}, {delta:g})-certified removal"
    noise, residual = (run.metrics.get(name) for name in ("release_noise", "tolerance"))
    if noise is None or residual is None:
        return text
    return f"{text}; noise of {noise:.2g} a parameter hides a residual within {residual:.2g}"


def split_methods(text: str) -> list[str]:
    """Methods separated by commas, some with options in brackets."""
    return [name.strip() for name in re.findall(r"[^,(]+(?:\([^)]*\))?", text)]


def writable(path: Path | None) -> None:
    """Refuse a place that cannot be written before work is spent on what goes there."""
    if path is None:
        return
    if launched():
        from unweave._core.ranks import first

        first(lambda: _writable(path))
    else:
        _writable(path)


def _writable(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise UnweaveError(f"cannot write {path}: {error}") from error


def drawable(plot: Path | None) -> None:
    """Refuse a plot that cannot be drawn or written, before work is spent on what it shows."""
    if plot is not None and plot.suffix not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(f"--plot {plot} must end in .png, .pdf or .svg")
    writable(plot)


def comparison_table(comparison: "Comparison") -> Table:
    """The comparison as a table."""
    from unweave.experiments.compare import OTHER_SEED

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    failed = any(row["failures"] for row in comparison.rows)
    poisoned = "attack" in comparison.rows[0]
    key = comparison.config["metric"]
    heads = [
        comparison.metric,
        *["recovery", "attack"] * poisoned,
        "gap closed",
        "seed-averaged",
        "residual",
        "seconds",
        "cost",
    ]
    for column in (*heads, "passes", *["failed"] * failed):
        table.add_column(column, justify="right")
    for row in comparison.rows:
        table.add_row(
            row["method"],
            plus_minus(row[f"{key}_mean"], row[f"{key}_std"], "{:.3f}"),
            *([_number(row["recovery"], "{:+.2f}"), _number(row["attack"], "{:.3f}")] if poisoned else []),
            plus_minus(row["gap_closed_mean"], row["gap_closed_std"], "{:+.2f}"),
            _number(row["mean_gap_closed"], "{:+.2f}"),
            _number(row["residual_influence_mean"], "{:.2f}"),
            _number(row["seconds_mean"], "{:.3f}"),
            _number(row["cost_median"], "{:.1%}"),
            _number(row["passes_mean"], "{:.0f}"),
            *[str(row["failures"])] * failed,
            style="dim" if row["method"] == OTHER_SEED else None,
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def plus_minus(mean: float | None, spread: float | None, form: str) -> str:
    """A mean and its spread; a dash where there is none."""
    if mean is None:
        return "–"
    return form.format(mean) + (f" ± {spread:.2f}" if form.startswith("{:+") else f" ± {spread:.3f}")


def audit_table(comparison: "Comparison") -> Table:
    """What an audit of every method found: its verdict, and the numbers of the tests that ask whether it is gone."""
    tests = comparison.rows[-1]["audit"]["tests"]
    asked = [name for name, test in tests.items() if test["group"] in ("membership", "links", "exposure", "relearning")]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    table.add_column("verdict")
    for name in asked:
        table.add_column(f"{name} ({tests[name]['unit']})", justify="right")
    for row in comparison.rows:
        found = row["audit"]["tests"]
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in row["audit"]["verdicts"].items())
        table.add_row(row["method"], verdicts or "-", *(_audited(found.get(name)) for name in asked))
    means = [f"{tests[name]['retrained_mean']:.3g} ± {fmean(tests[name]['floor']):.2g}" for name in asked]
    table.add_row("retrained models", "", *means, style="dim")
    table.add_row("models with the data", "", *(f"{tests[name]['trained_mean']:.3g}" for name in asked), style="dim")
    return table


def _audited(test: dict[str, Any] | None) -> str:
    if test is None:
        return "-"
    text = f"{fmean(test['value']):.3g}"
    unusual = {"remembers", "differs"} & set(test["finding"])
    return f"{text}*" if unusual else text if test["separates"] else f"({text})"

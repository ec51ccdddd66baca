"""What ``forget`` and ``update`` share: a run goes in, a new one comes out, with receipts to tell of."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.cli.output import print_json, say
from unweave.errors import MethodError, RunError

if TYPE_CHECKING:
    from unweave.run.run import Run

__all__ = [
    "AllowClassLoss",
    "DryRun",
    "NewRun",
    "OldRun",
    "Options",
    "Overwrite",
    "Purge",
    "SkipInvalid",
    "Strict",
    "check_place",
    "method_options",
    "tell",
]

OldRun = Annotated[Path, typer.Argument(help="Folder of the run.")]
NewRun = Annotated[Path | None, typer.Option(help="Folder of the new run; not needed with --dry-run.")]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="Option of the method, e.g. steps=20; repeatable.")
]
AllowClassLoss = Annotated[
    bool, typer.Option("--allow-class-loss", help="Allow the last training node of a class to go.")
]
Purge = Annotated[
    bool, typer.Option("--purge", help="Remove or compute anew all else in the run that was made with what goes.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, at what cost and damage; write nothing.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse an answer that is worse than doing nothing, or that moved nothing.")
]
SkipInvalid = Annotated[bool, typer.Option("--skip-invalid", help="Go on where one is refused; its receipt says why.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the new run's folder when it exists.")]


def check_place(out: Path | None, *, dry_run: bool, overwrite: bool, again: str) -> None:
    """The new run has a place to go to that is free.

    Args:
        out: The folder.
        dry_run: Whether there will be none.
        overwrite: Whether what is there may go.
        again: The command by which a stream that was interrupted goes on.
    """
    if out is None and not dry_run:
        raise typer.BadParameter("say where the new run goes: --out FOLDER, or --dry-run for none at all")
    if out is not None and out.exists() and not overwrite:
        raise RunError(
            f"{out} exists already; choose another folder, or pass --overwrite (a stream that was interrupted goes on "
            f"with: {again} --out {out} --overwrite)"
        )


def method_options(option: list[str] | None) -> dict[str, Any]:
    """Options of a method as they are written on the command line."""
    from unweave.methods.registry import read_options

    try:
        return read_options(option or [])
    except MethodError as error:
        raise typer.BadParameter(str(error)) from error


def tell(
    before: "Run", after: "Run", written: dict[str, Any], *, called: str, several: bool, json: bool, where: str
) -> None:
    """The receipts of what was done, for people or for scripts.

    Args:
        before: The run before.
        after: The run after.
        written: What was written where, for scripts.
        called: What one of a stream is called.
        several: Whether it was a stream.
        json: For scripts.
        where: What was written where, for people.
    """
    from unweave.objective.scores import metric_of, named

    new, told = after.receipts[len(before.receipts) :], after.summary(len(before.receipts))
    if json:
        receipts = [receipt.to_dict() for receipt in new]
        last = next(r for r in reversed(receipts) if r["kind"] in ("request", "change"))
        document = written | {"metrics": dict(after.metrics), "summary": told.to_dict()}
        print_json(document | ({} if several else {"receipt": last}) | {"receipts": receipts})
        return
    for receipt in new:
        one = f"{called:<11}{receipt.id or str(receipt.request_digest)[:12]}  {receipt.verdict}"
        say(one if several else str(receipt))
    if several:
        say(str(told))
    metric = metric_of(after.state.base)
    scores = [f"{run.metrics[key]:.3f}" for run in (before, after) if (key := f"test_{metric}") in run.metrics]
    if len(scores) == 2:
        say(f"{f'Test {named(metric)}':<10} {' → '.join(scores)}")
    say(f"{'Written':<11}{where}")

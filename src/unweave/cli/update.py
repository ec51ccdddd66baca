"""``unweave update``: make the model of a run follow data that is added, corrected or deleted."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, Root
from unweave.cli.output import in_place, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import MethodError, RunError

__all__ = ["update"]

METHODS = "gif, retrain, finetune, none"


@reports_errors
@in_place
def update(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    change: Annotated[
        Path, typer.Option("--change", help="Change, a .json or .csv file; or a .jsonl file, one change a line.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the new run; not needed with --dry-run.")] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="File for the graph as it is then (.pt), as a run holds none: open it with --data FILE."),
    ] = None,
    method: Annotated[str | None, typer.Option(help=f"{METHODS}. By default gif.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="Option of the method, e.g. steps=20; repeatable.")
    ] = None,
    allow_class_loss: Annotated[
        bool, typer.Option("--allow-class-loss", help="Allow the last training node of a class to go.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove or compute anew all else in the run that was made with what goes.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen and at what cost; write nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse an answer that is worse than doing nothing, or that moved nothing.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Go on where a change is refused; its receipt says why.")
    ] = False,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the new run's folder when it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the model of a run follow data that is added, corrected or deleted, and write a new run."""
    from unweave.changes import Change
    from unweave.methods.registry import read_options

    if out is None and not dry_run:
        raise typer.BadParameter("say where the new run goes: --out FOLDER, or --dry-run for none at all")
    if out is not None and out.exists() and not overwrite:
        raise RunError(f"{out} exists already; choose another folder, or pass --overwrite")
    changes = Change.read_all(change)
    if dry_run and len(changes) > 1:
        raise typer.BadParameter("--dry-run looks at one change; give it alone")
    if graph is None and not dry_run and any(each.deletion is None for each in changes):
        raise typer.BadParameter(
            "say where the graph as it is then goes: --graph FILE.pt; a run holds no graph, and is opened with --data "
            "FILE.pt once data was added or corrected"
        )
    try:
        options = read_options(option or [])
    except MethodError as error:
        raise typer.BadParameter(str(error)) from error
    before = open_run(run, device=device, root=root, model=model, data=data)
    if dry_run:
        found = before.preview(
            changes[0], method, out=out, strict=strict, allow_class_loss=allow_class_loss, purge=purge, **options
        )
        print_json({"run": str(run), "plan": found.to_dict()}) if json else say(str(found))
        return
    with progress_bar("updating" + (f" by {method}" if method else "")) as progress:
        after = before.update(
            changes,
            method,
            out=out,
            graph=graph,
            strict=strict,
            skip_invalid=skip_invalid,
            allow_class_loss=allow_class_loss,
            purge=purge,
            progress=progress,
            **options,
        )
    new, told = after.receipts[len(before.receipts) :], after.summary(len(before.receipts))
    if json:
        receipts = [receipt.to_dict() for receipt in new]
        document = {"run": str(out), "graph": None if graph is None else str(graph), "metrics": dict(after.metrics)}
        print_json(document | {"summary": told.to_dict(), "receipts": receipts})
        return
    if len(changes) > 1:
        for receipt in new:
            say(f"{'Change':<11}{receipt.id or str(receipt.request_digest)[:12]}  {receipt.verdict}")
        say(str(told))
    else:
        for receipt in new:
            say(str(receipt))
    if "test_f1" in before.metrics and "test_f1" in after.metrics:
        say(f"{'Test F1':<11}{before.metrics['test_f1']:.3f} → {after.metrics['test_f1']:.3f}")
    say(f"{'Written':<11}{out}" + (f", and the graph to {graph}: open the run with --data {graph}" if graph else ""))

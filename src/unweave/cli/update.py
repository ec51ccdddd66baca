"""``unweave update``: make the model of a run follow data that is added, corrected or deleted."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unweave.cli import following
from unweave.cli.options import Device, Json, Root
from unweave.cli.output import in_place, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run

__all__ = ["update"]

METHODS = "gif, retrain, finetune, none"


@reports_errors
@in_place
def update(
    run: following.OldRun,
    change: Annotated[
        Path, typer.Option("--change", help="Change, a .json or .csv file; or a .jsonl file, one change a line.")
    ],
    out: following.NewRun = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="File for the graph as it is then (.pt), as a run holds none: open it with --data FILE."),
    ] = None,
    method: Annotated[str | None, typer.Option(help=f"{METHODS}. By default gif.")] = None,
    option: following.Options = None,
    allow_class_loss: following.AllowClassLoss = False,
    purge: following.Purge = False,
    dry_run: following.DryRun = False,
    strict: following.Strict = False,
    skip_invalid: following.SkipInvalid = False,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: following.Overwrite = False,
    json: Json = False,
) -> None:
    """Make the model of a run follow data that is added, corrected or deleted, and write a new run."""
    from unweave.changes import Change

    following.check_place(out, dry_run=dry_run, overwrite=overwrite, again=f"unweave update {out} --change …")
    changes = Change.read_all(change)
    if dry_run and len(changes) > 1:
        raise typer.BadParameter("--dry-run looks at one change; give it alone")
    if graph is None and not dry_run and any(each.deletion is None for each in changes):
        raise typer.BadParameter(
            "say where the graph as it is then goes: --graph FILE.pt; a run holds no graph, and is opened with --data "
            "FILE.pt once data was added or corrected"
        )
    how: dict[str, Any] = {"strict": strict, "allow_class_loss": allow_class_loss, "purge": purge}
    how |= following.method_options(option)
    before = open_run(run, device=device, root=root, model=model, data=data)
    if dry_run:
        found = before.preview(changes[0], method, out=out, **how)
        print_json({"run": str(run), "plan": found.to_dict()}) if json else say(str(found))
        return
    with progress_bar("updating" + (f" by {method}" if method else "")) as progress:
        after = before.update(
            changes, method, out=out, graph=graph, skip_invalid=skip_invalid, progress=progress, **how
        )
    following.tell(
        before,
        after,
        {"run": str(out), "graph": None if graph is None else str(graph)},
        called="Change",
        several=len(changes) > 1,
        json=json,
        where=f"{out}" + (f", and the graph to {graph}: open the run with --data {graph}" if graph else ""),
    )

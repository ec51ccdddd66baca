"""``unweave verify``: look at deferred requests on the whole graph, and check the last receipt again."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, MemoryMib, Root
from unweave.cli.output import in_place, print_json, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import NoProgressError

__all__ = ["verify"]


@reports_errors
@in_place
def verify(
    run: Annotated[Path, typer.Argument(help="Folder of the run; the receipt of the verification is added in place.")],
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Say what deferred requests were worth, by one evaluation on the remaining graph, in a receipt of its own."""
    from unweave.methods.deferred import BEYOND

    before = open_run(run, device=device, root=root, model=model, data=data)
    count = before.pending
    after = before.verify(memory_mib=memory_mib)
    if count:
        after.save(run, overwrite=True)
    receipts = after.receipts[len(before.receipts) :]
    if json:
        print_json(
            {
                "run": str(run),
                "verified": count,
                "metrics": dict(after.metrics),
                "receipts": [receipt.to_dict() for receipt in receipts],
            }
        )
    elif count:
        say(str(receipts[-1]))
        say(f"{'Verified':<11}{count} request{'s' * (count > 1)}, in {run}")
    elif after.receipts:
        say("Nothing is pending. The last receipt holds: its parameters and its objective are those of this run.")
    else:
        say("Nothing is pending: this run has forgotten nothing yet.")
    if receipts and BEYOND in receipts[-1].warnings:
        raise NoProgressError(f"{count} deferred request{'s' * (count > 1)}: {BEYOND} (--method retrain)")

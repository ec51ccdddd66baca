"""``unweave forget``: make the model of a run forget, and write a new run with the receipt."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Forget, Json, MemoryMib, Requests, RequestSeed, Root, request_reader
from unweave.cli.output import print_json, progress_bar, reports_errors, say
from unweave.errors import MethodError, RunError
from unweave.meter import find_device
from unweave.methods import available
from unweave.methods.registry import read_options
from unweave.request import Request
from unweave.run import Run

__all__ = ["forget"]


@reports_errors
def forget(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    out: Annotated[Path, typer.Option(help="Folder of the new run.")],
    request: Requests = None,
    forget: Forget = None,
    request_seed: RequestSeed = 0,
    method: Annotated[str, typer.Option(help=f"{', '.join(available())}.")] = "gif",
    budget: Annotated[
        str | None, typer.Option(help="For --method auto: at most this share of a retraining, e.g. 5%.")
    ] = None,
    at_least: Annotated[
        str | None, typer.Option(help="For --method auto: close at least this share of the gap, e.g. 0.9.")
    ] = None,
    batch: Annotated[bool, typer.Option("--batch", help="Carry the requests of a .jsonl file out as one.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="Option of the method, e.g. damping=10; repeatable."),
    ] = None,
    allow_class_loss: Annotated[
        bool, typer.Option("--allow-class-loss", help="Allow the last training node of a class to go.")
    ] = False,
    defer: Annotated[
        bool,
        typer.Option("--defer", help="One prepared step from its neighbourhood alone; unweave verify checks it later."),
    ] = False,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the new run's folder when it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the model of a run forget, and write a new run with the receipt."""
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists already; choose another folder, or pass --overwrite")
    stream = Request.read_all(request) if request is not None and request.suffix.lower() == ".jsonl" else []
    if batch and not stream:
        raise typer.BadParameter("--batch goes with --request FILE.jsonl, one request a line")
    wanted = request_reader(request, forget, request_seed)
    try:
        options = read_options(option or [])
    except MethodError as error:
        raise typer.BadParameter(str(error)) from error
    options |= {key: value for key, value in (("budget", budget), ("at_least", at_least)) if value is not None}
    before = Run.open(run, root=root).to(find_device(device))
    with progress_bar(f"forgetting by {method}") as progress:
        options |= {"allow_class_loss": allow_class_loss, "defer": defer, "memory_mib": memory_mib}
        if stream:
            after = before.forget_all(stream, method, batch=batch, out=out, progress=progress, **options)
        else:
            after = before.forget(wanted(before.data), method, **options)
            after.save(out, overwrite=overwrite)
    new = after.receipts[len(before.receipts) :]
    if json:
        told = {"receipts": [receipt.to_dict() for receipt in new]} if stream else {"receipt": new[-1].to_dict()}
        print_json({"run": str(out), "metrics": dict(after.metrics), **told})
        return
    for receipt in new if stream else ():
        rung = receipt.details.get("rung", receipt.method["name"])
        say(f"{'Request':<11}{Request.from_dict(receipt.request).describe()}: {rung}, {receipt.passes:g} passes")
    say(str(after.receipts[-1]))
    if "test_f1" in before.metrics and "test_f1" in after.metrics:
        say(f"{'Test F1':<11}{before.metrics['test_f1']:.3f} → {after.metrics['test_f1']:.3f}")
    say(f"{'Written':<11}{out}")

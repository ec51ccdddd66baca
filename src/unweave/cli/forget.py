"""``unweave forget``: make the model of a run forget, and write a new run with the receipt."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, Root
from unweave.cli.output import print_json, progress_bar, reports_errors, say
from unweave.drawing import draw
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
    request: Annotated[Path | None, typer.Option(help="Request, a .json or .csv file.")] = None,
    forget: Annotated[str | None, typer.Option(help="Random request, e.g. edges:0.05 or edges:0.05,nodes:0.1.")] = None,
    request_seed: Annotated[int, typer.Option(help="Seed of the random request.", min=0)] = 0,
    method: Annotated[str, typer.Option(help=f"{', '.join(available())}.")] = "gif",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="Option of the method, e.g. damping=10; repeatable."),
    ] = None,
    allow_class_loss: Annotated[
        bool, typer.Option("--allow-class-loss", help="Allow the last training node of a class to go.")
    ] = False,
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
    if (request is None) == (forget is None):
        raise typer.BadParameter("say what to forget: either --request FILE or --forget KIND:PROBABILITY")
    try:
        options = read_options(option or [])
    except MethodError as error:
        raise typer.BadParameter(str(error)) from error
    before = Run.open(run, root=root).to(find_device(device))
    wanted = Request.read(request) if request else draw(str(forget), before.data, seed=request_seed)
    with progress_bar(f"forgetting by {method}"):
        after = before.forget(wanted, method, allow_class_loss=allow_class_loss, **options)
    after.save(out, overwrite=overwrite)
    if json:
        print_json({"run": str(out), "metrics": dict(after.metrics), "receipt": after.receipts[-1].to_dict()})
        return
    say(str(after.receipts[-1]))
    if "test_f1" in after.metrics:
        say(f"{'Test F1':<11}{before.metrics['test_f1']:.3f} → {after.metrics['test_f1']:.3f}")
    say(f"{'Written':<11}{out}")

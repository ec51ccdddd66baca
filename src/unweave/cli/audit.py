"""``unweave audit``: is it gone? A run that was made to forget against retrained models, and a report."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.options import Device, Json, MemoryMib, Root
from unweave.cli.output import print_json, progress_bar, reports_errors, say, writable
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import RunError, UnweaveError

if TYPE_CHECKING:
    from unweave.auditing import Audit
    from unweave.run.run import Run

__all__ = ["audit"]

CODES = {"gone": 0, "remembers": 3, "differs": 3, "cannot tell": 4}
"""Exit code of each verdict."""


@reports_errors
def audit(
    run_before: Annotated[Path, typer.Argument(help="Folder of the run before the request.")],
    run_after: Annotated[Path, typer.Argument(help="Folder of the run that forget made of it.")],
    out: Annotated[Path, typer.Option(help="The report, one HTML file.")] = Path("audit.html"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Half of the training, the strongest tests left out; the report says which."),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Processes that train models; by default one a core, on CUDA one.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the models that are trained to compare with.", min=0)] = 0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps those models, to go on from; by default beside the report, *.models."),
    ] = None,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the report when it exists.")] = False,
    json: Json = False,
) -> None:
    """Is it gone? Test a run that was made to forget, and write a report.

    Exit code 0: gone, as far as the tests can see. 3: it still remembers, or differs from retraining. 4: the tests
    cannot tell. 1: refused or failed, with the reason. 2: wrong usage.
    """
    from unweave.auditing import write_report
    from unweave.run.audit import audit as audit_runs

    if out.exists() and not overwrite:
        raise UnweaveError(f"{out} exists already; choose another file with --out, or pass --overwrite")
    if run_before.resolve() == run_after.resolve():
        raise RunError(
            f"{run_before} is given twice. An audit needs the run before the request as well, and a run that was "
            "replaced in place (--overwrite) has none: forget into another folder and keep the old run until the audit "
            "is done; in Python, uw.audit takes any two models"
        )
    before, after = (
        open_run(path, device=device, root=root, model=model, data=data) for path in (run_before, run_after)
    )
    _follows(before, run_before, after, run_after)
    writable(out)
    models = out.with_suffix(".models") if cache is None else cache
    try:
        with progress_bar("training models to compare with", lines=4) as progress:
            found = audit_runs(
                before,
                after,
                quick=quick,
                seed=seed,
                jobs=_cores(device) if jobs is None else jobs,
                cache=models,
                memory_mib=memory_mib,
                progress=progress,
            )
    except KeyboardInterrupt:
        raise UnweaveError(f"interrupted; the same command goes on from the models in {models}") from None
    again = f"unweave audit {shlex.quote(str(run_before))} {shlex.quote(str(run_after))} --seed {seed}"
    write_report(found, out, models=models, command=f"{again}{' --quick' * quick} --json")
    if json:
        print_json({"report": str(out), "models": str(models), **found.to_dict()})
    else:
        _show(found, out, models)
    raise typer.Exit(CODES[found.verdict])


def _follows(before: "Run", here: Path, after: "Run", there: Path) -> None:
    """Refuse two runs of which the second was not made of the first by forgetting."""
    from unweave._core.digest import tensor_digest

    for run, path in ((before, here), (after, there)):
        if run.pending:
            raise RunError(f"{path} has deferred requests that are not verified; run `unweave verify {path}` first")
    old, new = ([receipt.request_digest for receipt in run.receipts] for run in (before, after))
    if len(new) < len(old) and old[: len(new)] == new:
        raise RunError(f"{here} has forgotten more than {there}; name the run before the request first")
    if len(new) == len(old) and new == old:
        raise RunError(f"{there} has forgotten nothing that {here} has not; there is nothing to audit")
    came = None if new[: len(old)] != old else after.receipts[len(old)].parameters["digest_before"]
    if came != tensor_digest(before.model.named_parameters()):
        raise RunError(
            f"{there} was not made from {here}: its receipts tell of other requests or of another model; give the run "
            "that it came from. In Python, uw.audit takes any two models"
        )


def _cores(device: str) -> int:
    from unweave._core.cost import find_device

    if find_device(device).type == "cuda":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _show(found: "Audit", report: Path, models: Path) -> None:
    say(str(found))
    say()
    say(f"{'Report':<11}{report}")
    say(f"{'Models':<11}{models} holds models trained with the deleted data; delete it when the audit is done")

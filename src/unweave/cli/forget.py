"""``unweave forget``: make the model of a run forget, and write a new run with the receipt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.cli.names import METHODS
from unweave.cli.options import Device, Forget, Json, MemoryMib, Requests, RequestSeed, Root, request_reader
from unweave.cli.output import in_place, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import DataError, EmptyRequestError, MethodError, RunError

if TYPE_CHECKING:
    from unweave.request import Request
    from unweave.run.run import Run

__all__ = ["forget"]


@reports_errors
@in_place
def forget(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the new run; not needed with --dry-run.")] = None,
    request: Requests = None,
    forget: Forget = None,
    request_seed: RequestSeed = 0,
    method: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(METHODS)}. By default gif; certified for a run trained with --certify."),
    ] = None,
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
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove or compute anew all else in the run that was made with what goes.")
    ] = False,
    screen: Annotated[
        bool, typer.Option("--screen", help="Refuse a request that would do more damage than random ones like it.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, at what cost and damage; write nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse an answer that is worse than doing nothing, or that moved nothing.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Go on where a request is refused; its receipt says why.")
    ] = False,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the new run's folder when it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the model of a run forget, and write a new run with the receipt."""
    from unweave.graph.index import is_undirected
    from unweave.methods.registry import read_options
    from unweave.request import Request

    if out is None and not dry_run:
        raise typer.BadParameter("say where the new run goes: --out FOLDER, or --dry-run for none at all")
    if out is not None and out.exists() and not overwrite:
        raise RunError(
            f"{out} exists already; choose another folder, or pass --overwrite (a stream that was interrupted goes on "
            f"with: unweave forget {out} --request … --out {out} --overwrite)"
        )
    stream = Request.read_all(request) if request is not None and request.suffix.lower() == ".jsonl" else []
    if batch and not stream:
        raise typer.BadParameter("--batch goes with --request FILE.jsonl, one request a line")
    if stream and dry_run and not batch:
        raise typer.BadParameter("--dry-run looks at one request; give it alone, or all of them as one with --batch")
    wanted = request_reader(request, forget, request_seed)
    try:
        options = read_options(option or [])
    except MethodError as error:
        raise typer.BadParameter(str(error)) from error
    wishes = {key: value for key, value in (("budget", budget), ("at_least", at_least)) if value is not None}
    if wishes and method not in (None, "auto"):
        raise typer.BadParameter(f"--budget and --at-least go with --method auto, not with {method}")
    method = "auto" if wishes else method
    options |= wishes
    before = open_run(run, device=device, root=root, model=model, data=data)
    how: dict[str, Any] = {
        "allow_class_loss": allow_class_loss,
        "defer": defer,
        "memory_mib": memory_mib,
        "purge": purge,
        **options,
    }
    if out is None or dry_run:
        asked = Request.merged(stream, undirected=is_undirected(before.data)) if stream else wanted(before.data)
        found = before.preview(asked, method, out=out, strict=strict, **how)
        damage, in_words = _screening(before, asked, memory_mib)
        document = {"run": str(run), "plan": found.to_dict(), "screening": damage}
        print_json(document) if json else say(f"{found}\n{in_words}")
        return
    with progress_bar("forgetting" + (f" by {method}" if method else "")) as progress:
        after = before.forget(
            stream or wanted(before.data),
            method,
            batch=batch,
            out=out,
            progress=progress,
            screen=screen,
            strict=strict,
            skip_invalid=skip_invalid,
            **how,
        )
    new, told = after.receipts[len(before.receipts) :], after.summary(len(before.receipts))
    if json:
        receipts = [receipt.to_dict() for receipt in new]
        last = next(r for r in reversed(receipts) if r["kind"] == "request")
        print_json(
            {
                "run": str(out),
                "metrics": dict(after.metrics),
                "summary": told.to_dict(),
                **({"receipts": receipts} if stream else {"receipt": last, "receipts": receipts}),
            }
        )
        return
    if stream:
        for receipt in new:
            say(f"{'Request':<11}{receipt.id or str(receipt.request_digest)[:12]}  {receipt.verdict}")
        say(str(told))
    else:
        for receipt in new:
            say(str(receipt))
    if "test_f1" in before.metrics and "test_f1" in after.metrics:
        say(f"{'Test F1':<11}{before.metrics['test_f1']:.3f} → {after.metrics['test_f1']:.3f}")
    say(f"{'Written':<11}{out}")


def _screening(run: "Run", request: "Request", memory_mib: float | None) -> tuple[dict[str, Any], str]:
    """Whether a request is out of the ordinary, for scripts and for people; why that is not known, where it is not."""
    try:
        if memory_mib is not None:
            raise MethodError("it looks at the whole graph at once; leave --memory-mib out")
        found = run.screen(request)
    except (DataError, MethodError, EmptyRequestError) as error:
        return {"refused": str(error)}, f"{'Screened':<11}not possible: {error}"
    return found.to_dict(), str(found)

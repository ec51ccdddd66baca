"""``unweave forget``: make the model of a run forget, and write a new run with the receipt."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweave.cli import following
from unweave.cli.names import METHODS
from unweave.cli.options import Device, Forget, Json, MemoryMib, Requests, RequestSeed, Root, request_reader
from unweave.cli.output import in_place, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import DataError, EmptyRequestError, MethodError

if TYPE_CHECKING:
    from unweave.request import Request
    from unweave.run.run import Run

__all__ = ["forget"]


@reports_errors
@in_place
def forget(
    run: following.OldRun,
    out: following.NewRun = None,
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
    option: following.Options = None,
    allow_class_loss: following.AllowClassLoss = False,
    defer: Annotated[
        bool,
        typer.Option("--defer", help="One prepared step from its neighbourhood alone; unweave verify checks it later."),
    ] = False,
    purge: following.Purge = False,
    screen: Annotated[
        bool, typer.Option("--screen", help="Refuse a request that would do more damage than random ones like it.")
    ] = False,
    dry_run: following.DryRun = False,
    strict: following.Strict = False,
    skip_invalid: following.SkipInvalid = False,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: following.Overwrite = False,
    json: Json = False,
) -> None:
    """Make the model of a run forget, and write a new run with the receipt."""
    from unweave.graph.index import is_undirected
    from unweave.request import Request

    following.check_place(out, dry_run=dry_run, overwrite=overwrite, again=f"unweave forget {out} --request …")
    stream = Request.read_all(request) if request is not None and request.suffix.lower() == ".jsonl" else []
    if batch and not stream:
        raise typer.BadParameter("--batch goes with --request FILE.jsonl, one request a line")
    if stream and dry_run and not batch:
        raise typer.BadParameter("--dry-run looks at one request; give it alone, or all of them as one with --batch")
    wanted = request_reader(request, forget, request_seed)
    options = following.method_options(option)
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
    written = {"run": str(out)}
    following.tell(before, after, written, called="Request", several=bool(stream), json=json, where=str(out))


def _screening(run: "Run", request: "Request", memory_mib: float | None) -> tuple[dict[str, Any], str]:
    """Whether a request is out of the ordinary, for scripts and for people; why that is not known, where it is not."""
    try:
        if memory_mib is not None:
            raise MethodError("it looks at the whole graph at once; leave --memory-mib out")
        found = run.screen(request)
    except (DataError, MethodError, EmptyRequestError) as error:
        return {"refused": str(error)}, f"{'Screened':<11}not possible: {error}"
    return found.to_dict(), str(found)

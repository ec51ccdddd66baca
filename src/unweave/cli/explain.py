"""``unweave explain``: which forces, and which nodes, would move the model of a run."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Forget, Json, RequestFile, RequestSeed, Root, request_reader
from unweave.cli.output import drawable, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import UnweaveError

__all__ = ["explain"]


@reports_errors
def explain(
    run: Annotated[Path, typer.Argument(help="Folder of the run; it stays as it is.")],
    request: RequestFile = None,
    forget: Forget = None,
    request_seed: RequestSeed = 0,
    damping: Annotated[float | None, typer.Option(help="Damping of the step; by default what gif chooses.")] = None,
    top: Annotated[int, typer.Option(help="How many nodes to name for each force.", min=1)] = 5,
    confirm: Annotated[
        bool, typer.Option(help="Also carry it out by gif, in memory: what it did, beside what was predicted.")
    ] = True,
    plot: Annotated[Path | None, typer.Option(help="Draw the forces and who feels them, e.g. explain.png.")] = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Explain a request: the forces and the nodes that would move the model. Nothing is forgotten."""
    from unweave.experiments.plots import plot_explanation
    from unweave.inspection.explain import explain as explain_request

    wanted = request_reader(request, forget, request_seed)
    drawable(plot)
    opened = open_run(run, device=device, root=root, model=model, data=data)
    asked, after, refused = wanted(opened.data), None, ""
    with progress_bar("explaining"):
        if confirm:
            try:
                after = opened.forget(asked, "gif", allow_class_loss=True).model
            except UnweaveError as error:  # what pulls can be told all the same
                refused = str(error)
        found = explain_request(
            opened.model,
            opened.data,
            asked,
            weight_decay=opened.recipe.weight_decay,
            loss=opened.loss,
            forward=opened.forward,
            damping=damping,
            top=top,
            after=after,
        )
    if plot:
        plot_explanation(found, plot)
    if json:
        print_json(found.to_dict())
        return
    say(str(found))
    if refused:
        say(f"{'Not done':<12}gif does not carry it out, so nothing actual is told: {refused}")
    if plot:
        say(f"{'Written':<12}{plot}")

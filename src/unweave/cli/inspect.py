"""``unweave inspect``: which part of the graph did this, and what if it were gone?"""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, Root
from unweave.cli.output import drawable, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import RequestError

__all__ = ["inspect"]


@reports_errors
def inspect(
    run: Annotated[Path, typer.Argument(help="Folder of the run; it stays as it is.")],
    of: Annotated[
        str,
        typer.Option(help="What is asked about: validation, node:17 (its margin) or class:3 (its loss)."),
    ] = "validation",
    top: Annotated[int, typer.Option(help="How many items of each kind to name.", min=1)] = 10,
    kinds: Annotated[
        str, typer.Option(help="Which: nodes, labels, edges, features (columns) and rows (the features of a node).")
    ] = "nodes,labels,edges,features",
    confirm: Annotated[
        int, typer.Option(help="Forget so many of the most influential items, and tell what that really does.", min=0)
    ] = 5,
    by: Annotated[str, typer.Option(help="How --confirm forgets: gif or retrain.")] = "gif",
    rehearse: Annotated[
        str | None,
        typer.Option(help="Forget a dozen nodes, labels, edges, features or rows, and tell how near such scores are."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the neighbourhood, e.g. inspect.png.")] = None,
    hops: Annotated[
        int | None, typer.Option(help="Message-passing steps, where the layers do not tell.", min=0)
    ] = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Inspect a model: what a quantity would be without each node, label, edge and feature. Nothing is removed."""
    from unweave.experiments.neighbourhood import plot_inspection
    from unweave.inspection.scores import KINDS

    drawable(plot)
    wanted = [kind for kind in KINDS if kind in kinds.split(",")]
    if set(kinds.split(",")) - set(wanted):
        raise RequestError(f"--kinds must be of {', '.join(KINDS)}, separated by commas, got {kinds!r}")
    if rehearse is not None and rehearse not in KINDS:
        raise RequestError(f"--rehearse must be one of {', '.join(KINDS)}, got {rehearse!r}")
    opened = open_run(run, device=device, root=root, model=model, data=data)
    with progress_bar("inspecting") as progress:
        found = opened.inspect(of, hops=hops, progress=progress)
        told, table = found.to_dict(wanted, k=top), found.table(wanted, k=top)
        if plot:
            plot_inspection(found, plot)
    proof = None
    if confirm:
        with progress_bar("confirming"):
            proof = found.confirm(confirm, wanted, method=by, recipe=opened.training.recipe)
    tried = None
    if rehearse is not None:
        with progress_bar("rehearsing"):
            tried = found.rehearse(rehearse)
    if json:
        more = {"confirmed": proof, "rehearsed": tried}
        print_json(told | {key: value.to_dict() for key, value in more.items() if value is not None})
        return
    say(table)
    if proof is not None:
        say(str(proof))
    if tried is not None:
        say(f"{'Rehearsed':<12}{tried}")
    if plot:
        say(f"{'Written':<10}{plot}")

"""``unweave repair``: find wrong labels, edges and features, forget them, keep what helps."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, Root
from unweave.cli.output import print_json, progress_bar, reports_errors, say, writable
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import RunError

__all__ = ["repair"]


def _check_places(run: Path, out: Path, graph: Path | None, data: str | Path | None, *, overwrite: bool) -> None:
    """Nothing that is there is replaced unasked, and what the repair begins with never."""
    if out.resolve() == run.resolve():
        raise RunError(f"--out {out} is the run that is repaired, which stays as it is; choose another folder")
    written = graph or out.with_name(f"{out.name}.pt")
    if data is not None and written.resolve() == Path(data).resolve():
        raise RunError(f"{written} is the graph of the run, which stays as it is; choose another file with --graph")
    for place in (out, written):
        if place.exists() and not overwrite:
            raise RunError(f"{place} exists already; choose another one, or pass --overwrite")


@reports_errors
def repair(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    out: Annotated[Path, typer.Option(help="Folder of the repaired run; the one before stays as it is.")],
    report: Annotated[Path | None, typer.Option(help="File for the report (.html).")] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="File for the repaired graph (.pt); by default OUT.pt where a label changed."),
    ] = None,
    kinds: Annotated[str, typer.Option(help="What to look for.")] = "triggers,labels,edges,features",
    false_share: Annotated[
        float | None,
        typer.Option(
            help="Largest share of what is proposed that may be expected to be right as it is; by default 0.1 of "
            "triggers, 0.5 of labels and features, 0.95 of edges."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Most rounds; it ends when one keeps nothing.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Deals nodes into folds and halves.", min=0)] = 0,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the new run's folder when it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Find wrong labels, edges and features, forget or correct them, keep only what helps on validation nodes."""
    from unweave.datasets.own import writing_graph
    from unweave.repairing import repair as repair_run, write_report

    _check_places(run, out, graph, data, overwrite=overwrite)
    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"--report {report} must end in .html")
    writable(report)
    before = open_run(run, device=device, root=root, model=model, data=data)
    with progress_bar("repairing") as progress:
        found = repair_run(
            before,
            kinds=[kind.strip() for kind in kinds.split(",")],
            false_share=false_share,
            rounds=rounds,
            seed=seed,
            progress=progress,
        )
    if graph is None and found.corrected:
        graph = out.with_name(f"{out.name}.pt")
    if graph is not None:
        with writing_graph(found.data, graph):
            found.run.save(out, overwrite=overwrite)
    else:
        found.run.save(out, overwrite=overwrite)
    if report is not None:
        write_report(found, report)
    if json:
        files = {"run": str(out), "graph": graph and str(graph), "report": report and str(report)}
        print_json(files | found.to_dict())
        return
    say(str(found))
    say(f"{'Written':<11}{out}" + (f", and the graph to {graph}: open the run with --data {graph}" if graph else ""))
    if report is not None:
        say(f"{'Report':<11}{report}")

"""``unweave rehearse``: try a deletion on a run, and say how near it comes to retraining."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, RequestSeed, Root
from unweave.cli.output import print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run

__all__ = ["rehearse"]


@reports_errors
def rehearse(
    run: Annotated[Path, typer.Argument(help="Folder of the run; it stays as it is.")],
    forget: Annotated[str, typer.Option(help="Random request, e.g. edges:0.05.")] = "nodes:0.05",
    request_seed: RequestSeed = 0,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Rehearse a deletion: how near would this model come to retraining? It costs two retrainings."""
    opened = open_run(run, device=device, root=root, model=model, data=data)
    with progress_bar("rehearsing"):
        found = opened.rehearse(forget, seed=request_seed)
    if json:
        print_json(asdict(found) | {"verdict": found.verdict})
        return
    say(f"{'Rehearsed':<11}{forget}")
    say(f"{'gif':<11}closes {_share(found.gap_closed)} of the gap to retraining, at {found.cost:.1%} of its cost")
    say(f"{'Other seed':<11}a model retrained from another seed closes {_share(found.other_seed)}")
    say(f"{'Verdict':<11}{found.verdict}")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"

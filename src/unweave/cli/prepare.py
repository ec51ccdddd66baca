"""``unweave prepare``: compute once, after training, what makes every later request cheap."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Device, Json, MemoryMib, Root
from unweave.cli.output import in_place, print_json, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run

__all__ = ["prepare"]


@reports_errors
@in_place
def prepare(
    run: Annotated[Path, typer.Argument(help="Folder of the run; the state is written into it.")],
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Prepare a run once, so that forgetting costs a few gradients."""
    ready = open_run(run, device=device, root=root, model=model, data=data).prepare(memory_mib=memory_mib)
    state = ready.prepared
    assert state is not None
    ready.save(run, overwrite=True)
    size = sum(len(content) for content in state.to_files().values())
    if json:
        print_json(
            {
                "run": str(run),
                "at_minimum": state.at_minimum,
                "damping": state.damping,
                "stationarity": state.stationarity,
                "rank": state.curvature.values.numel(),
                "bytes": size,
                "seconds": state.seconds,
                "passes": state.passes,
            }
        )
        return
    say(f"{'Prepared':<11}{run}: {state.curvature.values.numel()} directions of curvature, {size / 2**20:.1f} MiB")
    say(f"{'Cost':<11}{state.seconds:.3g} s, {state.passes} passes over the graph")
    where = (
        "training ended at a minimum" if state.at_minimum else f"no minimum: steps are damped by {state.damping:.3g}"
    )
    say(f"{'Model':<11}{where}")

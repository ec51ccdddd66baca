"""``unweave calibrate``: measure once, on simulated deletions, what every way to forget is worth on a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unweave.cli.names import DELETIONS
from unweave.cli.options import Device, Json, MemoryMib, Root
from unweave.cli.output import in_place, out, print_json, progress_bar, reports_errors, say
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run
from unweave.errors import MethodError

if TYPE_CHECKING:
    from unweave.methods.ladder.calibration import Calibration
    from unweave.methods.ladder.size import Shape
    from unweave.run.run import Run

__all__ = ["calibrate"]

SIZES = (0.001, 0.01, 0.1)
"""Sizes of request that the table shows."""

LOWEST = -10.0
"""The gap closed below which the table tells no figure."""


@reports_errors
@in_place
def calibrate(
    run: Annotated[Path, typer.Argument(help="Folder of the run; what is found is written into it.")],
    deletions: Annotated[
        int, typer.Option(help="Simulated deletions in all; those measured before are kept.", min=1)
    ] = DELETIONS,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the simulated deletions; by default that of those there are.", min=0)
    ] = None,
    memory_mib: MemoryMib = None,
    device: Device = "cpu",
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Measure on simulated deletions what every way to forget closes and costs; --method auto chooses by it."""
    opened = open_run(run, device=device, root=root, model=model, data=data)
    known = opened.calibration
    if known is not None and known.requests != len(opened.receipts) and not json:
        say(f"{'Anew':<11}the calibration there was is of the model before the last request")
    with progress_bar("calibrating", lines=4) as progress:
        done = opened.calibrate(
            deletions,
            seed=seed,
            memory_mib=memory_mib,
            progress=progress,
            keep=lambda now: _save(now, run),
        )
    _save(done, run)
    found = done.calibration
    assert found is not None
    if json:
        print_json({"run": str(run), **_summary(found)})
        return
    say(f"{'Calibrated':<11}{run}: {len(found.told)} of {len(found.deletions)} simulated deletions had a gap to close")
    out().print(_table(found))
    say(f"{'':<11}gap closed: 1 as if retrained, 0 as if nothing was done, below 0 farther from retraining than that")
    if found.factor != 1:
        say(f"{'Damping':<11}{found.factor:.3g} times the prepared one serves best, and is used from now on")
    say(f"{'Cost':<11}{found.seconds:.3g} s once, {found.retrainings:.1f} times a retraining")
    say(f"{'Gain':<11}{_gain(done)}")
    say(f"{'Held back':<11}{_held_back(found)}")


def _save(run: "Run", path: Path) -> None:
    run.save(path, overwrite=True)


def _shapes() -> "list[tuple[str, Shape]]":
    from unweave.methods.ladder.size import Shape
    from unweave.request import KINDS

    return [(f"{kind}:{size:g}", Shape(**{kind: size})) for size in SIZES for kind in KINDS]


def _summary(found: "Calibration") -> dict[str, object]:
    return {
        "deletions": len(found.deletions),
        "with_a_gap": len(found.told),
        "damping_factor": found.factor,
        "seconds": found.seconds,
        "retrainings": found.retrainings,
        "held_back": found.held_back,
        "rungs": {
            str(rung): {
                "cost": found.typical_cost(rung),
                "failed": found.failed(rung),
                "closed": {
                    name: {"estimate": e.closed, "low": e.low, "high": e.high}
                    for name, e in ((name, found.estimate(rung, shape)) for name, shape in _shapes())
                },
            }
            for rung in found.rungs
        },
    }


def _table(found: "Calibration") -> Table:
    """What each rung is believed to close, by kind and size."""
    from unweave.methods.ladder.size import Shape
    from unweave.request import KINDS

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rung")
    table.add_column("cost", justify="right")
    for size in SIZES:
        table.add_column(f"{size:.1%} of {', '.join(KINDS)}", justify="right")
    for rung in found.rungs:
        cells = [
            " ".join(_share(found.estimate(rung, Shape(**{kind: size})).closed) for kind in KINDS) for size in SIZES
        ]
        table.add_row(str(rung), f"{found.typical_cost(rung):.1%}", *cells)
    return table


def _share(closed: float) -> str:
    """A gap closed in as many places as any other; how much worse than nothing does not matter beyond ten times."""
    return f"{closed:+.2f}" if closed > LOWEST else f"< {LOWEST:.0f}"


def _gain(run: "Run") -> str:
    """What ``--method auto`` would do about 1% of the edges, and after how many such requests calibrating is paid."""
    from unweave.methods.ladder.auto import Auto
    from unweave.methods.ladder.size import Shape

    known = run.calibration
    assert known is not None
    if not known.told:
        return "none: no simulated deletion had a gap to close, so nothing was learnt"
    kept = {"prepared": run.prepared, "checkpoints": run.checkpoints, "receipts": run.receipts}
    try:
        first = Auto.from_recipe(run.recipe, calibration=known, **kept).first(Shape(edges=0.01))
    except MethodError as error:
        return f"none for 1% of the edges: {error}"
    assert first.cost is not None
    saved = 1 - first.cost
    paid = f": calibrating is paid for after {known.retrainings / saved:.0f} requests" if saved > 0 else ""
    return (
        f"for 1% of the edges --method auto takes {first.rung}, believed to close {first.estimate} of the gap, and "
        f"saves {saved:.0%} of a retraining{paid}"
    )


def _held_back(found: "Calibration") -> str:
    figures = found.held_back
    if not figures:
        return f"too few deletions to hold any back; {len(found.told)} had a gap, raise --deletions"
    return (
        f"predicted without them, a quarter at a time, estimates were off by {figures['error']:.2f} (median of "
        f"{figures['tested']:.0f}) and the 90 % intervals held in {figures['coverage']:.0%}"
    )

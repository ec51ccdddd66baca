"""``unweave bench``: what a request costs, against retraining, the published procedure and the physical floor."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from unweave.cli.names import LEAST_ROUNDS
from unweave.cli.options import (
    DataName,
    Device,
    Epochs,
    Forgettable,
    Json,
    LearningRate,
    ModelName,
    Root,
    Seed,
    WeightDecay,
)
from unweave.cli.output import out as console, print_json, progress_bar, reports_errors, say, writable

if TYPE_CHECKING:
    from unweave.experiments.bench import Bench

__all__ = ["bench"]

LEGEND = (
    "of retraining  time / time of retraining by the same recipe, median over rounds in which every method runs once",
    "faster         times as fast as the published procedure on PyG's layers, as published, likewise",
    "fast layers    the published procedure on the layers that all others here use",
    "floor          time / the least that its passes can take: bytes and operations over this machine's measured rates",
    "gap closed     of the distance to the model retrained with the same seed: 0 = doing nothing, 1 = that very model",
)


@reports_errors
def bench(
    data: DataName = "demo",
    model: ModelName = "gcn",
    forget: Annotated[str, typer.Option(help="Random request, e.g. edges:0.05.")] = "edges:0.05",
    repeats: Annotated[int, typer.Option(help="Rounds that count, after one to warm up.", min=LEAST_ROUNDS)] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    epochs: Epochs = 100,
    lr: LearningRate = 0.01,
    weight_decay: WeightDecay = None,
    forgettable: Forgettable = False,
    seed: Seed = 0,
    device: Device = "cpu",
    root: Root = None,
    json: Json = False,
) -> None:
    """Time a request by every method in turns, with what it achieves and the physical floor beside it."""
    from unweave.experiments.bench import bench as run_bench

    writable(out)
    with progress_bar("rounds") as progress:
        result = run_bench(
            data,
            model,
            forget,
            repeats=repeats,
            epochs=epochs,
            lr=lr,
            weight_decay=weight_decay,
            forgettable=forgettable,
            seed=seed,
            device=device,
            root=root,
            progress=progress,
        )
    if out:
        result.save(out)
    if json:
        print_json(result.to_dict())
        return
    _show(result)
    if out:
        say(f"wrote {out}")


def _show(result: "Bench") -> None:
    config, once = result.config, result.once
    way = "trained to a minimum" if config["forgettable"] else "ordinary training"
    say(f"{config['model']} on {config['data']}, {way}, forgetting {config['forget']}, {config['repeats']} rounds")
    say()
    console().print(_table(result))
    say()
    for line in LEGEND:
        say(line)
    say(f"gif-published  as in the paper, with scale {config['published_scale']:g}")
    say()
    for row in result.rows:
        if row["failure"] is not None:
            say(f"{row['method']} failed, its time is the time to fail: {row['failure']}")
    say(
        f"prepare once: {once['prepare_of_training']:.2f} times its training "
        f"({once['prepare_passes']} passes, training {once['training_passes']})"
    )
    if "polish_of_adam" in once:
        say(
            f"polish once: {once['polish_of_adam']:.1f} times its {config['epochs']} epochs of Adam "
            f"({once['polish_passes']} passes), to {once['stationarity']:.2g} of the objective"
        )
    if "inspect_of_training" in once:
        say(
            f"inspect all nodes and edges: {once['inspect_of_training']:.1%} of its training "
            f"({once['inspect_passes']:.0f} passes)"
        )
    machine = result.machine
    say(
        f"{result.environment['device_name']}: {machine['bytes_per_second'] / 1e9:.1f} GB/s, "
        f"{machine['operations_per_second'] / 1e9:,.0f} GFLOP/s, measured here"
    )


def _table(result: "Bench") -> Table:
    """Milliseconds on a GPU only: on a shared CPU they mean little."""
    cuda = result.config["device"].startswith("cuda")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    head = [*["ms"] * cuda, "of retraining", "faster", "passes", "floor", "peak MiB", "gap closed", "F1"]
    for column in head:
        table.add_column(column, justify="right")
    for row in result.rows:
        table.add_row(row["method"], *([f"{row['seconds'] * 1e3:.1f}"] * cuda), *_cells(row))
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    from unweave.experiments.paper.experiment import number

    forms = {
        "cost": ".1%",
        "faster_than_published": ".1f",
        "passes": ".0f",
        "times_the_floor": ",.0f",
        "peak_mib": ",.0f",
        "gap_closed": "+.2f",
        "f1": ".3f",
    }
    return [number(row.get(key), form) for key, form in forms.items()]

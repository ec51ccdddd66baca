"""``unweave compare``: methods side by side, with every control."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.names import DELETIONS
from unweave.cli.options import (
    DataName,
    Device,
    Forgettable,
    Json,
    LearningRate,
    ModelName,
    Root,
    UntilEnough,
    WeightDecay,
)
from unweave.cli.output import (
    audit_table,
    comparison_table,
    drawable,
    out as console,
    print_json,
    progress_bar,
    reports_errors,
    say,
    split_methods,
    writable,
)

if TYPE_CHECKING:
    from unweave.experiments.compare import Comparison

__all__ = ["compare", "show_comparison"]

LEGEND = (
    "gap closed     of the distance to the model retrained with the same seed: 0 = doing nothing, 1 = that very model",
    "seed-averaged  the same for predictions averaged over seeds: what the deletion does, without the luck of a seed",
    "residual       gradient left of the undamped local problem L' − <∇L0(θ0), θ>, 1 = as doing nothing",
    "cost, passes   time / mean time of both retrainings; sweeps over the graph (an epoch is two)",
    "retrain (other seed) shows how far luck alone carries a retrained model from another one",
)
POISON_LEGEND = (
    "recovery       of the F1 that the poison cost a model on the cleaned graph: 0 = doing nothing, 1 = as retraining",
    "attack         how often the poison does what it is there for; {:.3f} before, with the poison in place",
)

AUDIT_LEGEND = (
    "verdict        on how many seeds the audit says that the data is remembered, gone, …; see unweave audit",
    "               the numbers of a test that has no power on any seed are in brackets; * = unusual on some seed",
)

FORGET = (
    "Random request, e.g. edges:0.05; flipped:0.2, crossed:0.5 and triggered:0.1 poison first, flipped:0.2@0.5 forgets "
    "half of that; memorised:0.05 takes what is memorised most."
)


CALIBRATED = (
    f"Simulated deletions to calibrate auto by, each a training more for every seed; {DELETIONS} by default, none with "
    "--forgettable."
)


@reports_errors
def compare(
    data: DataName,
    model: ModelName,
    forget: Annotated[str, typer.Option(help=FORGET)],
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; gif(steps=3) gives options.")
    ] = "none,finetune,if,gif,retrain",
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the result, e.g. compare.png.")] = None,
    deletions: Annotated[int | None, typer.Option(help=CALIBRATED, min=0)] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Also ask of every method whether it is gone; 64 more trainings a seed.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes that train the models of an audit.", min=1)] = 1,
    epochs: UntilEnough = None,
    lr: LearningRate = 0.01,
    weight_decay: WeightDecay = None,
    forgettable: Forgettable = False,
    device: Device = "cpu",
    root: Root = None,
    json: Json = False,
) -> None:
    """Compare methods with retraining and with every control."""
    from unweave.experiments.compare import compare as run_comparison
    from unweave.experiments.plots import plot_comparison

    writable(out)
    drawable(plot)
    with progress_bar("comparing") as progress:
        result = run_comparison(
            data,
            model,
            forget,
            methods=split_methods(methods),
            seeds=seeds,
            deletions=deletions,
            audit=audit,
            jobs=jobs,
            epochs=epochs,
            lr=lr,
            weight_decay=weight_decay,
            forgettable=forgettable,
            device=device,
            root=root,
            progress=progress,
        )
    written = [result.save(out)] if out else []
    written += [plot_comparison(result, plot)] if plot else []
    if json:
        print_json(result.to_dict())
        return
    show_comparison(result)
    for path in written:
        say(f"wrote {path}")


def show_comparison(result: "Comparison") -> None:
    """Print the table and what it lets one say."""
    config = result.config
    way = "trained to a minimum" if config["forgettable"] else "ordinary training"
    seeds = f"{config['seeds']} seed{'s' * (config['seeds'] != 1)}"
    say(
        f"{config['model']} on {config['data']}, {way}, forgetting {config['forget']}, {seeds}; "
        f"fine-tuning runs {config['finetune']}"
    )
    say()
    console().print(comparison_table(result))
    say()
    poisoned = "attack" in result.rows[0]
    for line in (*LEGEND, *(POISON_LEGEND if poisoned else ())):
        say(line.format(result.rows[0].get("attack_before")))
    if "audit" in result.rows[0]:
        say()
        console().print(audit_table(result))
        say()
        for line in AUDIT_LEGEND:
            say(line)
    if not config["training_ended"]:
        say(
            f"training had not ended after {config['epochs']} epochs: more of them make a better model, so that this "
            "retrained one is no fair reference"
        )
    for row in result.rows:
        if row["failures"]:
            say(f"{row['method']} failed on {row['failures']} of {seeds}: {row['failure']}")
    for row in result.rows:
        difference = row["over_finetune"]
        if config["seeds"] == 1 or row["method"] in ("none", "retrain", "retrain (other seed)") or difference is None:
            continue
        low, high = difference["low"], difference["high"]
        verdict = "closes more than" if low > 0 else "closes less than" if high < 0 else "is not told apart from"
        say(
            f"{row['method']} {verdict} fine-tuning: {difference['mean']:+.2f} (95 % interval {low:+.2f} … {high:+.2f})"
        )

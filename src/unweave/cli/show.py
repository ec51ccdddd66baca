"""``unweave show``: what is in a run, and its receipts."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.options import Json, Root
from unweave.cli.output import (
    certified_in_words,
    checkpoint_sizes,
    describe_checkpoints,
    print_json,
    reports_errors,
    say,
)
from unweave.cli.own import OwnGraph, OwnModel, opened as open_run

__all__ = ["show"]


@reports_errors
def show(
    run: Annotated[Path, typer.Argument(help="Folder of the run.")],
    root: Root = None,
    model: OwnModel = None,
    data: OwnGraph = None,
    json: Json = False,
) -> None:
    """Show what is in a run, and its receipts. Every file is checked on the way."""
    from unweave.methods.ladder.debt import age_of
    from unweave.receipt.words import in_time

    opened = open_run(run, root=root, model=model, data=data)
    known = opened.calibration
    if json:
        print_json(
            {
                "run": str(run),
                "model": type(opened.model).__name__,
                "data": opened.data.get("name"),
                "recipe": asdict(opened.recipe),
                "metrics": dict(opened.metrics),
                "checkpoints": checkpoint_sizes(opened.checkpoints),
                "calibration": known and {"deletions": len(known.deletions), **age_of(known, opened.receipts)},
                "receipts": [receipt.to_dict() for receipt in opened.receipts],
            }
        )
        return
    graph, recipe = opened.data, opened.recipe
    count = sum(p.numel() for p in opened.model.parameters())
    say(f"{'Model':<11}{type(opened.model).__name__}, {count:,} parameters")
    say(
        f"{'Data':<11}{graph.get('name', 'own')}: {graph.num_nodes:,} nodes, {graph.num_edges:,} stored edges, "
        f"{int(graph.train_mask.sum()):,} training nodes"
    )
    how = f"{recipe.epochs} epochs of Adam, lr {recipe.lr:g}, weight decay {recipe.weight_decay:g}, seed {recipe.seed}"
    if recipe.certify is not None:
        how = f"to the minimum with noise in the objective, weight decay {recipe.weight_decay:g}"
    say(f"{'Trained':<11}{how}" + (", then to a minimum" if recipe.forgettable else ""))
    if recipe.certify is not None:
        say(f"{'Certified':<11}{certified_in_words(opened)}")
    scores = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in opened.metrics.items())
    say(f"{'Scores':<11}" + (scores or "not taken"))
    if opened.prepared is not None:
        old = f", {opened.prepared.age} requests ago" if opened.prepared.age else ""
        say(f"{'Prepared':<11}{opened.prepared.curvature.values.numel()} eigenpairs of the curvature{old}")
    if opened.checkpoints:
        say(f"{'Kept':<11}checkpoints: {describe_checkpoints(opened.checkpoints, recipe.epochs)}")
    waiting = f", {opened.pending} of them unverified: run `unweave verify {run}`" if opened.pending else ""
    say(f"{'Requests':<11}{len(opened.receipts)}{waiting}")
    if known is not None:
        age = age_of(known, opened.receipts)
        anew = f"; `unweave calibrate {run}` measures this one" if age["requests_ago"] else ""
        say(f"{'Calibrated':<11}{len(known.deletions)} simulated deletions{in_time(age)}{anew}")
    standing = opened.standing
    if any(receipt.ladder for receipt in opened.receipts) and standing.requests:
        unknown = f"; of {standing.unknown} of them nothing is known" if standing.unknown else ""
        say(f"{'Standing':<11}{standing.requests} since training, believed closed {standing.estimate}{unknown}")
    for number, receipt in enumerate(opened.receipts, start=1):
        say()
        say(f"Receipt {number}")
        say(str(receipt))

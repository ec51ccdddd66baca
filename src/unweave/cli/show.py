"""``unweave show``: what is in a run, and its receipts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unweave.cli.options import Json
from unweave.cli.output import (
    certified_in_words,
    checkpoint_sizes,
    describe_checkpoints,
    print_json,
    reports_errors,
    say,
)

if TYPE_CHECKING:
    from unweave.run.peek import Peeked
    from unweave.training.recipe import Training

__all__ = ["show"]


@reports_errors
def show(run: Annotated[Path, typer.Argument(help="Folder of the run.")], json: Json = False) -> None:
    """Show what is in a run, whoever made its model, and its receipts. Every file is checked on the way."""
    from unweave.methods.ladder.debt import age_of
    from unweave.receipt.words import in_time
    from unweave.run.peek import peek
    from unweave.training.agreement import in_words

    found = peek(run)
    known = found.calibration
    if json:
        print_json(
            {
                "run": str(run),
                "model": found.model,
                "data": found.data,
                "training": found.training.to_dict(),
                "metrics": dict(found.metrics),
                "checkpoints": checkpoint_sizes(found.checkpoints),
                "calibration": known and {"deletions": len(known.deletions), **age_of(known, found.receipts)},
                "receipts": [receipt.to_dict() for receipt in found.receipts],
            }
        )
        return
    say(f"{'Model':<11}{found.model}, {found.parameters:,} parameters and buffers")
    say(f"{'Data':<11}{found.data or 'own'}: {_size(found)}")
    say(f"{'Trained':<11}{_trained(found.training)}")
    if found.recipe is not None and found.recipe.certify is not None:
        say(f"{'Certified':<11}{certified_in_words(found)}")
    scores = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in found.metrics.items())
    say(f"{'Scores':<11}" + (scores or "not taken"))
    if found.prepared is not None:
        passed = found.prepared.age
        old = f", {passed} {'request' if passed == 1 else 'requests'} ago" if passed else ""
        say(f"{'Prepared':<11}{found.prepared.curvature.values.numel()} eigenpairs of the curvature{old}")
        same = found.prepared.agreement
        if same is not None:
            say(f"{'Agreement':<11}{same:.3f}: {in_words(same)}")
    if found.checkpoints:
        epochs = None if found.recipe is None else found.recipe.epochs
        say(f"{'Kept':<11}checkpoints: {describe_checkpoints(found.checkpoints, epochs)}")
    waiting = f", {found.pending} of them unverified: run `unweave verify {run}`" if found.pending else ""
    say(f"{'Requests':<11}{sum(receipt.kind == 'request' for receipt in found.receipts)}{waiting}")
    if changes := sum(receipt.kind == "change" for receipt in found.receipts):
        say(f"{'Changes':<11}{changes} of data that was added or corrected")
    if known is not None:
        age = age_of(known, found.receipts)
        anew = f"; `unweave calibrate {run}` measures this one" if age["requests_ago"] else ""
        say(f"{'Calibrated':<11}{len(known.deletions)} simulated deletions{in_time(age)}{anew}")
    standing = found.standing
    if any(receipt.ladder for receipt in found.receipts) and standing.requests:
        unknown = f"; of {standing.unknown} of them nothing is known" if standing.unknown else ""
        say(f"{'Standing':<11}{standing.requests} since training, believed closed {standing.estimate}{unknown}")
    for place in found.left:
        say(f"{'Beside':<11}{place} is of a process that writes this run, or was killed; who writes next deletes it")
    for number, receipt in enumerate(found.receipts, start=1):
        say()
        say(f"Receipt {number}")
        say(str(receipt))


def _size(found: "Peeked") -> str:
    """How large the graph is: that of a task by what it is made of, and not by the plain graph that stands for it."""
    known = found.config.data
    if known.types is None:
        return f"{found.nodes:,} nodes, {_edges(found)}{found.training_nodes:,} training nodes"
    counts = [f"{number:,} {name}{'' if number == 1 else 's'}" for name, number in known.types.items()]
    return ", ".join([*counts, f"{found.training_nodes:,} training {known.examples or 'node'}s"])


def _edges(found: "Peeked") -> str:
    """The edges that are left, as the last request that touched the graph tells."""
    told = (receipt.graph.get("stored_edges_after") for receipt in reversed(found.receipts))
    left = next((count for count in told if count is not None), None)
    return "" if left is None else f"{left:,} stored edges, "


def _trained(training: "Training") -> str:
    """How the model was trained, in words."""
    recipe = training.recipe
    if recipe is None:
        how = training.trainer or training.lost
        return f"by {how}" if how else "how is not known"
    if recipe.certify is not None:
        return f"to the minimum with noise in the objective, weight decay {recipe.weight_decay}"
    how = f"{recipe.epochs} epochs of Adam, lr {recipe.lr:g}, weight decay {recipe.weight_decay}, seed {recipe.seed}"
    return how + (", then to a minimum" if recipe.forgettable else "")

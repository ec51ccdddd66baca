"""``unweave demo``: the main job on the embedded graph, from training to the receipt."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unweave.cli.output import out as console, plus_minus, progress_bar, reports_errors, say, writable
from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.experiments.compare import Comparison

__all__ = ["demo"]

FORGET = "edges:0.03,nodes:0.02,features:0.02,labels:0.02"

LEGEND = (
    "F1          right answers on test nodes once the data is gone; it cannot show whether anything was forgotten",
    "gap closed  how far a method went from doing nothing (0) to retraining (1); below 0 it ended farther away",
    "cost        passes over the graph, in parts of the mean of the two retrainings; finetune gets as many as gif",
    "retrain (other seed) is how far luck alone carries one retrained model from another",
)

FORMS = {"f1": "{:.3f}", "gap_closed": "{:+.2f}"}

DECAY = 3e-3
"""Of the model that can forget: what validation chooses there."""

NEXT = (
    "forget with your own model  uw.Run(model, data, weight_decay=5e-4).forget(request), or unweave adopt",
    "train one that can forget   unweave train --data demo --model gcn --forgettable --out runs/a",
    "ask whether it is gone      unweave audit runs/before runs/after",
)


@reports_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results; files of an earlier demo are replaced.")] = Path(
        "demo"
    ),
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 5,
) -> None:
    """Train a GCN on the embedded graph, forget a mixed request by every method, and compare with retraining.

    Then the same for a GCN that was trained to be able to forget.
    """
    from unweave.experiments.compare import compare
    from unweave.experiments.plots import plot_comparison

    results, plot, receipt = out / "compare.json", out / "compare.png", out / "receipt.json"
    better = out / "forgettable.json"
    for path in (results, better, plot, receipt):
        writable(path)
    say(f"Training a GCN on the embedded citation graph, then forgetting {FORGET} …")
    with progress_bar("comparing") as progress:
        result = compare("demo", "gcn", FORGET, seeds=seeds, averaged=False, matched="passes", progress=progress)
        forgettable = compare(
            "demo",
            "gcn",
            FORGET,
            methods=["gif"],
            seeds=min(seeds, 2),
            weight_decay=DECAY,
            forgettable=True,
            averaged=False,
            matched="passes",
            progress=progress,
        )
    result.save(results)
    forgettable.save(better)
    plot_comparison(result, plot)
    say()
    say(f"Trained as usual, {_seeds(result)}")
    console().print(_table(result))
    say()
    say(f"Trained to be able to forget (unweave train --forgettable), {_seeds(forgettable)}")
    console().print(_table(forgettable))
    say()
    for line in LEGEND:
        say(line)
    for row in (*result.rows, *forgettable.rows):
        if row["failures"]:
            say(f"{row['method']} failed on {row['failures']} seeds: {row['failure']}")
    if "gif" not in result.receipts:
        raise UnweaveError("gif failed on the first seed, so there is no receipt to show")
    receipt.write_text(result.receipts["gif"].to_json() + "\n", encoding="utf-8")
    say()
    say("Receipt of the gif run, first seed")
    say(str(result.receipts["gif"]))
    say()
    say(f"wrote {results}, {better}, {receipt} and {plot}")
    say()
    say("Next")
    for line in NEXT:
        say(f"  {line}")


def _seeds(result: "Comparison") -> str:
    many = result.config["seeds"]
    return f"{many} seed{'s' * (many > 1)}"


def _table(result: "Comparison") -> Table:
    """What anybody can read without being told: the same on every machine, but for rounding."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    for head in ("F1", "gap closed", "cost"):
        table.add_column(head, justify="right")
    for row in result.rows:
        f1, closed = (plus_minus(row[f"{key}_mean"], row[f"{key}_std"], form) for key, form in FORMS.items())
        cost = "–" if row["cost_median"] is None else f"{row['cost_median']:.0%}"
        table.add_row(row["method"], f1, closed, cost)
    return table

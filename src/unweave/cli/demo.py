"""``unweave demo``: the main job on the embedded graph, from training to the receipt."""

from pathlib import Path
from typing import Annotated

import typer

from unweave.cli.compare import show_comparison
from unweave.cli.output import comparison_table, out as console, progress_bar, reports_errors, say, writable
from unweave.errors import UnweaveError

__all__ = ["demo"]

FORGET = "edges:0.03,nodes:0.02,features:0.02,labels:0.02"


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
    from unweave.training.fit import FORGETTABLE_DECAY

    results, plot, receipt = out / "compare.json", out / "compare.png", out / "receipt.json"
    better = out / "forgettable.json"
    for path in (results, better, plot, receipt):
        writable(path)
    say(f"Training a GCN on the embedded citation graph, then forgetting {FORGET} …")
    with progress_bar("comparing") as progress:
        result = compare("demo", "gcn", FORGET, seeds=seeds, progress=progress)
        forgettable = compare(
            "demo",
            "gcn",
            FORGET,
            methods=["gif"],
            seeds=min(seeds, 2),
            weight_decay=FORGETTABLE_DECAY,
            forgettable=True,
            averaged=False,
            progress=progress,
        )
    result.save(results)
    forgettable.save(better)
    plot_comparison(result, plot)
    say()
    show_comparison(result)
    if "gif" not in result.receipts:
        raise UnweaveError("gif failed on the first seed, so there is no receipt to show; see the column 'failed'")
    receipt.write_text(result.receipts["gif"].to_json() + "\n", encoding="utf-8")
    say()
    say("Receipt of the gif run, first seed")
    say(str(result.receipts["gif"]))
    say()
    many = forgettable.config["seeds"]
    way = f"trained to be able to forget (unweave train --forgettable), {many} seed{'s' * (many > 1)}"
    say(f"The same with every model {way}")
    console().print(comparison_table(forgettable))
    say()
    say(f"wrote {results}, {better}, {receipt} and {plot}")

"""Compare every method on the four backbones and write one table.

Usage: python benchmarks/backbones.py --device cuda --data cora,citeseer,pubmed --out benchmarks/results

Each cell is an ``unweave compare`` with all its controls; timings are ratios taken within one process.
"""

import argparse
import json
from pathlib import Path

import unweave as uw
from unweave.experiments.compare import Comparison

COLUMNS = ("method", "F1", "gap closed", "seed-averaged", "residual", "cost", "passes", "failed")


def table(results: list[Comparison]) -> str:
    """All comparisons as one Markdown page."""
    first = results[0]
    lines = [
        "# Every method on the four backbones",
        "",
        f"Made by `python benchmarks/backbones.py`: {first.config['seeds']} seeds, {first.config['epochs']} epochs, "
        f"on {first.environment['device_name']} "
        f"({first.environment['device']}), torch {first.environment['torch']}, "
        f"PyG {first.environment['torch_geometric']}. "
        + ("Every model trained to a minimum. " if first.config.get("forgettable") else "Ordinary training. ")
        + "All options by default.",
        "",
        "Gap closed: 0 = as doing nothing, 1 = indistinguishable from retraining with the same seed. "
        "Seed-averaged: the same for predictions averaged over the seeds. Cost: time / time of retraining. "
        "Fine-tuning runs as long as gif.",
    ]
    for result in results:
        config = result.config
        decay = f"weight decay {config['weight_decay']:g}"
        lines += ["", f"## {config['model']} on {config['data']}, {config['forget']}, {decay}", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        for row in result.rows:
            cells = [
                row["method"],
                _number(row["f1_mean"], ".3f") + " ± " + _number(row["f1_std"], ".3f"),
                _number(row["gap_closed_mean"], "+.2f") + " ± " + _number(row["gap_closed_std"], ".2f"),
                _number(row["mean_gap_closed"], "+.2f"),
                _number(row["residual_influence_mean"], ".2f"),
                _number(row["cost_median"], ".0%"),
                _number(row["passes_mean"], ".0f"),
                str(row["failures"]),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def main() -> None:
    """Run all cells, saving each as it is done; the page shows every cell in the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cora,citeseer,pubmed")
    parser.add_argument("--models", default="gcn,gat,sgc,gin")
    parser.add_argument("--forget", default="edges:0.05")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--forgettable", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    for data in options.data.split(","):
        for model in options.models.split(","):
            result = uw.compare(
                data,
                model,
                options.forget,
                seeds=options.seeds,
                epochs=options.epochs,
                device=options.device,
                forgettable=options.forgettable,
            )
            result.save(options.out / f"{data}-{model}.json")
            row = result.row("gif")
            print(f"{data} {model}: gif closed {_number(row['gap_closed_mean'], '+.2f')}", flush=True)
    cells = [Comparison(receipts={}, **json.loads(p.read_text())) for p in sorted(options.out.glob("*.json"))]
    (options.out / "README.md").write_text(table(cells), encoding="utf-8")


if __name__ == "__main__":
    main()

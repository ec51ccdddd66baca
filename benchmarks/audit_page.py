"""The page of ``audit.py``."""

from statistics import fmean
from typing import Any

from unweave.audit.evidence import ALARM

__all__ = ["page"]

ASKING = ("membership", "links", "exposure", "relearning", "hard cases")


def page(cells: list[dict[str, Any]], alarms: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "# The audit put to the test",
        "",
        "Made by `python benchmarks/audit.py` from the files beside it; what the tests are and how they are judged is "
        "said in [Proof of forgetting](../../../docs/audit.md).",
        "",
        "## Retrained models are left alone",
        "",
        f"An audit may raise a false alarm with a chance of {ALARM:.0%}, all tests together.",
        "",
        "| request, embedded graph, GCN | audits | alarms | verdicts | tests that raised one |",
        "| --- | --- | --- | --- | --- |",
        *(_alarm(cell) for cell in alarms),
        "",
        "## Every attack tells doing nothing from retraining",
        "",
        "The number of a test, mean over the seeds, for models that saw the data, for retrained ones (± the seed "
        "floor), and the distance between them in seed floors. *Separates*: on how many seeds at least 80 % of the "
        "models that saw the data lie outside of the range of retrained ones.",
        "",
        "| cell | test | with the data | retrained | seed floors apart | separates |",
        "| --- | --- | --- | --- | --- | --- |",
        *(line for cell in cells for line in _tests(cell)),
        "",
        "## What the methods get",
        "",
        "Verdicts over the seeds, and the likelihood ratio's AUC (TPR at 1 % false positives), epochs to learn it "
        "back, gap closed, cost. Costs were taken beside other work, which was paused and resumed: they mean little "
        "here.",
        "",
        "| cell | method | verdict | likelihood ratio | epochs | gap closed | cost |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(line for cell in cells for line in _methods(cell)),
        "",
        _where(cells + alarms),
        "",
    ]
    return "\n".join(lines)


def _alarm(cell: dict[str, Any]) -> str:
    raised = cell["verdicts"].get("remembers", 0) + cell["verdicts"].get("differs", 0)
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(cell["verdicts"].items()))
    tests = ", ".join(f"{name} {count}" for name, count in cell["unusual"].items() if count)
    return f"| {cell['forget']} | {cell['audits']} | {raised} | {verdicts} | {tests or '–'} |"


def _tests(cell: dict[str, Any]) -> list[str]:
    row = next(row for row in cell["rows"] if row["method"] == "retrain")
    found = []
    for name, test in row["audit"]["tests"].items():
        if test["group"] in ASKING:
            floor = fmean(test["floor"])
            apart = abs(test["trained_mean"] - test["retrained_mean"]) / floor if floor else float("inf")
            found.append(
                f"| {' '.join(cell['cell'])} | {name} | {test['trained_mean']:.3g} | {test['retrained_mean']:.3g} ± "
                f"{floor:.2g} | {apart:.0f} | {test['separates']} of {len(test['value'])} |"
            )
    return found


def _methods(cell: dict[str, Any]) -> list[str]:
    found = []
    for row in cell["rows"]:
        tests = row["audit"]["tests"]
        verdicts = ", ".join(f"{count} {name}" for name, count in row["audit"]["verdicts"].items())
        ratio, epochs = tests.get("membership, likelihood ratio"), tests.get("epochs to learn it back")
        shown = "–" if ratio is None else f"{fmean(ratio['value']):.2f} ({ratio['TPR at 1 % FPR (mean)']:.2f})"
        learnt = "–" if epochs is None else f"{fmean(epochs['value']):.1f}"
        gap = "–" if row["gap_closed_mean"] is None else f"{row['gap_closed_mean']:+.2f}"
        cost = "–" if row["cost_median"] is None else f"{row['cost_median']:.0%}"
        found.append(
            f"| {' '.join(cell['cell'])} | {row['method']} | {verdicts} | {shown} | {learnt} | {gap} | {cost} |"
        )
    return found


def _where(cells: list[dict[str, Any]]) -> str:
    places = sorted({(c["commit"], c["environment"]["torch"], c["environment"]["device_name"]) for c in cells})
    return "Measured with " + "; ".join(f"{commit[:9]} (torch {torch}, {name})" for commit, torch, name in places) + "."

"""The page of results: made from the result files alone, never edited by hand."""

from collections.abc import Mapping

from unweave.experiments import erasers, setups, table2
from unweave.experiments.experiment import number
from unweave.experiments.results import Results

__all__ = ["page"]

TITLES = {
    "table2": "Table 2: edge unlearning",
    "efficacy": "Efficacy: forgetting edges between classes",
    "ratio": "Unlearning ratio: nodes and features",
    "scale": "Scale of the recursion",
    "ablation": "From the published procedure to ours",
    "setups": "Why F1 differs: the published set-up, one step at a time",
    "erasers": "Why the erasers differ: aggregation and features",
}


def page(results: Mapping[str, Results], sections: Mapping[str, list[str]]) -> str:
    """The whole page."""
    if not sections:
        return "# Results\n\nNothing has been measured yet.\n"
    lines = ["# Results", "", *_head(results)]
    for name, title in TITLES.items():
        if name in sections:
            lines += ["", f"## {title}", "", *sections[name]]
            lines += ["", _source(results[name])]
        if name == "table2" and name in sections:
            lines += ["", *_differences(results)]
    return "\n".join(lines) + "\n"


def _head(results: Mapping[str, Results]) -> list[str]:
    first = next(iter(results.values())).environment()
    return [
        "Every table and figure of the paper that GIF comes from (Wu et al., WWW'23), measured anew: no test label "
        "is read before the final score, retraining is full-batch with nothing else in its loop, and every "
        "comparison has the controls that the paper lacks. This page is made by `unweave reproduce all --device "
        f"cuda` from the files in `results/`, on {first['device_name']} with torch {first['torch']} and PyG "
        f"{first['torch_geometric']}; processes share the device, so costs are ratios under load. *Gap closed*: 0 as "
        "doing nothing, 1 indistinguishable from retraining with the same seed, below 0 worse than doing nothing. "
        "Bands in figures are standard errors of the mean over the seeds.",
    ]


def _source(results: Results) -> str:
    seeds = sorted({len(results.seeds(name, results.methods(name)[0])) for name in results})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    commits = ", ".join(f"`{commit[:12]}`" for commit in results.commits())
    return (
        f"*{len(list(results))} cells of {count} seeds; `results/{results.experiment}.json` has every figure of "
        f"every seed with its settings. Commit {commits}.*"
    )


def _differences(results: Mapping[str, Results]) -> list[str]:
    """Every cell of Table 2 whose F1 is not the paper's, and why."""
    found = list(table2.differences(results["table2"]))
    if not found:
        return []
    lines = [
        "### Where our F1 differs from the paper's by more than two standard deviations",
        "",
        "What differs for retraining differs for every method. The reasons are measured, for "
        "[retraining](#why-f1-differs-the-published-set-up-one-step-at-a-time) and for "
        "[the erasers](#why-the-erasers-differ-aggregation-and-features).",
        "",
    ]
    for model, data, method, ours, paper in found:
        text = f"- {model.upper()} {data}, {method}: {ours:.3f}, the paper {paper:.3f} ({number(ours - paper, '+.3f')})"
        if method == "retrain":
            known = results.get("setups")
            text += f": {setups.reasons(known, model, data) if known else 'not tested here'}."
        elif method == "gif":
            text += _follows(results["table2"], model, data)
        else:
            known = results.get("erasers")
            text += f": {erasers.reason(known, model, data, method) if known else 'not tested here'}."
        lines.append(text)
    return lines


def _follows(results: Results, model: str, data: str) -> str:
    name = table2.cell_name(model, data)
    apart = (results.mean(name, "gif", "f1") or 0) - (results.mean(name, "retrain", "f1") or 0)
    return f": it follows retraining, from which it differs by {number(apart, '+.3f')} here."

"""The page of results: made from the result files alone, never edited by hand."""

from collections.abc import Mapping

from unweave.experiments.paper import erasers, setups, table2
from unweave.experiments.paper.experiment import method_of, number
from unweave.experiments.paper.results import Results

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
    lines = ["# Results", "", *_head()]
    for name, title in TITLES.items():
        if name in sections:
            lines += ["", f"## {title}", "", *sections[name]]
            lines += ["", _source(results[name])]
        if name == "table2" and name in sections:
            lines += ["", *_differences(results)]
    return "\n".join(lines) + "\n"


def _head() -> list[str]:
    return [
        "Every table and figure of the paper that GIF comes from (Wu et al., WWW'23), measured anew: retraining is "
        "full-batch with nothing else in its loop, and every comparison has the controls that the paper lacks. No "
        "test label is read before the final score, but for one row of the ablation, which shows what the paper's "
        "leak does. Made by `unweave reproduce` from the files in `results/`; each section says where it was "
        "measured. Costs are ratios of times taken in one process; where several processes share a device they are "
        "ratios under load. *Gap closed*: 0 as doing nothing, 1 indistinguishable from retraining with the same "
        "seed, below 0 worse than doing nothing. Bands in figures are standard errors of the mean over the seeds. "
        "Predictions averaged over seeds are in [the matrix](../benchmarks/results/matrix/README.md), not here.",
    ]


def _source(results: Results) -> str:
    counts = sorted({results.trials(name) for name in results})
    count = " to ".join(str(number) for number in dict.fromkeys((counts[0], counts[-1])))
    commits = ", ".join(f"`{commit[:12]}`" for commit in results.commits())
    places = "; ".join(
        f"{place.get('device_name')}, torch {place.get('torch')}, PyG {place.get('torch_geometric')}"
        + (f", {place['processes']} processes" if place.get("processes", 1) > 1 else "")
        for place in results.environments()
    )
    return (
        f"*{len(list(results))} cells of {count} seeds, on {places}. `results/{results.experiment}.json` has every "
        f"figure of every seed with its settings and commit ({commits}).*"
    )


def _differences(results: Mapping[str, Results]) -> list[str]:
    """Every cell of Table 2 whose F1 is not the paper's, and why."""
    found = list(table2.differences(results["table2"]))
    if not found:
        return []
    lines = [
        "### Where our F1 differs from the paper's",
        "",
        "By more than two standard errors of the means of ten, a stricter rule than two standard deviations. "
        "What differs for retraining differs for every method. What was tested: the "
        "published set-up for [retraining](#why-f1-differs-the-published-set-up-one-step-at-a-time), and "
        "aggregation and features for [the erasers](#why-the-erasers-differ-aggregation-and-features) on Cora and "
        "CiteSeer.",
        "",
    ]
    for model, data, method, ours, paper in found:
        text = f"- {model.upper()} {data}, {method}: {ours:.3f}, the paper {paper:.3f} ({number(ours - paper, '+.3f')})"
        if method == "retrain":
            known = results.get("setups")
            text += f": {setups.reasons(known, model, data) if known else 'not tested here'}."
        elif method == "gif":
            text += f": {_follows(results['table2'], model, data)}."
        else:
            known = results.get("erasers")
            text += f": {erasers.reason(known, model, data, method) if known else 'not tested here'}."
        lines.append(text)
    return lines


def _follows(results: Results, model: str, data: str) -> str:
    """How far the published procedure is from retraining."""
    name = table2.cell_name(model, data)
    method = method_of(results, name, "published")
    ours, retrained = results.mean(name, method or "gif", "f1"), results.mean(name, "retrain", "f1")
    if ours is None or retrained is None:
        return "not measured"
    what = "it follows retraining" if method else "the published procedure diverges here; ours follows retraining"
    return f"{what}, from which it differs by {number(ours - retrained, '+.3f')}"

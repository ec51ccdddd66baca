"""Why our GraphEraser is not the paper's: every aggregation, on features as they are and with rows that sum to 1."""

from dataclasses import replace
from itertools import product
from typing import get_args

from unweave._core.cost import Meter
from unweave.experiments.paper.experiment import Experiment, Task, setting, spread, table
from unweave.experiments.paper.published import SHARDS, TABLE_2
from unweave.experiments.paper.results import Cell, Measured, Results
from unweave.graph.draw import draw as draw_request
from unweave.graph.removal import remove
from unweave.methods.baselines.eraser import Eraser, aggregation_weights
from unweave.methods.registry import make
from unweave.models.shards import Aggregation, Shards
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.scores import log_probabilities, micro_f1

__all__ = ["EXPERIMENT", "reason"]

FORGET = "edges:0.05"
PARTITIONS = ("eraser-blpa", "eraser-bekm")
FEATURES = ("as they are", "rows sum to 1")
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


def _label(partition: str, features: str, aggregation: str) -> str:
    return f"{partition}, {aggregation}, features {features}"


LABELS = [_label(*parts) for parts in product(PARTITIONS, FEATURES, AGGREGATIONS)]


def cells(quick: bool) -> list[Cell]:
    """Every backbone on Cora and CiteSeer."""
    methods = tuple((label, label) for label in LABELS)
    data, models = (("demo",), ("gcn",)) if quick else (("cora", "citeseer"), ("gcn", "gat", "sgc", "gin"))
    return [Cell(d, m, FORGET, methods, epochs=20 if quick else 100) for d in data for m in models]


def measure(task: Task) -> Measured:
    """F1 of shards trained on the remaining graph; they are trained once for all aggregations."""
    trials = setting(replace(task, cell=replace(task.cell, methods=())))
    recipe = replace(trials.recipe, seed=task.seed)
    figures: dict[str, dict[str, float | None]] = {}
    for features in FEATURES:
        data = trials.make_data(task.seed).to(trials.device)
        if features != FEATURES[0]:
            data.x = data.x / data.x.sum(dim=1, keepdim=True).clamp(min=1)
        data = remove(data, draw_request(task.cell.forget, data, seed=task.seed)).data
        whole = trials.train(data, recipe).model
        for partition in PARTITIONS:
            how = make(partition, {"shards": SHARDS.get(task.cell.data, 4)}, recipe)
            if not isinstance(how, Eraser):
                raise TypeError(f"{partition} is no eraser")
            trained = how.setup(whole, data, recipe)
            for aggregation in AGGREGATIONS:
                shards = Shards(list(trained.models), trained.members, aggregation)
                decay = decay_vector(shards, recipe.weight_decay)
                every = Objective(shards, data, cross_entropy, decay, call, Meter(trials.device))
                shards.weights.copy_(aggregation_weights(shards, every))
                f1 = micro_f1(log_probabilities(shards, data), data.y, data.test_mask)
                figures[_label(partition, features, aggregation)] = {"f1": f1}
    return Measured(figures)


def reason(results: Results, model: str, data: str, partition: str) -> str:
    """What was found for a cell of Table 2, in a sentence."""
    name = Cell(data, model, FORGET).name
    if name not in set(results):
        return f"not tested on {data}; see Cora and CiteSeer"
    paper = TABLE_2[model, partition][data][0]
    means = {label: results.mean(name, label, "f1") for label in LABELS if label.startswith(partition)}
    found = {label: mean for label, mean in means.items() if mean is not None}
    if not found:
        return "not tested"
    nearest = min(found, key=lambda label: abs(found[label] - paper))
    reach = 2 * (results.std(name, nearest, "f1") or 0.0)
    verdict = "within" if abs(found[nearest] - paper) <= reach else "not within"
    return (
        f"by aggregation and features {min(found.values()):.3f} … {max(found.values()):.3f}; nearest "
        f"{found[nearest]:.3f} ({nearest.partition(', ')[2]}), {verdict} two standard deviations"
    )


def section(results: Results) -> list[str]:
    """F1 by partition, aggregation and features, beside the paper's."""
    names = sorted(results, key=lambda name: (name.split()[1] != "cora", name))
    rows = []
    for name in names:
        model, data = name.split()[:2]
        for partition in PARTITIONS:
            labels = [label for label in LABELS if label.startswith(partition)]
            figures = [spread(results, name, label, "f1", ".3f") for label in labels]
            paper = TABLE_2.get((model, partition), {}).get(data)
            rows.append([f"{model.upper()} {data}", partition, *figures, f"{paper[0]:.3f}" if paper else "–"])
    ways = [f"{aggregation}, features {features}" for features, aggregation in product(FEATURES, AGGREGATIONS)]
    return [
        "The paper does not say how it aggregates the shards. F1 of shards trained on the remaining graph, mean ± "
        "standard deviation: 5 % of the edges forgotten, 20 shards, 100 epochs at a learning rate of 0.01. Table 2 has "
        "the learned aggregation on features as they are.",
        "",
        *table(["", "partition", *ways, "the paper"], rows),
    ]


EXPERIMENT = Experiment("erasers", cells, measure, section, open=False, most_seeds=5)

"""Train a model that can forget, and see what that buys: gap closed against gradients spent. Usage: [FILE]."""

import sys

import torch
from matplotlib.figure import Figure
from torch_geometric.data import Data

import unweave as uw
from unweave.objective.scores import gap, log_probabilities

BUDGETS = (1, 2, 3, 5, 7, 10, 15)
ORDINARY = "gif (after 20 to 60 products with the curvature)"


def closed(before: uw.Run, after: torch.nn.Module, retrained: uw.Run) -> float:
    """Gap to the retrained model that is closed; 0 is doing nothing."""
    everyone = torch.ones(before.data.num_nodes, dtype=torch.bool)
    target = log_probabilities(retrained.model, retrained.data)
    nothing = gap(target, log_probabilities(before.model, retrained.data), everyone)
    return 1 - gap(target, log_probabilities(after, retrained.data), everyone) / nothing


Curve = dict[int, float]


def measure(data: Data, request: uw.Request, forgettable: bool) -> tuple[dict[str, Curve], float]:
    """Gap closed by the gradients really spent, and the floor: a model retrained from another seed."""
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, forgettable=forgettable)
    retrained = run.forget(request, "retrain")
    other = uw.train(
        uw.models.GCN(data.num_features, data.num_classes),
        retrained.data,
        seed=1,
        weight_decay=run.recipe.weight_decay,
        forgettable=forgettable,
    )
    methods = {"gif": "prepared", "lbfgs": "plain L-BFGS"} if forgettable else {"gif": ORDINARY}
    curves: dict[str, Curve] = {}
    for method, name in methods.items():
        for budget in BUDGETS:
            done = run.forget(request, method, steps=budget)
            spent = done.receipts[-1].details["evaluations"]
            curves.setdefault(name, {})[spent] = closed(run, done.model, retrained)
    return curves, closed(run, other.model, retrained)


def main(path: str) -> None:
    data = uw.load("demo", seed=0)
    request = uw.draw("edges:0.05", data, seed=0)
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    places = {"prepared": (1, (2, -14)), ORDINARY: (3, (-30, -14)), "plain L-BFGS": (1, (9, -4))}
    for name, forgettable, colour in (("to a minimum", True, "#1f5fa8"), ("ordinarily", False, "#b8860b")):
        curves, floor = measure(data, request, forgettable)
        for kind, curve in curves.items():
            label, (index, shift) = f"trained {name}, {kind}", places[kind]
            axes.plot(list(curve), list(curve.values()), "s:" if kind == "plain L-BFGS" else "o-", color=colour, ms=4)
            spot = list(curve.items())[index]
            axes.annotate(label, spot, xytext=shift, textcoords="offset points", color=colour, size=8)
            print(f"{label}: " + "  ".join(f"{spent}: {value:+.2f}" for spent, value in curve.items()))
        axes.axhline(floor, color=colour, lw=0.8, ls="--")
        label = f"another seed, trained {name}: {floor:+.2f}"
        axes.annotate(label, (1.6, floor), xytext=(0, 3), textcoords="offset points", color=colour, size=8)
        print(label)
    for height, text in ((0, "doing nothing"), (1, "retraining")):
        axes.axhline(height, color="0.85", lw=1, zorder=0)
        axes.annotate(text, (16, height), xytext=(8, 3), textcoords="offset points", color="0.4", size=8)
    axes.set(xlabel="gradients on the remaining graph", ylabel="gap to the retrained model closed", ylim=(-0.95, 1.12))
    axes.set_xlim(1.5, 18.5)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "forgettable.png")

"""Which rule chooses the better weight decay, judged by validation nodes that the rule has not seen?

    python benchmarks/decays.py --data photo,dblp --model gcn,sage
    python benchmarks/decays.py --device cuda --data physics --model gat --seeds 0,1

A model is trained with every decay as ``train --forgettable`` does to choose one. Its validation nodes are then cut in
halves a hundred times over: every rule sees one half, the other judges what it chose. No test label is read. A line of
``cells.jsonl`` is a graph, a model and a seed; what is there already is not measured again.
"""

import math
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import NamedTuple

import torch
import torch.nn.functional as F
from generated import hard
from minima import objective_of, outputs
from pages.decays import PAGE
from shared import Document, append, arguments, lines, made
from torch import Tensor
from torch_geometric.data import Data

import unweave as uw
from unweave._core.tuning import TUNING
from unweave.training.minimum import polish_objective

HALVES = 100
GENERATED: dict[str, Callable[..., Data]] = {
    "hard-20k": partial(hard, 20_000, features=64),
    "hubs-20k": partial(hard, 20_000, hubs=True),
}


class Told(NamedTuple):
    """Of some nodes: which are right, and the loss of each."""

    right: Tensor
    loss: Tensor


ByDecay = dict[float, Told]
"""By decay, the largest first."""


def _better(one: Told, other: Told, share: float) -> bool:
    """Whether another F1 is higher by more than a share of its standard error; the nodes are the same."""
    differ = int((one.right != other.right).sum())
    return int(other.right.sum()) - int(one.right.sum()) > share * math.sqrt(differ)


def _largest_by_f1(share: float) -> Callable[[ByDecay], float]:
    def rule(told: ByDecay) -> float:
        best = max(told.values(), key=lambda one: int(one.right.sum()))
        return next(decay for decay, one in told.items() if not _better(one, best, share))

    return rule


def lowest_loss(told: ByDecay) -> float:
    """Down from the largest, until one is no better: the rule of ``train``."""
    decays = list(told)
    losses = [float(one.loss.double().mean()) for one in told.values()]
    return next((decays[n] for n in range(len(decays) - 1) if losses[n + 1] >= losses[n]), decays[-1])


RULES: dict[str, Callable[[ByDecay], float]] = {
    "F1 within a standard error, largest decay": _largest_by_f1(1.0),
    "F1 within half of one, largest decay": _largest_by_f1(0.5),
    "highest F1": _largest_by_f1(0.0),
    "lowest loss": lowest_loss,
}


def judged(told: ByDecay) -> Document:
    """What each rule chooses with all of the nodes, and how good is what it chooses with a half, by the other."""
    count = len(next(iter(told.values())).right)
    generator = torch.Generator().manual_seed(0)
    halves = [torch.randperm(count, generator=generator).tensor_split(2) for _ in range(HALVES)]

    def of(rule: Callable[[ByDecay], float]) -> Document:
        f1, loss = [], []
        for seen, unseen in halves:
            chosen = told[rule({decay: Told(one.right[seen], one.loss[seen]) for decay, one in told.items()})]
            f1.append(float(chosen.right[unseen].double().mean()))
            loss.append(float(chosen.loss[unseen].double().mean()))
        return {"decay": rule(told), "f1": fmean(f1), "loss": fmean(loss)}

    return {"validation": count, "rules": {name: of(rule) for name, rule in RULES.items()}}


def main() -> None:
    """Judge what is asked for and not there."""
    graphs, models = ("photo", "dblp", "pubmed", "computers", "cora", "citeseer", *GENERATED), ("gcn", "sage", "sign")
    parser = arguments(__doc__, "decays", data=graphs, model=models, seeds=(0,), device="cpu")
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    for data, model, seed in ((d, m, s) for d in asked.data for m in asked.model for s in asked.seeds):
        cell = {"data": data, "model": model, "seed": seed}
        if any(cell.items() <= known.items() for known in lines(path)):
            continue
        graph = GENERATED[data](seed=seed) if data in GENERATED else uw.load(data, seed=seed)
        graph, told = graph.to(asked.device), {}
        for decay in (decay for decay in TUNING.polish.decays if decay <= TUNING.polish.unit_decay):
            objective = objective_of(graph, model, 0, "", decay, seed)
            polish_objective(objective, evaluations=TUNING.polish.choosing)
            logs, labels = outputs(objective)[graph.val_mask].cpu(), graph.y[graph.val_mask].cpu()
            told[decay] = Told(logs.argmax(dim=1) == labels, F.nll_loss(logs, labels, reduction="none"))
        append(path, cell | judged(told) | made(asked.device))
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

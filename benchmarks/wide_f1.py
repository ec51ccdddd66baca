"""Where a model that can forget is worse than an ordinary one of its kind: which of its parts costs how much F1?

    python benchmarks/wide_f1.py --device cuda --data wordnet --model sage,gin,gat
    python benchmarks/wide_f1.py --nodes 8000 --model sage
    python benchmarks/wide_f1.py --nodes 12000 --model sage --bends 1,2,4,8

An ordinary model as wide is trained until validation says enough, as it is and with one part at a time of those that a
model that can forget has: the smooth activation, features of length 1, no dropout; then with all of them. Beside these
stand models that are trained to a minimum, with one weight decay after another.

``--bends 1,2,4,8`` tells what it does to let the units bend: a decay of w/b² on the first layer and w·b² on the second
is the same as tanh(b z)/b in the place of tanh(z), but for the bias of the outputs. Of these another seed is trained
too, to say whether the minimum is one.

A line of ``cells.jsonl`` is one training, written as soon as it is done; what is there already is not measured again.
``--nodes`` takes a part of the graph (:func:`overfitted.part`).
"""

import time
from typing import Any

from overfitted import part
from pages.wide_f1 import PAGE
from shared import append, arguments, lines, made

import unweave as uw
from unweave._core.tuning import tuned
from unweave.models import build, width

PARTS: tuple[dict[str, Any], ...] = (
    {},
    {"dropout": 0.0},
    {"activation": "tanh"},
    {"unit": True},
    {"dropout": 0.0, "activation": "tanh", "unit": True},
)
DECAYS = (3e-5, 1e-4, 1e-5)
GRADIENTS = 300
"""Of a polish: on WordNet, 300 more changed the F1 of a GraphSAGE by 0.001."""

BENT = 1e-4
"""Weight decay of the models whose units bend."""

COMPARED = 900
"""Gradients of their polishes: to compare seeds they have to end."""


def main() -> None:
    """Train what is asked for and not there."""
    parser = arguments(
        __doc__,
        "wide_f1",
        data="wordnet",
        model=("sage", "gin", "gat"),
        nodes=0,
        bends=(0,),
        hidden=0,
        device="cpu",
        minutes=600.0,
    )
    asked = parser.parse_args()
    path, until = asked.out / "cells.jsonl", time.time() + 60 * asked.minutes
    graph = part(asked.data, asked.nodes).to(asked.device)
    training = int(graph.train_mask.sum())
    trainings: list[tuple[dict[str, Any], float | None, int]] = [(options, None, 0) for options in PARTS]
    trainings += [({}, decay, 0) for decay in DECAYS] + [({"activation": "relu"}, decay, 0) for decay in DECAYS[:2]]
    if any(asked.bends):
        trainings = [({"hidden": asked.hidden} if asked.hidden else {}, BENT, bend) for bend in asked.bends]
    for options, decay, bend in trainings:
        for model in asked.model:
            cell = {
                "data": asked.data,
                "nodes": int(graph.num_nodes),
                "model": model,
                "options": options,
                "decay": decay,
                **({"bend": bend} if bend else {}),
            }
            if time.time() > until or any(cell.items() <= known.items() for known in lines(path)):
                continue
            of: dict[str, Any] = {"hidden": width(training) // (8 if model == "gat" else 1)}
            of = {"forgettable": True, "nodes": training} if decay is not None else of
            module = build(model, graph.num_features, graph.num_classes, **of | options).to(asked.device)
            apart = {"conv1": BENT / bend**2, "conv2": BENT * bend**2} if bend else decay
            how: dict[str, Any] = {"forgettable": True, "weight_decay": apart, "examine": bool(bend)}
            with tuned(polish={"evaluations": COMPARED if bend else GRADIENTS}):
                run = uw.train(module, graph, seed=0, **({} if decay is None else how))
            keys = ("train_f1", "val_f1", "test_f1", "test_f1_before_polish", "train_loss", "val_loss", "agreement")
            found = {key: run.metrics[key] for key in keys if key in run.metrics} | {"epochs": run.recipe.epochs}
            append(path, cell | found | made(asked.device))
            print(cell, found, flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

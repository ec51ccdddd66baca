"""Training loops of one's own: what the polish at their end does to F1.

    python benchmarks/loops.py
    python benchmarks/loops.py --data demo --seeds 1

A line of ``cells.jsonl`` is a fit: a GCN of 128 units with tanh and dropout, 40 epochs of four batches, each a quarter
of the training nodes, watched by ``uw.integrations.Watch`` and polished with the decay of its optimiser.
"""

import warnings

import torch
from pages.loops import PAGE
from shared import Document, arguments, each, lines, made, write_lines
from torch import nn
from torch_geometric.nn import GCN

import unweave as uw

EPOCHS, BATCHES = 40, 4
OPTIMISERS = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
FITS = (("Adam", 3e-3), ("Adam", 5e-4), ("AdamW", 0.1), ("AdamW", 0.01))


def measure(task: tuple[str, int, str, float]) -> Document:
    """One fit."""
    data_name, seed, name, decay = task
    data = uw.load(data_name, seed=seed)
    torch.manual_seed(seed)
    model = GCN(data.num_features, 128, 2, data.num_classes, act="tanh", dropout=0.5)
    optimiser = OPTIMISERS[name](model.parameters(), lr=0.01, weight_decay=decay)
    watch = uw.integrations.Watch(model, data, optimiser, epochs=EPOCHS, checkpoints=(), polish={"examine": False})
    trained = data.train_mask.nonzero().flatten()
    for _ in range(EPOCHS):
        for batch in trained[torch.randperm(trained.numel())].chunk(BATCHES):
            optimiser.zero_grad()
            outputs = model.train()(data.x, data.edge_index)[batch]
            nn.functional.cross_entropy(outputs, data.y[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        watch.step()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        watch.finish()
    assert watch.polished is not None
    report = watch.polished.report
    keys = ("val_f1_before", "val_f1", "test_f1_before", "test_f1", "evaluations")
    found = {"data": data_name, "seed": seed, "optimiser": name, "decay": decay, **{key: report[key] for key in keys}}
    return found | {"warnings": [str(one.message) for one in said]} | made("cpu")


def main() -> None:
    """Measure what is asked for and not there."""
    parser = arguments(__doc__, "loops", data=("demo", "cora"), seeds=2, jobs=1)
    asked = parser.parse_args()
    path = asked.out / "cells.jsonl"
    done = lines(path)
    known = {_key(cell) for cell in done}
    tasks = [(data, seed, *fit) for data in asked.data for seed in range(asked.seeds) for fit in FITS]
    for cell in each(measure, [task for task in tasks if task not in known], asked.jobs):
        done.append(cell)
        write_lines(path, sorted(done, key=_key))
    PAGE.write(asked.out)


def _key(cell: Document) -> tuple[str, int, str, float]:
    return cell["data"], cell["seed"], cell["optimiser"], cell["decay"]


if __name__ == "__main__":
    main()

"""One change to a recommender or to a classifier of whole graphs that was trained to a minimum.

    python benchmarks/changes_tasks.py

Users, items and interactions that come to a generated recommender, graphs that come to MUTAG and labels of graphs that
are put right. Each is answered by ``gif`` and compared with a model that is trained anew with the same seed, as
``changes.py`` does for nodes. The gap of a recommender is that of the softmax over all items, of every user.
"""

from typing import Any

import torch
from pages.changes import PAGE
from shared import Document, append, arguments, lines, made
from torch import Tensor

import unweave as uw
from tasks import bipartite
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.tasks import Graphs, Recommendation

USERS, ITEMS, EACH = 400, 200, 15
KINDS = ("users added", "items added", "interactions added", "graphs added", "labels corrected")


def recommender(kind: str, share: float) -> tuple[Recommendation, uw.Change, Any]:
    """The recommender before, what changes, and the model to train."""
    whole = bipartite(USERS, ITEMS, EACH)
    pairs = whole.own_pairs() - torch.tensor([0, USERS])
    few = {"users": max(1, int(share * USERS)), "items": max(1, int(share * ITEMS))}
    users, items = (
        size - (few[name] if kind.startswith(name) else 0) for name, size in (("users", USERS), ("items", ITEMS))
    )
    if kind.startswith("interactions"):
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))
        late = torch.zeros(len(pairs), dtype=torch.bool)
        late[order[: max(1, int(share * len(pairs)))]] = True
    else:
        late = (pairs[:, 0] >= users) | (pairs[:, 1] >= items)
    start = Recommendation.of(pairs[~late], users=users, items=items, negatives=8)
    change = start.change(USERS - users, ITEMS - items, [tuple(pair) for pair in pairs[late].tolist()])
    return start, change, uw.models.LightGCN(users + items, width=256)


def graphs(kind: str, share: float) -> tuple[Graphs, uw.Change, Any]:
    """The data set before, what changes, and the model to train."""
    whole = uw.load("mutag", seed=0)
    every = whole.graphs()
    some = max(1, int(share * len(every)))
    known = every[:-some] if kind.startswith("graphs") else every
    start = Graphs.of(known, seed=0)
    if kind.startswith("graphs"):
        change = start.change(graphs=every[-some:])
    else:
        number = (start.train_mask & (start.node_type == 2)).nonzero().flatten()[:some] - int(
            (start.node_type == 1).sum()
        )
        change = start.change(labels={int(n): 1 - int(known[int(n)].y) for n in number})
    return start, change, uw.models.build("pooled-sign", start.num_features, 2, forgettable=True, nodes=len(known))


def shown(run: uw.Run) -> Tensor:
    """What is compared: of a recommender every user's choice of all items, else the classes of the examples."""
    data = run.data
    if isinstance(data, Recommendation):
        return data.log_probabilities(run.model)
    return log_probabilities(run.model, data)[(data.train_mask | data.val_mask | data.test_mask)]


def measure(kind: str, share: float) -> Document:
    """What an update closes of the gap that doing nothing leaves."""
    of_graphs = kind.startswith(("graphs", "labels"))
    start, change, model = (graphs if of_graphs else recommender)(kind, share)
    run = uw.train(model, start, forgettable=True)
    after, none, anew = (run.update(change, method) for method in ("gif", "none", "retrain"))
    target, found, nothing = map(shown, (anew, after, none))
    every = torch.ones(len(target), dtype=torch.bool)
    left, before = gap(target, found, every), gap(target, nothing, every)
    receipt = after.receipts[-1]
    cell = {"data": "mutag" if of_graphs else "bipartite-6k", "model": "pooled-sign" if of_graphs else "lightgcn"}
    told = {"grade": receipt.grade, "passes": receipt.passes, "retraining": anew.receipts[-1].passes}
    facts = {"way": "forgettable", "kind": kind, "share": share, "gap": before, "left": left}
    return {**cell, **facts, "closed": closed(left, before), **told}


def main() -> None:
    """Measure every change that is not measured yet."""
    torch.set_num_threads(1)
    asked = arguments(__doc__, "changes", shares=(0.01, 0.05)).parse_args()
    out = asked.out / "tasks.jsonl"
    known = {(d["kind"], d["share"]) for d in lines(out)}
    for kind in KINDS:
        for share in asked.shares:
            if (kind, share) not in known:
                found = measure(kind, share)
                append(out, {**found, **made("cpu")})
                print(kind, share, found["gap"], found["closed"], found["passes"], found["retraining"], flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

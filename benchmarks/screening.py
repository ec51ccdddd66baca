"""Screening: how often random requests are flagged, how often chosen ones, and what they really do.

Usage: python benchmarks/screening.py --data cora --model gcn --seeds 5

For each seed a model is trained and prepared. *Random*: the damage of random requests is predicted, and each is
compared with forty others of them, many times over. *Chosen*: attackers pick what to delete (:func:`attackers`). Chosen
requests and a few random ones are also retrained for, to see what they really do. What was measured for a seed is not
measured again. The page is made from ``screening.json`` alone (``page.py``).
"""

import itertools
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from pages.screening import PAGE, read
from shared import Document, arguments, made, trained, write_document
from torch_geometric.data import Data

import unweave as uw
from unweave.auditing.before.damage import OTHERS, VALIDATION, Probe
from unweave.auditing.before.screen import DRAWS, RATE
from unweave.auditing.limits import limits_of
from unweave.curvature.preparation import checked_objective
from unweave.experiments.paper.results import rounded
from unweave.graph.index import distinct_edges
from unweave.graph.removal import remove
from unweave.objective.scores import log_probabilities

SIZES = {"nodes": (1, 5, 50, 200), "edges": (1, 10, 100, 500), "features": (1, 20, 200), "labels": (1, 20, 200)}
CHOSEN = {"nodes": (5, 50), "edges": (10, 100), "features": (50,), "labels": (50,)}
TRIES = 2000
RETRAINED = 12
"""Random requests of each kind, of the size of the chosen ones, that are retrained for."""


def request_of(kind: str, items: list[Any]) -> uw.Request:
    """A request of one kind."""
    if kind == "features":
        return uw.Request(features=dict.fromkeys(items, "all"))
    if kind == "edges":
        return uw.Request(edges=[(u, v) for u, v in items])
    return uw.Request(nodes=items) if kind == "nodes" else uw.Request(labels=items)


def candidates(kind: str, data: Data) -> list[Any]:
    """What may be asked for."""
    found: list[Any] = (distinct_edges(data) if kind == "edges" else data.train_mask.nonzero().flatten()).tolist()
    return found


def drawn(kind: str, size: int, every: list[Any], rng: np.random.Generator) -> uw.Request:
    """A random request."""
    return request_of(kind, [every[i] for i in rng.permutation(len(every))[:size]])


def rates(probe: Probe, count: int, seed: int) -> dict[str, float]:
    """How often one of some random requests lies above the limit of forty others."""
    found = {}
    for kind, sizes in SIZES.items():
        every = candidates(kind, probe.data)
        for size in sizes:
            rng = np.random.default_rng([seed, size])
            damages = [probe.damage(drawn(kind, size, every, rng)).values() for _ in range(count)]
            table = np.array([[damage.total for damage in both] for both in damages])
            flagged = 0
            for _ in range(TRIES):
                first, *others = rng.permutation(count)[: DRAWS + 1]
                limits = [limits_of(column).upper(RATE / table.shape[1]) for column in table[others].T]
                flagged += bool((table[first] > limits).any())
            found[f"{kind} {size}"] = flagged / TRIES
    return found


def attackers(probe: Probe, kind: str) -> dict[str, list[Any]]:
    """What each attacker would ask for, most wanted first.

    ``validation`` tries every item alone and takes those of largest predicted damage; it knows the model and the labels
    of the validation nodes. ``elsewhere`` does the same to the test nodes, whose labels it takes from the model.
    ``hubs`` takes what has the highest degree, ``one class`` training nodes of the smallest class or edges between
    them.
    """
    data, every = probe.data, candidates(kind, probe.data)
    alone = [probe.damage(request_of(kind, [item])) for item in every]
    degree = torch.bincount(data.edge_index[0], minlength=data.num_nodes).tolist()
    rare = data.train_mask & (data.y == int(torch.bincount(data.y[data.train_mask]).argmin()))
    ends = [item if kind == "edges" else [item] for item in every]
    orders = {
        "validation": [damage[VALIDATION].total for damage in alone],
        "elsewhere": [damage[OTHERS].total for damage in alone],
        "hubs": [sum(degree[node] for node in nodes) for nodes in ends],
        "one class": [all(bool(rare[node]) for node in nodes) for nodes in ends],
    }
    return {
        name: [every[i] for i in np.argsort(-np.array(by, dtype=float), kind="stable")] for name, by in orders.items()
    }


def real(run: uw.Run, probe: Probe, request: uw.Request) -> dict[str, float]:
    """What retraining without a request does to the losses that are watched."""
    done = run.forget(request, "retrain", allow_class_loss=True)
    before, after = log_probabilities(run.model, run.data), log_probabilities(done.model, done.data)
    labels = torch.where(probe.watched[VALIDATION], run.data.y, before.argmax(dim=-1))
    changes = uw.losses.cross_entropy(after, labels) - uw.losses.cross_entropy(before, labels)
    return {name: float(changes[mask].mean()) for name, mask in probe.staying(remove(run.data, request)).items()}


def probe_of(run: uw.Run, data: Data) -> Probe:
    """The damage that requests to a run do, on a graph of the same training nodes."""
    return Probe(checked_objective(run.model, data, run.recipe.weight_decay, run.loss, run.forward), run.prepared)


def measure(data_name: str, model: str, seed: int, count: int) -> Document:
    """One seed."""
    data = uw.load(data_name, seed=seed)
    run = trained(model, data, "ordinary", seed=seed).prepare()
    probe = probe_of(run, data)
    chosen, pairs = [], []
    for kind, sizes in CHOSEN.items():
        wanted, every = attackers(probe, kind), candidates(kind, data)
        for size, (attacker, items) in itertools.product(sizes, wanted.items()):
            request = request_of(kind, items[:size])
            found = run.screen(request)
            row: Document = {"attacker": attacker, "kind": kind, "size": size}
            row |= {"flagged": found.flagged, "passes": found.passes, "seconds": found.seconds}
            row |= {name: asdict(effect) for name, effect in found.effects.items()}
            chosen.append(row | {"real": real(run, probe, request)})
        rng = np.random.default_rng([seed, 77])
        for _ in range(RETRAINED):
            request = drawn(kind, sizes[-1], every, rng)
            both = {name: damage.total for name, damage in probe.damage(request).items()}
            pairs.append({"kind": kind, "damage": both, "real": real(run, probe, request)})
    return {"seed": seed, "rates": rates(probe, count, seed), "chosen": chosen, "pairs": pairs}


def main() -> None:
    """Measure every seed that is missing, and make the page."""
    parser = arguments(__doc__, "screening", data="cora", model="gcn", seeds=5, count=200)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    setting = {"data": asked.data, "model": asked.model, "count": asked.count, "draws": DRAWS, "rate": RATE}
    found = read(asked.out) or {"setting": setting, "seeds": []}
    if found["setting"] != setting:
        parser.error(f"{asked.out} has {found['setting']}; choose another --out")
    for seed in sorted(set(range(asked.seeds)) - {done["seed"] for done in found["seeds"]}):
        found["seeds"].append(rounded(measure(asked.data, asked.model, seed, asked.count)))
        write_document(asked.out / "screening.json", found | made("cpu"))
        print(f"seed {seed}", flush=True)
    PAGE.write(asked.out)


if __name__ == "__main__":
    main()

"""Wrong labels and attacked edges: how well they are found, and what a repair brings back.

    python benchmarks/repair.py --data demo,cora --models gcn --attacks uniform,nearest:0.3

An attack is measured at all its levels (``--levels``), or at the one that is named.
A cell is one attack on one graph and one model, trained on the attacked graph. Cells are written to ``repair.jsonl`` as
they are done, so that an interrupted run goes on where it stopped; the page is made of that file alone. ``cleanlab`` is
used where it is installed; elsewhere its row is that of the stored cell, if any.
"""

import time
import warnings
from copy import copy, deepcopy
from functools import cache, partial
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import torch
from attacks import EDGES, FEATURES, LABELS, Attacked, attack, keys_of
from pages.repair import PAGE, cell_of, read
from shared import RESULTS, Document, arguments, each, made, write_lines
from torch import Tensor

import unweave as uw
from unweave.experiments.poison import attack_success
from unweave.models import build
from unweave.objective.scores import log_probabilities, micro_f1
from unweave.repairing.checks import KINDS
from unweave.repairing.edges import judge_edges
from unweave.repairing.repair import ROUNDS, mend
from unweave.repairing.rounds import Watch, on_cpu
from unweave.repairing.rows import judge_rows
from unweave.repairing.suspects import within
from unweave.repairing.triggers import find_triggers
from unweave.repairing.unseen import FOLDS, unseen

DECAYS = {"demo": 3e-4, "cora": 1e-3, "citeseer": 3e-3, "pubmed": 3e-4, "photo": 3e-4}
"""Of forgettable models: what the validation nodes choose for a GCN on the graph as it is."""

LEVELS = dict.fromkeys(LABELS, ("0.01", "0.05", "0.1", "0.2", "0.3")) | dict.fromkeys(
    EDGES + FEATURES, ("0.05", "0.1", "0.2")
)


FIRST = 0.2
"""Expected share of false discoveries at which the first look is judged."""


SAME = 1e-3
"""Average precision by which two measurements of one look may differ: other machines round otherwise."""


def trained(data: Any, name: str, model: str, way: str, seed: int, classes: int) -> uw.Run:
    """A run on a graph."""
    forgettable = way == "forgettable"
    nodes = int(data.train_mask.sum()) if forgettable else None
    module = build(model, data.num_features, classes, forgettable=forgettable, nodes=nodes).to(data.x.device)
    decay = DECAYS[name] if forgettable else 5e-4
    run = uw.train(
        module, data, seed=seed, epochs=100, weight_decay=decay, forgettable=forgettable, examine=not forgettable
    )
    return run if run.prepared is not None else run.prepare()


def auc(truth: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve, ties counting half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    hits, misses = int(truth.sum()), int((~truth).sum())
    return float((rank[truth].sum() - hits * (hits + 1) / 2) / (hits * misses))


def average_precision(truth: np.ndarray, score: np.ndarray) -> float:
    """Mean precision at the places of the hits; ties are taken together."""
    value, place = np.unique(-score, return_inverse=True)
    hits, all_of_them = np.bincount(place, truth, value.size), np.bincount(place, minlength=value.size)
    precision = np.cumsum(hits) / np.cumsum(all_of_them)
    return float((precision * hits).sum() / hits.sum())


def label_scores(run: uw.Run, watch: Watch, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """How suspect each training label is, by every detector; and how probable we say it is wrong."""
    data = on_cpu(run.data)
    train = data.train_mask
    own = data.y[train][:, None]
    _, ours = watch.labels_of(run)
    wrong = ours.wrong.clone()
    for trigger in find_triggers(data, ours):
        wrong[list(trigger.nodes)] = wrong[list(trigger.nodes)].clamp(min=trigger.wrong)
    wrong = wrong[train]
    first = unseen(run, folds=watch.folds, seed=watch.seed)
    seen = _said(run)
    scores = {
        "ours": wrong,
        "training loss": -seen[train].gather(1, own).flatten(),
        "unseen loss": -first.log_p[train].gather(1, own).flatten(),
        "self-influence, by outputs": _self_influence(run)[train],
        "random": torch.rand(int(train.sum()), generator=torch.Generator().manual_seed(seed)).double(),
    }
    scores |= _cleanlab(data.y[train].numpy(), first.log_p[train].exp().numpy())
    return scores, wrong


def _cleanlab(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, Tensor]:
    """What cleanlab says of the same out-of-sample probabilities that we start from; nothing where it is missing."""
    try:
        quality = import_module("cleanlab.rank").get_label_quality_scores
    except ImportError:
        return {}
    return {
        f"cleanlab, {words}": -torch.from_numpy(quality(labels, probabilities, method=method)).double()
        for method, words in (("self_confidence", "self-confidence"), ("normalized_margin", "margin"))
    }


def _self_influence(run: uw.Run) -> Tensor:
    """How much a node's label made its own prediction, to first order, with outputs in the place of parameters.

    gᵀ(H + δI)⁻¹g with g = p − y and H = diag(p) − ppᵀ: what other nodes do to the same parameters is left out.
    """
    data, p = on_cpu(run.data), _said(run).exp()
    pull = p.clone()
    pull[torch.arange(p.size(0)), data.y.clamp(min=0)] -= 1
    curve = torch.diag_embed(p) - p[:, :, None] * p[:, None, :] + 1e-2 * torch.eye(p.size(1), dtype=torch.double)
    found: Tensor = (pull * torch.linalg.solve(curve, pull)).sum(dim=1)
    return found


def edge_scores(run: uw.Run, watch: Watch, seed: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """How suspect each edge is, by every detector; the edges, and how probable we say each is wrong."""
    data = on_cpu(run.data)
    _, labels = watch.labels_of(run)
    found = judge_edges(data, labels, seed=watch.seed)
    u, v = found.pairs.t()
    present = data.x != 0
    both, some = ((op(present[u], present[v])).double().sum(dim=1) for op in (torch.logical_and, torch.logical_or))
    said = _said(run).exp()
    scores = {
        "ours": found.wrong,
        "Jaccard of features": -both / some.clamp(min=1),
        "cosine of features": -torch.cosine_similarity(data.x[u], data.x[v]).double(),
        "disagreement of predictions": 1 - (said[u] * said[v]).sum(dim=1),
        "random": torch.rand(u.numel(), generator=torch.Generator().manual_seed(seed)).double(),
    }
    return scores, found.pairs, found.wrong


def row_scores(run: uw.Run, watch: Watch, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """How suspect the features of each node are, by every detector; and how probable we say they are wrong."""
    data = on_cpu(run.data)
    _, labels = watch.labels_of(run)
    found = judge_rows(data, labels, seed=watch.seed)
    said = _said(run)
    known = data.train_mask
    loss = torch.where(known, -said.gather(1, data.y.clamp(min=0)[:, None]).flatten(), 0.0)
    scores = {
        "ours": found.wrong,
        "cosine with neighbours": -found.alike,
        "training loss": loss,
        "random": torch.rand(data.num_nodes, generator=torch.Generator().manual_seed(seed)).double(),
    }
    return scores, found.wrong


@cache
def _clean_f1(way: str, name: str, model: str, seed: int, device: str) -> float:
    """F1 of the model that was trained on the graph as it is."""
    clean = uw.load(name, seed=seed)
    run = trained(copy(clean).to(device), name, model, way, seed, int(clean.y[clean.train_mask].max()) + 1)
    return micro_f1(_said(run), clean.y, clean.test_mask)


def _said(run: uw.Run) -> Tensor:
    """Log-probabilities of the classes by a run."""
    return log_probabilities(run.model, run.data, run.forward).detach().double().cpu()


def measure(device: str, known: dict[tuple[Any, ...], float], task: tuple[str, str, str, str, int]) -> Document:
    """One cell.

    Args:
        device: Where models are.
        known: F1 without an attack, by way, data, model and seed, where it is known already.
        task: Way, data, model, attack and seed.
    """
    way, name, model, spec, seed = task
    warnings.simplefilter("ignore", UserWarning)
    clean = uw.load(name, seed=seed)
    classes = int(clean.y[clean.train_mask].max()) + 1
    attacked = attack(spec, clean, seed=seed, device=device)
    runs = {}
    start = time.perf_counter()
    runs["before"] = before = trained(copy(attacked.data).to(device), name, model, way, seed, classes)
    took = {"training": time.perf_counter() - start}
    start = time.perf_counter()
    watch = Watch.of(before, None, FOLDS, seed)
    watch.labels_of(before)
    looked = time.perf_counter() - start
    detection = _detection(before, watch, attacked, seed)  # by the same look, which is not taken twice
    start = time.perf_counter()
    repaired = mend(before, watch, KINDS, ROUNDS)
    took["repair"] = looked + time.perf_counter() - start
    runs["after"] = repaired.run
    runs["truth"] = before.forget(attacked.truth, allow_class_loss=True)
    f1 = {key: micro_f1(_said(run), clean.y, clean.test_mask) for key, run in runs.items()}
    success = {}
    if attacked.poison is not None:
        success = {
            key: attack_success(deepcopy(run.model).cpu(), on_cpu(run.data), attacked.poison)
            for key, run in runs.items()
        }
    about = (way, name, model, seed)
    f1["clean"] = known[about] if about in known else _clean_f1(*about, device)
    return {
        "config": {"way": way, "data": name, "model": model, "attack": spec, "seed": seed},
        "f1": f1,
        "success": success,
        "detection": detection,
        "done": len(repaired.done),
        "expected_false": repaired.expected_false,
        "known_false": _known_false(repaired, attacked),
        "held_out": [[score.loss, score.f1] for score in repaired.held_out],
        "steps": [[step.kind, step.suspects, step.expected_false, step.kept, step.why] for step in repaired.steps],
        "seconds": took,
        **made(device),
    }


def _detection(run: uw.Run, watch: Watch, attacked: Attacked, seed: int) -> Document:
    train = run.data.train_mask.cpu()
    if attacked.nodes.numel():
        scores, wrong = label_scores(run, watch, seed)
        truth = torch.zeros(run.data.num_nodes, dtype=torch.bool)
        truth[attacked.nodes] = True
        truth = truth[train]
    elif attacked.rows.numel():
        scores, wrong = row_scores(run, watch, seed)
        truth = torch.zeros(run.data.num_nodes, dtype=torch.bool)
        truth[attacked.rows] = True
    else:
        scores, pairs, wrong = edge_scores(run, watch, seed)
        truth = torch.isin(keys_of(pairs, run.data.num_nodes), keys_of(attacked.edges, run.data.num_nodes))
    known = truth.numpy()
    first = within(wrong, FIRST)
    return {
        "wrong": int(known.sum()),
        "of": int(known.size),
        "auc": {name: auc(known, score.numpy()) for name, score in scores.items()},
        "ap": {name: average_precision(known, score.numpy()) for name, score in scores.items()},
        "proposed": int(first.numel()),
        "expected_false": float((1 - wrong[first]).mean()) if first.numel() else None,
        "known_false": float((~truth[first]).double().mean()) if first.numel() else None,
    }


def _known_false(repaired: uw.Repair, attacked: Attacked) -> float | None:
    """The share of what was forgotten or corrected that the attacker had not touched."""
    known = {(int(node),) for node in (*attacked.nodes, *attacked.rows)} | {
        (min(e), max(e)) for e in attacked.edges.tolist()
    }
    done = [tuple(sorted(suspect.item)) not in known for suspect in repaired.done]
    return sum(done) / len(done) if done else None


def with_looks(document: Document, stored: Document | None) -> Document:
    """A cell with the detection of an earlier measurement that had more detectors, where ours is the same."""
    if stored is None:
        return document
    here, there = document["detection"]["ap"], stored["detection"]["ap"]
    if not here.keys() < there.keys() or abs(here["ours"] - there["ours"]) > SAME:
        return document
    return document | {
        "detection": stored["detection"],
        "looked": {key: stored[key] for key in ("commit", "environment")},
    }


def main() -> None:
    """Measure the cells that are missing, and make the page."""
    axes: dict[str, Any] = {"ways": ("forgettable",), "data": ("demo", "cora"), "models": ("gcn",)}
    axes |= {"attacks": (*LABELS, *EDGES, *FEATURES), "seeds": (0,)}
    parser = arguments(__doc__, "repair", **axes, levels="all", jobs=1, device="cpu")
    asked = parser.parse_args()
    found, tasks = read(asked.out), []
    for way, data, model, kind, seed in product(*(getattr(asked, name) for name in axes)):
        levels = LEVELS[kind.partition(":")[0]] if asked.levels == "all" else asked.levels.split(",")
        specs = [kind] if ":" in kind else [f"{kind}:{level}" for level in levels]
        tasks += [(way, data, model, spec, seed) for spec in specs]
    stored = read(RESULTS / "repair") | found  # what a model is without an attack does not hang on the repair
    known = {(*cell[:3], cell[4]): d["f1"]["clean"] for cell, d in stored.items()}
    missing = [task for task in tasks if task not in found]
    for document in each(partial(measure, asked.device, known), missing, asked.jobs):
        cell = cell_of(document)
        found[cell] = with_looks(document, stored.get(cell))
        write_lines(asked.out / "repair.jsonl", (found[cell] for cell in sorted(found)))
        PAGE.write(asked.out)


if __name__ == "__main__":
    main()

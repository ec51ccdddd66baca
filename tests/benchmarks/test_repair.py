"""The attacks of ``repair.py`` tell the truth about themselves, and its measures are what they are called."""

import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import unweave as uw

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # PyG calls its attacks experimental
    import attacks
    import repair
from pages.repair import is_best, read, recovered, sums
from shared import RESULTS


@pytest.fixture(scope="module")
def data() -> Data:
    found = uw.load("demo", seed=0)
    return found.subgraph(torch.arange(found.num_nodes) < 500)


def pairs(data: Data) -> set[tuple[int, ...]]:
    return {tuple(sorted(pair)) for pair in data.edge_index.t().tolist()}


@pytest.mark.parametrize("spec", ["uniform:0.2", "nearest:0.2", "backdoor:0.2"])
def test_wrong_labels_are_those_that_it_names(data: Data, spec: str) -> None:
    found = attacks.attack(spec, data, seed=1)
    changed = (found.data.y != data.y).nonzero().flatten()
    assert torch.equal(changed, found.nodes.sort().values)
    assert bool(data.train_mask[changed].all())
    assert changed.numel() > 20
    assert pairs(found.data) == pairs(data)
    assert found.truth.labels == tuple(changed.tolist())


@pytest.mark.parametrize("spec", ["random:0.1", "dice:0.1"])
def test_added_edges_are_those_that_it_names(data: Data, spec: str) -> None:
    found = attacks.attack(spec, data, seed=1)
    before, after = pairs(data), pairs(found.data)
    assert after - before == {tuple(pair) for pair in found.edges.tolist()}
    u, v = found.edges.t()
    if spec.startswith("dice"):
        assert bool((data.y[u] != data.y[v]).all())
        assert all(data.y[u] == data.y[v] for u, v in before - after)
        assert before - after
    else:
        assert before <= after
    again = attacks.attack(spec, data, seed=1)
    assert torch.equal(again.edges, found.edges)


def test_the_measures_of_detection() -> None:
    rng = np.random.default_rng(0)
    truth, score = rng.random(200) < 0.2, rng.integers(0, 20, 200).astype(float)
    better = [(a > b) + (a == b) / 2 for a in score[truth] for b in score[~truth]]
    assert repair.auc(truth, score) == pytest.approx(np.mean(better))
    distinct = score + 1e-6 * rng.random(200)
    order = np.argsort(-distinct)
    hits = truth[order]
    at_hits = (np.cumsum(hits) / np.arange(1, 201))[hits]
    assert repair.average_precision(truth, distinct) == pytest.approx(at_hits.mean())
    assert repair.average_precision(truth, np.zeros(200)) == pytest.approx(truth.mean()), "ties are no order"


def test_what_counts_as_best_and_as_recovered() -> None:
    document = {"detection": {"ap": {"ours": 0.695, "other": 0.7}}, "f1": {"clean": 0.8, "before": 0.7, "after": 0.78}}
    assert is_best(document, "ap")
    assert recovered(document) == pytest.approx(0.8)
    document = {"detection": {"ap": {"ours": 0.68, "other": 0.7}}, "f1": {"clean": 0.8, "before": 0.79, "after": 0.8}}
    assert not is_best(document, "ap")
    assert recovered(document) is None


def test_an_earlier_look_is_kept_only_where_it_is_the_same_with_more_detectors() -> None:
    here = {"detection": {"ap": {"ours": 0.7}}, "f1": 1}
    there = {"detection": {"ap": {"ours": 0.7, "cleanlab": 0.6}}, "f1": 2, "commit": "c", "environment": {}}
    kept = repair.with_looks(here, there)
    assert kept["detection"] == there["detection"]
    assert kept["f1"] == 1
    assert kept["looked"] == {"commit": "c", "environment": {}}
    other = there | {"detection": {"ap": {"ours": 0.8, "cleanlab": 0.6}}}
    assert repair.with_looks(here, other) == repair.with_looks(here, None) == here


def test_the_guide_says_what_was_measured() -> None:
    found = read(RESULTS / "repair")
    told = sums(found)
    guide = " ".join((RESULTS.parents[1] / "docs" / "repair.md").read_text(encoding="utf-8").split())
    for title, own in told.items():
        assert f"| {title} | {own['best ap']:.0f} of {own['cells']:.0f} |" in guide
        assert f"| {own['back']:.0f} of {own['cost']:.0f}, {own['mean']:.2f} on average | {own['lower']:.0f} |" in guide
        assert f"| {own['lower']:.0f} | {own['honest']:.0f} of {own['done']:.0f} |" in guide
    success = [d["success"] for d in found.values() if d.get("success")]
    for key in ("before", "after"):
        values = [each[key] for each in success]
        assert f"{min(values):.2f} to {max(values):.2f}" in guide

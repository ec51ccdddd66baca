"""Backdoors: the pattern is found by who contradicts it, and its success goes."""

import pytest
import torch

import unweave as uw
from unweave.experiments.poison import Poisoned, attack_success, poison
from unweave.repairing.checks import halves
from unweave.repairing.labels import judge_labels
from unweave.repairing.triggers import find_triggers
from unweave.repairing.unseen import unseen


def run_on(data: object, classes: int) -> uw.Run:
    module = uw.models.SGC(data.num_features, classes)  # type: ignore[attr-defined]
    return uw.train(module, data, seed=0, epochs=60, weight_decay=1e-3, forgettable=True)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def poisoned() -> Poisoned:
    data = uw.load("demo", seed=0)
    return poison("triggered:0.1", data.subgraph(torch.arange(data.num_nodes) < 1000), seed=0)


@pytest.fixture(scope="module")
def run(poisoned: Poisoned) -> uw.Run:
    return run_on(poisoned.data, 6)


def test_the_pattern_and_who_carries_it_are_found(poisoned: Poisoned, run: uw.Run) -> None:
    labels = judge_labels(poisoned.data, unseen(run, folds=5), halves(run, 0)[0])
    (found,) = [trigger for trigger in find_triggers(poisoned.data, labels) if trigger.wrong > 0.8]
    assert found.target == poisoned.target
    assert set(found.columns) & set(poisoned.columns)
    hits = len(set(found.nodes) & set(poisoned.poison.nodes))
    assert hits >= 0.8 * len(poisoned.poison.nodes)
    assert hits >= 0.8 * len(found.nodes)


def test_a_backdoor_is_closed(poisoned: Poisoned, run: uw.Run) -> None:
    repaired = uw.repair(run, kinds=["triggers"], rounds=1, folds=5)
    before, after = (attack_success(each.model, each.data, poisoned) for each in (run, repaired.run))
    assert before > 0.5
    assert after < before / 3
    assert repaired.steps[0].kept
    assert repaired.held_out[1].f1 >= repaired.held_out[0].f1
    assert all("pattern of features" in suspect.why for suspect in repaired.done)


def test_where_there_is_none_none_is_proposed() -> None:
    data = uw.load("demo", seed=0)
    data = data.subgraph(torch.arange(data.num_nodes) < 1000)
    run = run_on(data, 6)
    labels = judge_labels(data, unseen(run, folds=5), halves(run, 0)[0])
    assert [trigger for trigger in find_triggers(data, labels) if trigger.wrong > 0.8] == []

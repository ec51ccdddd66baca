"""Groups, and proof by removal."""

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.inspection.graphs import DECAY, graph, look, minimum, trained, validation
from unweave.experiments.neighbourhood import plot_inspection
from unweave.inspection import Inspection
from unweave.inspection.groups import _propagated


@pytest.fixture(scope="module")
def data() -> Data:
    return graph(40)


@pytest.fixture(scope="module")
def found(data: Data) -> Inspection:
    return look(trained("gcn", data, hidden=8, activation="tanh"), data)


def test_confirmed_by_forgetting(found: Inspection, data: Data) -> None:
    proof = found.confirm(3, "edges")
    assert [one.predicted for one in proof.each] == [one.effect for one in found.top("edges", 3)]
    for one, item in zip(proof.each, found.top("edges", 3), strict=True):
        left = uw.unlearn(
            found.subject.objective.model, data, found.request(item), "gif",
            weight_decay=DECAY, prepared=found.subject.prepared,
        )  # fmt: skip
        assert one.actual == pytest.approx(validation(left.model, left.data, data) - found.value)
        assert one.actual * one.predicted > 0
    assert proof.together.predicted == pytest.approx(found.group(found.top("edges", 3)))
    assert "all 3 together" in str(proof)
    assert len(proof.to_dict()["each"]) == 3


def test_confirmed_of_every_kind(found: Inspection) -> None:
    for kind in ("nodes", "labels", "features"):
        (one,) = found.confirm(1, kind).each
        assert one.actual * one.predicted > 0


def test_a_rehearsal_gives_an_interval_that_holds(found: Inspection) -> None:
    done = found.rehearse("edges", 20)
    assert done.spearman > 0.8
    assert done.warning is None
    within = [low <= one.actual <= high for one in done.removals for low, high in [done.interval(one.predicted)]]
    assert 0.8 <= sum(within) / len(within) < 1
    assert "four times of five" in str(done)
    with pytest.raises(uw.RequestError, match="at least 8"):
        found.rehearse("edges", 3)


def test_scores_of_a_model_that_was_not_trained_to_a_minimum_are_warned_of(data: Data) -> None:
    run = uw.train(uw.models.GCN(6, 3).double(), data, epochs=4, seed=0)
    one = run.inspect().rehearse("labels", 8)
    assert (one.warning is None) == (one.spearman >= 0.8)


def test_the_strongest_set_is_not_the_largest_scores(data: Data) -> None:
    model = trained("gcn", data, hidden=8, activation="tanh")
    found = look(model, data)
    best = found.strongest("edges", 3)
    assert len({one.item for one in best.items}) == 3
    assert best.items[0].item == found.top("edges", 1, order="lowers")[0].item
    assert best.together != pytest.approx(best.apart)
    left = uw.unlearn(
        model, data, found.request(best.items), "gif", weight_decay=DECAY, prepared=found.subject.prepared
    )
    actual = validation(left.model, left.data, data) - found.value
    largest = found.request(found.top("edges", 3, order="lowers"))
    other = uw.unlearn(model, data, largest, "gif", weight_decay=DECAY, prepared=found.subject.prepared)
    assert actual <= validation(other.model, other.data, data) - found.value + 1e-6
    assert actual == pytest.approx(best.together, rel=0.5)
    with pytest.raises(uw.RequestError, match="columns"):
        found.strongest("features", 2)


def test_nodes_are_taken_one_after_the_other(found: Inspection, data: Data) -> None:
    best = found.strongest("nodes", 2)
    assert len({one.item for one in best.items}) == 2
    nodes = [one.item for one in best.items]
    left = uw.Request(nodes=nodes)
    model = minimum(found.subject.objective.model, uw.unlearn(
        found.subject.objective.model, data, left, "none", weight_decay=DECAY).data)  # fmt: skip
    gone = torch.tensor(nodes)
    rest = uw.unlearn(found.subject.objective.model, data, left, "none", weight_decay=DECAY).data
    before = validation(found.subject.objective.model, data, data, gone)
    assert validation(model, rest, data, gone) - before < 0


def test_communities(found: Inspection) -> None:
    parts = torch.arange(40) // 10
    told = found.communities(parts)
    assert sorted(len(one.nodes) for one in told) == [10] * 4
    assert told[0].effect == pytest.approx(found.group(uw.Request(nodes=list(told[0].nodes))))
    assert found.contribution(uw.Request(nodes=list(told[0].nodes))) == pytest.approx(-told[0].effect)
    assert found.communities()
    with pytest.raises(uw.RequestError, match="whole number"):
        found.communities(torch.zeros(3))


def test_label_propagation_finds_cliques() -> None:
    edges = [(a + 6 * c, b + 6 * c) for c in range(3) for a in range(6) for b in range(6) if a != b]
    edges += [(0, 6), (6, 0), (6, 12), (12, 6)]
    parts = _propagated(Data(edge_index=torch.tensor(edges).t(), num_nodes=18))
    assert all(len(set(parts[6 * c : 6 * c + 6].tolist())) == 1 for c in range(3))
    assert len(set(parts.tolist())) == 3


@pytest.mark.parametrize("of", ["validation", "node:3"])
def test_a_picture(data: Data, found: Inspection, tmp_path: Path, of: str) -> None:
    one = found if of == "validation" else look(found.subject.objective.model, data, of)
    assert plot_inspection(one, tmp_path / "found.png").stat().st_size > 10_000

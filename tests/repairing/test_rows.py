"""Which features are those of another node."""

import pytest
import torch

import unweave as uw
from tests.repairing.planted import planted, trained
from unweave.repairing.checks import halves
from unweave.repairing.labels import judge_labels
from unweave.repairing.rows import judge_rows
from unweave.repairing.suspects import suspect_rows, within
from unweave.repairing.unseen import unseen


@pytest.mark.parametrize("shift", [0, 1], ids=["neighbours alike", "neighbours differ"])
def test_features_of_other_nodes_are_found(shift: int) -> None:
    graph = planted(flipped=0.0, shift=shift, noise=0.6)
    data = graph.data
    swapped = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))[:40]
    data.x[swapped] = data.x[swapped.roll(1)]
    moved = swapped[graph.right[swapped] != graph.right[swapped.roll(1)]]
    run = trained(graph)
    labels = judge_labels(data, unseen(run), halves(run, 0)[0])
    found = judge_rows(data, labels)
    truth = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, moved, True)
    first = found.wrong.argsort(descending=True)[: moved.numel()]
    assert truth[first].double().mean() > 0.6
    sure = within(found.wrong, 0.2)
    assert sure.numel() > moved.numel() / 3
    assert truth[sure].double().mean() > 0.6
    assert "speak for class" in suspect_rows(found, first[:1])[0].why
    assert torch.equal(judge_rows(data, labels).wrong, found.wrong)


def test_a_repair_forgets_them() -> None:
    graph = planted(flipped=0.0, noise=1.3)
    swapped = torch.randperm(graph.data.num_nodes, generator=torch.Generator().manual_seed(1))[:140]
    graph.data.x[swapped] = graph.data.x[swapped.roll(1)]
    found = uw.repair(trained(graph), kinds="features", rounds=1, folds=4)
    assert found.done
    assert {suspect.action for suspect in found.done} == {"forgotten"}
    gone = [suspect.item[0] for suspect in found.done]
    assert not found.data.x[gone].any()
    assert sum(node in swapped.tolist() for node in gone) > len(gone) / 2
    assert [receipt.request_digest for receipt in found.run.receipts] == list(found.steps[0].requests)


def test_a_graph_without_edges_is_judged_by_its_labels() -> None:
    graph = planted(flipped=0.0)
    run = trained(graph)
    labels = judge_labels(graph.data, unseen(run), halves(run, 0)[0])
    graph.data.edge_index = graph.data.edge_index[:, :0]
    found = judge_rows(graph.data, labels)
    assert bool((found.wrong[~graph.data.train_mask] == 0).all())
    assert bool(torch.isfinite(found.wrong).all())

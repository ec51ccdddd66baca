"""Which edges join what does not belong together."""

import math

import pytest
import torch
from torch_geometric.utils import to_undirected

from tests.repairing.planted import planted, trained
from unweave.graph.index import edge_keys
from unweave.repairing.beliefs import chance_share, spread_out
from unweave.repairing.checks import halves
from unweave.repairing.edges import _chance, _common, _held, judge_edges
from unweave.repairing.labels import judge_labels
from unweave.repairing.rounds import Watch, judge
from unweave.repairing.suspects import suspect_edges, within
from unweave.repairing.unseen import unseen


@pytest.mark.parametrize("shift", [0, 1], ids=["neighbours alike", "neighbours differ"])
def test_edges_by_chance_are_found_whatever_edges_are_like(shift: int) -> None:
    graph = planted(flipped=0.0, chance=60, shift=shift)
    run = trained(graph)
    labels = judge_labels(graph.data, unseen(run), halves(run, 0)[0])
    found = judge_edges(graph.data, labels)
    known = {tuple(pair) for pair in graph.edges.tolist()}
    truth = torch.tensor([tuple(pair) in known for pair in found.pairs.tolist()])
    assert int(truth.sum()) == 60
    order = found.wrong.argsort(descending=True)
    assert truth[order[:60]].double().mean() > 0.6
    first = within(found.wrong, 0.3)
    assert truth[first].double().mean() > 0.6
    assert found.rate == pytest.approx(60 / truth.numel(), abs=0.06)
    words = suspect_edges(found, labels, first[:1])[0]
    assert "as often as by chance" in words.why
    again = judge_edges(graph.data, labels)
    assert torch.equal(again.wrong, found.wrong)


def test_neighbours_in_common_are_those_of_adamic_and_adar() -> None:
    ends = torch.tensor([[0, 1], [0, 2], [1, 2], [2, 3], [0, 4]])
    pairs = torch.tensor([[0, 1], [1, 3], [3, 4], [0, 3]])
    around = {0: {1, 2, 4}, 1: {0, 2}, 2: {0, 1, 3}, 3: {2}, 4: {0}}
    expected = [
        math.log1p(sum(1 / math.log(len(around[node]) + 1) for node in around[u] & around[v]))
        for u, v in pairs.tolist()
    ]
    assert _common(ends, pairs, 5).tolist() == pytest.approx(expected)


def test_edges_planted_at_nodes_that_are_predicted_cast_no_doubt_on_the_others() -> None:
    graph = planted(flipped=0.0, chance=90, size=480)
    data = graph.data
    aimed = graph.edges[~data.train_mask[graph.edges].all(dim=1)]
    between = graph.edges[data.train_mask[graph.edges].all(dim=1)]
    keys = (data.edge_index.min(dim=0).values, data.edge_index.max(dim=0).values)
    gone = torch.stack([(keys[0] == u) & (keys[1] == v) for u, v in between.tolist()]).any(dim=0)
    data.edge_index = data.edge_index[:, ~gone]
    run = trained(graph)
    found = judge_edges(data, judge_labels(data, unseen(run), halves(run, 0)[0]))
    inside = data.train_mask[found.pairs].all(dim=1)
    assert float(found.wrong[~inside].mean()) == pytest.approx(aimed.size(0) / int((~inside).sum()), abs=0.06)
    assert float(found.wrong[inside].mean()) < 0.06
    known = {tuple(pair) for pair in aimed.tolist()}
    truth = torch.tensor([tuple(pair) in known for pair in found.pairs.tolist()])
    assert truth[within(found.wrong, 0.3)].double().mean() > 0.6


def test_edges_that_join_the_most_unlike_do_not_pass_for_usual() -> None:
    """They are odder than chance, and nearly a third of those whose ends are both predicted."""
    graph = planted(flipped=0.0, size=480)
    data = graph.data
    free = (~data.train_mask).nonzero().flatten()
    rows = spread_out(data.x)[free]
    alike = (rows @ rows.t()).masked_fill(torch.ones(free.numel(), free.numel()).tril().bool(), 2.0)
    least = alike.flatten().argsort()[:100]
    ends = torch.stack([free[least // free.numel()], free[least % free.numel()]])
    data.edge_index = to_undirected(torch.cat([data.edge_index, ends], dim=1))
    run = trained(graph)
    found = judge_edges(data, judge_labels(data, unseen(run), halves(run, 0)[0]))
    truth = torch.isin(edge_keys(*found.pairs.t(), 480), edge_keys(*ends, 480))
    assert truth[found.wrong.argsort(descending=True)[:100]].double().mean() > 0.8


def test_a_node_holds_its_likeliest_edge_where_it_looks_like_one() -> None:
    ends = torch.tensor([[0, 1], [0, 2], [0, 3], [2, 3], [4, 5]])
    likely = torch.tensor([0.1, 3.0, 1.0, 2.0, -0.5], dtype=torch.double)
    # Node 1 holds its only edge, nodes 0 and 2 the same one, node 3 its better one; 4 and 5 have none that is like one.
    assert _held(likely, ends, 7).tolist() == [True, True, False, True, False]


def test_repair_leaves_no_node_without_the_edge_that_it_holds() -> None:
    graph = planted(flipped=0.0, chance=60)
    run = trained(graph)
    watch = Watch.of(run, None, 5, 0)
    found = judge_edges(graph.data, watch.labels_of(run)[1])
    asked = {suspect.item for suspect in judge(run, "edges", watch)}
    held = {tuple(pair) for pair in found.pairs[found.held].tolist()}
    assert asked
    assert not asked & held


def test_chance_pairs_are_no_edges_and_of_the_same_kinds() -> None:
    graph = planted(flipped=0.0)
    trained = graph.data.train_mask
    edges = {tuple(sorted(pair)) for pair in graph.data.edge_index.t().tolist()}
    ends = torch.tensor(sorted(edges))
    drawn = _chance(ends, trained, torch.Generator().manual_seed(0))
    assert torch.equal(*(torch.bincount(trained[pairs].sum(dim=1)) for pairs in (drawn, ends)))
    assert not edges & {tuple(sorted(pair)) for pair in drawn.tolist()}
    assert bool((drawn[:, 0] != drawn[:, 1]).all())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_share_that_looks_like_chance_is_not_too_high(share: float) -> None:
    """What belongs lies where chance seldom does, but for some that are odd all the same."""
    rng = torch.Generator().manual_seed(0)
    wrong = torch.rand(4000, generator=rng) < share
    place = torch.randn(8000, generator=rng, dtype=torch.double)
    place[:4000] += torch.where(wrong, 0.0, 2.0)
    real = torch.arange(8000) < 4000
    likely = ((1 - share) * (2 * place - 2).exp() + share).log()  # log density ratio of what is there and chance
    rate, probable = chance_share(likely, real, torch.zeros(8000, dtype=torch.long))
    assert rate == pytest.approx(share, abs=0.04)
    first = within(probable, 0.2)
    assert int((~wrong[first]).sum()) <= 0.25 * first.numel() + 20

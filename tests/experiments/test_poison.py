"""Poisons are what they say, the same for the same seed, and their success is measured."""

import pytest
import torch
from torch import Tensor, nn

import unweave as uw
from unweave.experiments.poison import Poisoned, attack_success, poison, stage
from unweave.graph.removal import remove
from unweave.testing import small_graph


class Answers(nn.Module):
    """A model that answers with fixed classes, but for nodes whose feature in a column exceeds a value."""

    def __init__(self, classes: Tensor, column: int = 0, above: float = 1e9, then: int = 0) -> None:
        super().__init__()
        self.classes, self.column, self.above, self.then = classes, column, above, then

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found = torch.where(x[:, self.column] > self.above, self.then, self.classes)
        return nn.functional.one_hot(found, int(self.classes.max()) + 1).float()


def test_flipped_labels_are_wrong_and_are_what_is_forgotten() -> None:
    data = uw.load("demo")
    poisoned, request = stage("flipped:0.2", data, seed=3)
    assert request == uw.draw("nodes:0.2", data, seed=3)
    changed = (poisoned.y != data.y).nonzero().flatten().tolist()
    assert changed == sorted(request.nodes)
    assert set(poisoned.y.tolist()) == set(data.y.tolist())
    assert torch.equal(stage("flipped:0.2", data, seed=3)[0].y, poisoned.y)
    assert data.train_mask[changed].all()


def test_a_request_that_poisons_nothing_leaves_the_graph_alone() -> None:
    data = small_graph()
    same, request = stage("edges:0.1", data, seed=1)
    assert same is data
    assert request == uw.draw("edges:0.1", data, seed=1)


def test_labels_that_cannot_be_flipped_are_refused() -> None:
    data = small_graph()
    data.y = data.y.float()[:, None]
    with pytest.raises(uw.RequestError, match="one class label a node"):
        stage("flipped:0.2", data)
    for spec in ("flipped:2", "flipped", "flipped:0.2@0", "flipped:0.2@0.5@0.5", "crossed:x", "edges:0.1"):
        with pytest.raises(uw.RequestError, match="cannot read"):
            poison(spec, small_graph())


@pytest.mark.parametrize("directed", [False, True])
def test_crossed_edges_join_training_nodes_of_different_classes(directed: bool) -> None:
    data = small_graph()
    if directed:
        data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    before = data.edge_index.clone()
    poisoned, request = stage("crossed:0.5", data, seed=3)
    pairs = torch.tensor(request.edges)
    kept = before[:, before[0] < before[1]].size(1)
    assert len(set(map(tuple, pairs.tolist()))) == len(pairs) == round(0.5 * kept)
    assert (data.y[pairs[:, 0]] != data.y[pairs[:, 1]]).all()
    assert data.train_mask[pairs.flatten()].all()
    assert poisoned.edge_index.size(1) == before.size(1) + len(pairs) * (1 if directed else 2)
    assert torch.equal(remove(poisoned, request).data.edge_index, before)
    assert torch.equal(data.edge_index, before)
    assert stage("crossed:0.5", data, seed=3)[1] == request
    assert stage("crossed:0.5", data, seed=4)[1] != request
    hidden = small_graph()
    hidden.edge_index, hidden.y[~hidden.train_mask] = data.edge_index, -1
    assert stage("crossed:0.5", hidden, seed=3)[1] == request


def test_edges_that_cannot_be_crossed_are_refused() -> None:
    data = small_graph()
    weighted = small_graph()
    weighted.edge_weight = torch.ones(weighted.num_edges)
    for graph, spec, match in (
        (weighted, "crossed:0.5", "edge_weight"),
        (data, "crossed:0.0001", "adds no edge"),
    ):
        with pytest.raises(uw.RequestError, match=match):
            stage(spec, graph)
    dense = small_graph(nodes=30)
    dense.edge_index = torch.cartesian_prod(torch.arange(30), torch.arange(30)).t()
    with pytest.raises(uw.RequestError, match="no room"):
        stage("crossed:0.01", dense)


def test_triggered_nodes_carry_the_trigger_and_the_label_of_the_target() -> None:
    data = small_graph(nodes=100, features=12)
    before = data.clone()
    found = poison("triggered:0.3", data, seed=3)
    nodes, columns = torch.tensor(found.request.nodes), list(found.columns)
    assert found.request == found.poison
    assert data.train_mask[nodes].all()
    assert (data.y[nodes] != found.target).all()
    assert (found.data.y[nodes] == found.target).all()
    assert torch.equal(found.wrong, found.data.y[nodes])
    assert torch.equal(found.data.x[nodes][:, columns], data.x[:, columns].max(dim=0).values.expand(len(nodes), -1))
    others = torch.ones(100, dtype=torch.bool)
    others[nodes] = False
    assert torch.equal(found.data.x[others], data.x[others])
    assert torch.equal(found.data.y[others], data.y[others])
    assert torch.equal(data.x, before.x)
    assert torch.equal(data.y, before.y)
    hidden = data.clone()
    hidden.y[~hidden.train_mask] = -1
    assert poison("triggered:0.3", hidden, seed=3).request == found.request, "labels of others are not read"
    assert poison("triggered:0.3", data, seed=4).request != found.request
    data.x[:, found.columns[0]] = 0
    assert poison("triggered:0.3", data, seed=3).values[0] == data.x.max(), "a word that nobody uses"
    with pytest.raises(uw.EmptyRequestError, match="drew no node"):
        poison("triggered:0.0001", data)


@pytest.mark.parametrize("kind", ["flipped", "crossed", "triggered"])
def test_a_part_of_the_same_poison_is_asked_for(kind: str) -> None:
    data = small_graph()
    whole, half = poison(f"{kind}:0.4", data, seed=2), poison(f"{kind}:0.4@0.5", data, seed=2)
    assert half.poison == whole.poison == whole.request
    for key in ("x", "y", "edge_index"):
        assert torch.equal(half.data[key], whole.data[key])
    for names in ("nodes", "edges"):
        some, every = (set(getattr(request, names)) for request in (half.request, half.poison))
        assert some <= every
        assert len(some) == round(len(every) / 2)
    assert poison(f"{kind}:0.4@0.001", data, seed=2).request.describe() in ("1 node", "1 edge")
    assert stage(f"{kind}:0.4@0.5", data, seed=2)[1] == half.request


def test_success_of_flipped_labels() -> None:
    data = small_graph()
    found = poison("flipped:0.4@0.5", data)
    remaining = remove(found.data, found.request).data
    assert attack_success(Answers(found.data.y), remaining, found) == 1
    assert attack_success(Answers(data.y), remaining, found) == 0
    one = data.y.clone()
    one[found.nodes[0]] = found.wrong[0]
    assert attack_success(Answers(one), remaining, found) == pytest.approx(1 / len(found.nodes))


def test_success_of_crossed_edges() -> None:
    data = small_graph()
    found = poison("crossed:0.1", data)
    ends = found.poison.pairs
    assert attack_success(Answers(data.y), data, found) == 0
    fooled = data.y.clone()
    u, v = ends[0].tolist()
    fooled[u] = data.y[v]
    assert attack_success(Answers(fooled), data, found) == pytest.approx(1 / len(torch.unique(ends)))


def test_success_of_a_trigger() -> None:
    data = small_graph(nodes=100, features=12)
    found = poison("triggered:0.3", data)
    column, value, target = found.columns[0], found.values[0], found.target
    assert target is not None
    held = (data.val_mask | data.test_mask) & (data.y != target)
    assert attack_success(Answers(data.y, column, value - 1e-4, target), data, found) == 1
    assert attack_success(Answers(data.y), data, found) == 0
    wrong = data.y.clone()
    wrong[int(held.nonzero()[0])] = target
    assert attack_success(Answers(wrong), data, found) == pytest.approx(1 / int(held.sum()))
    bare = data.clone()
    del bare.val_mask, bare.test_mask
    with pytest.raises(uw.DataError, match="no validation or test node"):
        attack_success(Answers(data.y), bare, found)


def test_a_backdoor_is_learnt_survives_the_deletion_of_its_nodes_and_goes_with_retraining() -> None:
    data = uw.load("demo")
    found: Poisoned = poison("triggered:0.1", data)
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), found.data, seed=0)
    none, retrained = (run.forget(found.request, method) for method in ("none", "retrain"))
    before = attack_success(run.model, found.data, found)
    assert before > 0.7
    assert attack_success(none.model, none.data, found) > 0.6
    assert attack_success(retrained.model, retrained.data, found) < 0.1
    assert abs(none.metrics["test_f1"] - retrained.metrics["test_f1"]) < 0.03, "F1 does not show it"

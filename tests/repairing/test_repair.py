"""Repair in rounds: what is found is forgotten, what helps is kept, and all of it has receipts."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.repairing.planted import CLASSES, Planted, planted, trained
from unweave.errors import DataError, MethodError, ModelError
from unweave.objective.losses import squared_error
from unweave.objective.scores import log_probabilities, micro_f1
from unweave.repairing.checks import halves
from unweave.repairing.deciding import Score, better, crossed, liked
from unweave.repairing.rounds import SHARES, _spared
from unweave.repairing.suspects import Suspect


def f1(run: uw.Run, graph: Planted) -> float:
    return micro_f1(log_probabilities(run.model, run.data), graph.right, graph.data.test_mask)


def test_wrong_labels_go_and_the_model_is_better(run: uw.Run, graph: Planted, repaired: uw.Repair) -> None:
    flipped = set(graph.nodes.tolist())
    acted = [suspect for suspect in repaired.done if suspect.kind == "labels"]
    hits = [suspect.item[0] in flipped for suspect in acted]
    assert sum(hits) / len(hits) > 0.7
    assert sum(hits) > len(flipped) / 2
    assert f1(repaired.run, graph) > f1(run, graph)
    before, after = repaired.held_out
    assert after.loss < before.loss
    assert after.f1 >= before.f1


def test_everything_that_was_done_has_a_receipt_and_the_run_before_stays(run: uw.Run, repaired: uw.Repair) -> None:
    assert len(run.receipts) == 0
    assert torch.equal(run.data.y, repaired.before.data.y)
    kept = [step for step in repaired.steps if step.kept]
    assert kept
    digests = [receipt.request_digest for receipt in repaired.run.receipts]
    assert digests == [digest for step in kept for digest in step.requests]
    gone = [s.item[0] for s in repaired.done if s.kind == "labels" and s.action == "forgotten"]
    assert not bool(repaired.data.train_mask[gone].any())
    for suspect in repaired.done:
        if suspect.action == "relabelled":
            assert int(repaired.data.y[suspect.item[0]]) == suspect.better
    assert all(step.after is None or step.why for step in repaired.steps)
    assert "Held out" in str(repaired)
    for step in kept:
        assert step.expected_false is not None
        assert 0 <= step.expected_false <= SHARES[step.kind]


def test_better_is_by_more_than_chance() -> None:
    def score(*losses: float, f1: float = 0.5) -> Score:
        return Score(torch.tensor(losses, dtype=torch.double), torch.arange(4) < 4 * f1)

    before, sure, likely = score(1.0, 1.0, 1.0, 1.0), score(0.9, 0.9, 0.9, 0.8), score(0.8, 1.0, 0.9, 1.0)
    assert better(before, sure, sure.losses)
    assert not better(before, score(0.9, 0.9, 0.9, 0.8, f1=0.25), sure.losses), "fewer are right"
    assert not better(before, likely, likely.losses), "lower by less than two standard errors"
    assert better(before, score(0.8, 1.0, 0.9, 1.0, f1=0.75), likely.losses), "and F1 is higher"
    chance = score(0.8, 1.0, 1.1, 1.0, f1=0.75)
    assert not better(before, chance, chance.losses), "lower by less than one standard error"
    assert not better(before, score(1.0, 1.0, 1.0, 1.1, f1=0.75), sure.losses), "what is chosen has a higher loss"


def test_a_choice_is_judged_by_nodes_that_did_not_make_it() -> None:
    """Each fold likes best what fits its own noise; crossed, that is worth nothing."""
    dealt = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])

    def score(*losses: float) -> Score:
        return Score(torch.tensor(losses, dtype=torch.double), torch.tensor(losses) < 1)

    before, one, two = score(1, 1, 1, 1), score(0, 0, 2, 3), score(3, 2, 0, 0)
    assert crossed(before, [one, two], [1, 1], dealt, larger=True).tolist() == [3, 2, 2, 3]
    good = score(0.5, 0.5, 0.5, 0.25)
    assert crossed(before, [good], [1], dealt, larger=True).tolist() == good.losses.tolist()
    assert crossed(before, [score(2, 2, 2, 2)], [1], dealt, larger=True).tolist() == before.losses.tolist()


def test_the_middle_of_what_is_as_good_as_the_best_is_liked() -> None:
    def score(*losses: float, right: int = 4) -> Score:
        return Score(torch.tensor(losses, dtype=torch.double), torch.arange(4) < right)

    before, good = score(1, 1, 1, 1, right=2), score(0.5, 0.5, 0.5, 0.25)
    near = [score(0.5, 0.6, 0.5, 0.25), good, score(0.5, 0.5, 0.5, 0.35)]
    assert liked(near, [1, 2, 3], before, larger=True) == 1
    assert [liked(near[:2], [1, 2], before, larger=larger) for larger in (False, True)] == [0, 1]
    assert liked([score(0.9, 0.8, 0.9, 0.9), *near], [1, 2, 3, 4], before, larger=True) == 2, (
        "the first is worse than the best"
    )
    assert liked([score(0.5, 0.5, 0.6, 0.3), good], [1, 1], before, larger=True) == 1, "of one size, the least loss"
    assert liked([score(0, 0, 0, 0, right=1), good], [1, 2], before, larger=True) == 1, "fewer are right than before"
    assert liked([score(0, 0, 0, 0, right=1)], [1], before, larger=True) == 0, "there is no other"


def test_a_step_that_does_not_help_is_not_kept(run: uw.Run, repaired: uw.Repair) -> None:
    for step in repaired.steps:
        if step.kept:
            assert step.after is not None
            assert step.after.loss < step.before.loss
            assert step.after.f1 >= repaired.held_out[0].f1
    again = uw.repair(repaired.run, kinds=["labels"], rounds=1, folds=4)
    assert again.held_out[1].loss <= again.held_out[0].loss


def test_labels_of_test_nodes_are_never_read(graph: Planted, run: uw.Run, repaired: uw.Repair) -> None:
    other = graph.data.clone()
    other.y[other.test_mask] = -1
    blind = uw.repair(run.replace(data=other), rounds=1, folds=4)
    assert [(s.item, s.action) for s in blind.suspects] == [(s.item, s.action) for s in repaired.suspects]
    assert [s.wrong for s in blind.suspects] == pytest.approx([s.wrong for s in repaired.suspects], rel=1e-4)
    assert [step.requests for step in blind.steps] == [step.requests for step in repaired.steps]


def test_a_graph_without_mistakes_is_left_alone() -> None:
    clean = planted(flipped=0.0, noise=0.7)
    run = trained(clean)
    found = uw.repair(run, kinds=["labels"], rounds=1, folds=4)
    assert len(found.done) <= 2


class Own(nn.Module):
    """A model of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(8, 16), GCNConv(16, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return out


def test_a_model_of_ones_own_is_repaired_without_knowing_its_training(graph: Planted) -> None:
    model = Own()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-2)
    data = graph.data
    for _ in range(80):
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)
        nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    before = copy.deepcopy(model.state_dict())
    found = uw.repair(model, data, weight_decay=1e-2, kinds=["labels"], rounds=1, folds=4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    hits = [suspect.item[0] in set(graph.nodes.tolist()) for suspect in found.of("labels")[:20]]
    assert sum(hits) >= 14


def test_what_cannot_be_repaired_is_refused_before_any_work(graph: Planted, run: uw.Run) -> None:
    def with_data(**parts: object) -> uw.Run:
        data = graph.data.clone()
        for name, value in parts.items():
            data[name] = value
        return run.replace(data=data)

    with pytest.raises(DataError, match=r"the graph has 0 .*at least 20"):
        uw.repair(with_data(val_mask=torch.zeros(graph.data.num_nodes, dtype=torch.bool)))
    with pytest.raises(DataError, match="one class label a node"):
        uw.repair(with_data(y=graph.data.y.float()))
    with pytest.raises(DataError, match="one class label a node"):
        uw.repair(run.replace(loss=squared_error))
    with pytest.raises(DataError, match="all training nodes have one label"):
        uw.repair(with_data(y=torch.ones_like(graph.data.y)))
    with pytest.raises(DataError, match="no edges between nodes"):
        uw.repair(with_data(edge_index=torch.empty(2, 0, dtype=torch.long)), kinds=["edges"])
    for wrong in (["nodes"], [], ["labels", "labels"]):
        with pytest.raises(MethodError, match="kinds must be some of triggers, labels, edges"):
            uw.repair(run, kinds=wrong)
    for option in ({"false_share": 0.0}, {"false_share": 1.0}, {"rounds": 0}, {"folds": 1}):
        with pytest.raises(MethodError, match="must"):
            uw.repair(run, **option)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="knows its graph"):
        uw.repair(run, graph.data)
    with pytest.raises(ModelError, match="a model with its graph"):
        uw.repair(run.model)


def test_the_last_label_of_a_class_is_spared(run: uw.Run) -> None:
    nodes = run.data.train_mask.nonzero().flatten()
    of_one = nodes[run.data.y[nodes] == 0].tolist()
    suspects = [Suspect("labels", (node,), 0.9, "") for node in of_one]
    assert [one.item[0] for one in _spared(run, suspects)] == of_one[:-1]


def test_both_halves_of_the_validation_nodes_have_every_class(run: uw.Run) -> None:
    first, second = halves(run, 0)
    assert torch.equal(first | second, run.data.val_mask)
    for label in range(CLASSES):
        here = run.data.y == label
        assert abs(int((first & here).sum()) - int((second & here).sum())) <= 1

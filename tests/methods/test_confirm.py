"""Models that fit their training nodes almost perfectly, or hardly yet: no step is refused for it, none is silent."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE, TAGConv
from torch_geometric.utils import stochastic_blockmodel_graph

import unweave as uw
from unweave._core.cost import Meter
from unweave._core.tuning import TUNING, tuned
from unweave.curvature.products import products
from unweave.methods import GIF
from unweave.methods.confirm import saturated
from unweave.methods.posing import pose
from unweave.methods.problem import Problem
from unweave.methods.restart import Restart
from unweave.methods.step import Step, Verdict
from unweave.objective.objective import call
from unweave.objective.parameters import flatten, load_flat
from unweave.objective.scores import gap, log_probabilities
from unweave.testing import small_graph


def fitted(data: Data) -> nn.Module:
    """Trained without weight decay until nothing is left of the loss."""
    torch.manual_seed(0)
    model = GraphSAGE(16, 32, 2, 3)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(nodes=90, features=16)


@pytest.fixture(scope="module")
def model(data: Data) -> nn.Module:
    return fitted(data)


@pytest.fixture(scope="module")
def state(model: nn.Module, data: Data) -> uw.Prepared:
    return uw.prepare(model, data, weight_decay=0.0)


def one_node(data: Data, number: int) -> uw.Request:
    return uw.Request(nodes=[int(data.train_mask.nonzero()[number])])


def posed(model: nn.Module, data: Data, request: uw.Request) -> Problem:
    where = Meter(torch.device("cpu"))
    how = {"loss": uw.losses.cross_entropy, "forward": call, "meter": where}
    return pose(model, data, request, weight_decay=0.0, **how)[0]  # type: ignore[arg-type]


def test_the_curvature_of_the_training_nodes_predicts_how_far_they_move_and_no_other(
    model: nn.Module, data: Data
) -> None:
    """The shorter the step the truer, for the training nodes; the mean of all nodes is many times as far."""
    problem = posed(model, data, one_node(data, 0))
    x = 1e-3 * problem.forgotten_gradient / problem.forgotten_gradient.norm()
    predicted = float(products("gauss-newton", problem.at_remaining)(x) @ x) / 2 / problem.remaining.nodes.numel()
    point = problem.remaining.at(problem.theta + x)
    assert problem.training_change(point) == pytest.approx(predicted, rel=0.05)
    everyone = problem.function_change(point)
    assert everyone is not None
    assert everyone > 4 * predicted


@pytest.mark.parametrize("number", range(5))
def test_a_step_is_not_refused_because_nodes_that_were_not_trained_on_move_farther(
    model: nn.Module, data: Data, number: int
) -> None:
    """Each of these was refused: "no step of any length lowers the local objective", which was not true."""
    receipt = uw.unlearn(model, data, one_node(data, number), weight_decay=0.0).receipt
    assert receipt.objective["local_change"] < 0
    assert receipt.residual_influence is not None
    assert receipt.residual_influence < 1


@pytest.mark.parametrize("prepared", [True, False])
def test_the_receipt_of_an_overfitted_model_never_keeps_silent(
    model: nn.Module, data: Data, state: uw.Prepared, prepared: bool
) -> None:
    given = {"prepared": state} if prepared else {}
    receipt = uw.unlearn(model, data, one_node(data, 5), weight_decay=0.0, **given).receipt
    assert any("cannot be confirmed" in warning and "mean loss" in warning for warning in receipt.warnings)
    assert "fits so closely" in receipt.verdict


def test_a_request_that_makes_training_nodes_wrong_leaves_the_model_as_overfitted_as_it_was(
    model: nn.Module, data: Data
) -> None:
    """Five edges of an EdgeCNN raised the mean loss beyond the bound, and nobody looked at the step (−0.48)."""
    gone = data.train_mask.nonzero().flatten()[:3].tolist()
    problem = posed(model, data, uw.Request(features=dict.fromkeys(gone, "all")))
    with tuned(step={"saturated": float(problem.original_losses.mean()) * 1.001}):
        assert float(problem.remaining_losses.mean()) > TUNING.step.saturated
        assert saturated(problem)
    with tuned(step={"saturated": float(problem.original_losses.mean()) * 0.999}):
        assert not saturated(problem)


def test_a_step_beyond_what_the_curvature_tells_is_shortened(model: nn.Module, data: Data, state: uw.Prepared) -> None:
    """The whole step was worse than nothing, four times over, with a residual of 0.06 and without a warning."""
    request = one_node(data, 5)
    done = uw.unlearn(model, data, request, weight_decay=0.0, prepared=state)
    with tuned(step={"saturated": 0.0, "unfinished": 1e9}):
        whole = uw.unlearn(model, data, request, weight_decay=0.0, prepared=state)
    start = flatten(model)
    share = done.receipt.details["shortened_to"]
    assert 0 < share < 0.5
    step, full = flatten(done.model) - start, flatten(whole.model) - start
    torch.testing.assert_close(step, float(step.norm() / full.norm()) * full, rtol=1e-3, atol=1e-6)
    assert any(f"shortened to {share:.2g}" in warning for warning in done.receipt.warnings)
    target = log_probabilities(fitted(done.data), done.data)
    kept = torch.ones(90, dtype=torch.bool)
    kept[list(request.nodes)] = False
    short, long, nothing = (
        gap(target, log_probabilities(m, done.data), kept) for m in (done.model, whole.model, model)
    )
    assert long > 2 * nothing
    assert short < 1.5 * nothing


@pytest.mark.parametrize("prepared", [True, False])
def test_an_answer_moves_the_outputs_no_farther_than_its_request_did(
    model: nn.Module, data: Data, state: uw.Prepared, prepared: bool
) -> None:
    """Nodes that were not trained on are held by nothing else; without the bound they went many times as far."""
    u, v = data.edge_index[:, 3].tolist()
    request = uw.Request(edges=[(u, v)])
    given = {"prepared": state} if prepared else {}
    receipt = uw.unlearn(model, data, request, weight_decay=0.0, **given).receipt
    most = TUNING.step.farthest * posed(model, data, request).request_change
    assert most > 0
    assert receipt.objective["function_change"] <= 1.01 * most
    with tuned(step={"farthest": 1e9}):
        unbound = uw.unlearn(model, data, request, weight_decay=0.0, **given).receipt
    assert unbound.objective["function_change"] > most


def test_a_request_that_moves_no_output_sets_no_bound(model: nn.Module, data: Data) -> None:
    request = uw.Request(labels=[int(data.train_mask.nonzero()[0])])
    assert posed(model, data, request).request_change == 0
    assert uw.unlearn(model, data, request, weight_decay=0.0).receipt.objective["function_change"] > 0


def test_a_step_that_lowers_the_objective_by_less_than_it_promised_is_no_reason_to_refuse(
    model: nn.Module, data: Data
) -> None:
    with tuned(damping={"kept": 1e3}):  # no step keeps a thousand times its promise
        receipt = uw.unlearn(model, data, one_node(data, 1), weight_decay=0.0).receipt
    assert receipt.objective["local_change"] < 0
    assert any("times as much as usual" in warning for warning in receipt.warnings)


def test_the_bend_of_a_step_survives_rounding_however_much_it_is_damped(
    model: nn.Module, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vᵀx − δ‖x‖² is rounding alone where δ is large, and a step that was right was then damped further."""
    problem, tried = posed(model, data, one_node(data, 1)), list[Step]()
    monkeypatch.setattr(GIF, "judge", lambda _, __, step: tried.append(step) or Verdict.GOOD)
    with tuned(damping={"share": 1e8}):
        GIF(steps=1).forget(problem)
    x = tried[0].x
    assert tried[0].bend == pytest.approx(float(products("gauss-newton", problem.at_remaining)(x) @ x), rel=1e-3)


def test_a_prepared_curvature_that_is_of_no_use_is_computed_for_the_request(
    model: nn.Module, data: Data, state: uw.Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise uw.NoProgressError("no step lowers it")

    monkeypatch.setattr(Restart, "begin", lost)
    done = uw.unlearn(model, data, one_node(data, 1), weight_decay=0.0, prepared=state)
    assert done.receipt.details["prepared"] == "of no use for this request"
    fresh = uw.unlearn(model, data, one_node(data, 1), weight_decay=0.0)
    torch.testing.assert_close(flatten(done.model), flatten(fresh.model))


def test_an_ordinary_model_pays_nothing_for_it(data: Data) -> None:
    run = uw.train(uw.models.GCN(16, 3, hidden=4), data, epochs=30, weight_decay=1e-3).prepare()
    receipt = run.forget(one_node(data, 0)).receipts[-1]
    with tuned(step={"saturated": 0.0}):
        same = run.forget(one_node(data, 0)).receipts[-1]
    assert receipt.passes == same.passes
    assert receipt.warnings == same.warnings


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_a_decay_that_no_training_can_have_minimised_is_told(data: Data, name: str) -> None:
    """AdamW's number is no weight decay of an objective; its optimiser tells what it amounts to."""
    model = uw.models.GCN(16, 3)
    optimiser = getattr(torch.optim, name)(model.parameters(), lr=0.01, weight_decay=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        nodes = data.train_mask
        F.cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes]).backward()
        optimiser.step()
    told = uw.unlearn(model, data, one_node(data, 3), weight_decay=0.05).receipt
    assert any("as hard as all training data" in w for w in told.warnings) == (name == "AdamW")
    assert "weight decay 0.05" in str(told)
    right = uw.unlearn(model, data, one_node(data, 3), weight_decay=optimiser).receipt
    assert not any("as hard as all training data" in warning for warning in right.warnings)
    assert "weight decay " + ("AdamW, 0.05 times" if name == "AdamW" else "0.05") in str(right).replace("\n", " ")


@pytest.mark.parametrize("prepared", [False, True])
def test_a_training_that_jumps_along_the_largest_curvature_is_told(data: Data, prepared: bool) -> None:
    polished = uw.polish(uw.models.GCN(16, 3), data, weight_decay=0.05, examine=False)
    request, theta, top = one_node(data, 0), flatten(polished.model), polished.prepared.curvature
    for column, told in ((0, True), (top.values.numel() - 1, False)):
        model = copy.deepcopy(polished.model)
        # As far as lowers the objective by a hundredth on the way back, which is no minimum any more.
        far = (2 * 0.01 * polished.prepared.objective / float(top.values[column])) ** 0.5
        load_flat(model, theta + far * top.vectors[:, column])
        ready = uw.prepare(model, data, weight_decay=0.05) if prepared else None
        how = {"weight_decay": 0.05, **({} if ready is None else {"prepared": ready})}
        receipt = uw.unlearn(model, data, request, **how).receipt
        assert any("not come to rest" in warning for warning in receipt.warnings) == told


class Tags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = TAGConv(20, 16), TAGConv(16, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = F.dropout(torch.relu(self.first(x, edge_index)), 0.3, self.training)
        return self.second(h, edge_index)  # type: ignore[no-any-return]


def stopped_early(model: Tags, data: Data, epochs: int = 20) -> None:
    torch.manual_seed(0)
    model.first.reset_parameters()
    model.second.reset_parameters()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        model.train()
        optimiser.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.eval()


@pytest.fixture(scope="module")
def blocks() -> Data:
    torch.manual_seed(0)
    size, classes = 75, 4
    y = torch.arange(classes).repeat_interleave(size)
    within = torch.full((classes, classes), 0.005) + 0.06 * torch.eye(classes)
    edge_index = stochastic_blockmodel_graph([size] * classes, within)
    x = 0.5 * torch.randn(classes, 20)[y] + 2 * torch.randn(y.numel(), 20)
    chance = torch.rand(y.numel())
    return Data(x=x, edge_index=edge_index, y=y, train_mask=chance < 0.6, val_mask=chance >= 0.8)


@pytest.mark.parametrize("prepared", [True, False])
def test_a_training_that_was_stopped_early_is_followed_only_as_far_as_its_request_went(
    blocks: Data, prepared: bool
) -> None:
    """A retraining stops as early; where a step solves for its end, it was worse than nothing, many times over."""
    model = Tags()
    stopped_early(model, blocks)
    run = uw.Run(model, blocks, weight_decay=5e-4)
    run = run.prepare() if prepared else run
    request = uw.draw("edges:0.05", blocks) if prepared else uw.draw("nodes:0.1", blocks)
    with tuned(step={"unfinished": 1e9, "falling": 1e9}):
        whole = run.forget(request)
    done = run.forget(request)
    retrained = copy.deepcopy(model)
    stopped_early(retrained, done.data)
    kept = torch.ones(blocks.num_nodes, dtype=torch.bool)
    kept[list(request.nodes)] = False
    target = log_probabilities(retrained, done.data)
    short, long, nothing = (
        gap(target, log_probabilities(m, done.data), kept) for m in (done.model, whole.model, model)
    )
    share = done.receipts[-1].details["shortened_to"]
    assert 0 < share < 1
    assert any("far from its end" in warning for warning in done.receipts[-1].warnings)
    assert "shortened_to" not in whole.receipts[-1].details
    assert short < min(nothing, long)


def test_a_training_that_ended_is_followed_all_the_way(blocks: Data) -> None:
    model = Tags()
    stopped_early(model, blocks, epochs=200)
    for run in (uw.Run(model, blocks, weight_decay=5e-4), uw.Run(model, blocks, weight_decay=5e-4).prepare()):
        with tuned(step={"saturated": 0.0}):
            assert "shortened_to" not in run.forget(uw.draw("edges:0.05", blocks)).receipts[-1].details


def test_a_prepared_step_that_leaves_too_much_of_its_pull_is_halved_and_the_receipt_says_so(blocks: Data) -> None:
    model = Tags()
    stopped_early(model, blocks, epochs=100)
    run, seen = uw.Run(model, blocks, weight_decay=5e-4).prepare(), 0
    with tuned(step={"saturated": 0.0, "unfinished": 1e9}):
        for node in blocks.train_mask.nonzero().flatten()[:12].tolist():
            done = run.forget(uw.Request(nodes=[node])).receipts[-1]
            with tuned(step={"halvings": 0}):
                whole = run.forget(uw.Request(nodes=[node])).receipts[-1]
            assert whole.residual_influence is not None
            assert done.residual_influence is not None
            if length := done.details.get("halved_to"):
                seen += 1
                assert length in (0.5, 0.25, 0.125)
                assert done.residual_influence < whole.residual_influence
                assert done.step_norm == pytest.approx(length * whole.step_norm, rel=1e-3)
            else:
                assert done.step_norm == pytest.approx(whole.step_norm)
    assert 0 < seen < 12

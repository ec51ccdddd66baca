"""Prepared once, forgotten often: what a prepared state saves, and how it knows whom it serves."""

import copy
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv

import unweave as uw
from unweave._core.tuning import TUNING
from unweave.curvature.damping import least_damping
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities

DECAY = 1e-4


@pytest.fixture(scope="module")
def data() -> Data:
    return uw.load("demo")


@pytest.fixture(scope="module")
def trained(data: Data) -> uw.Run:
    return uw.train(uw.models.GCN(data.num_features, data.num_classes), data, epochs=100)


@pytest.fixture(scope="module")
def ready(trained: uw.Run, data: Data) -> uw.Prepared:
    return uw.prepare(trained.model, data, weight_decay=DECAY)


def test_ten_passes_close_what_a_converged_step_closes(trained: uw.Run, ready: uw.Prepared, data: Data) -> None:
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(trained.model, data, request, weight_decay=DECAY, prepared=ready)
    assert done.receipt.passes <= 10
    assert done.receipt.details["objective"] == "Q"
    assert done.receipt.residual_influence is not None
    reference = uw.unlearn(trained.model, data, request, "retrain", weight_decay=DECAY, recipe=trained.recipe)
    target = log_probabilities(reference.model, reference.data)
    everyone = torch.ones(data.num_nodes, dtype=torch.bool)
    nothing = gap(target, log_probabilities(trained.model, reference.data), everyone)

    def share(model: torch.nn.Module) -> float:
        found = closed(gap(target, log_probabilities(model, reference.data), everyone), nothing)
        assert found is not None
        return found

    converged = uw.unlearn(trained.model, data, request, weight_decay=DECAY, steps=1)
    assert converged.receipt.passes > 40
    assert share(done.model) >= share(converged.model) - 0.02


def test_a_copy_of_the_graph_is_checked_anew_and_gives_the_same(
    trained: uw.Run, ready: uw.Prepared, data: Data
) -> None:
    request = uw.draw("nodes:0.05", data)
    known = uw.unlearn(trained.model, data, request, weight_decay=DECAY, prepared=ready)
    other = uw.unlearn(trained.model, copy.deepcopy(data), request, weight_decay=DECAY, prepared=ready)
    assert other.receipt.passes > known.receipt.passes
    torch.testing.assert_close(flatten(known.model), flatten(other.model), rtol=1e-3, atol=1e-4)
    assert known.receipt.region["nodes"] == other.receipt.region["nodes"]
    assert known.receipt.objective["original_before"] == pytest.approx(other.receipt.objective["original_before"])


def test_a_graph_that_was_edited_is_noticed(trained: uw.Run, data: Data) -> None:
    own = copy.deepcopy(data)
    ready = uw.prepare(trained.model, own, weight_decay=DECAY)
    request = uw.draw("edges:0.05", own)
    own.x[:] = own.x.roll(1, dims=0)
    with pytest.raises(uw.MethodError, match="belongs to another objective"):
        uw.unlearn(trained.model, own, request, weight_decay=DECAY, prepared=ready)
    own.x[0, 0] = torch.nan
    with pytest.raises(uw.DataError, match="not finite"):
        uw.unlearn(trained.model, own, request, weight_decay=DECAY, prepared=ready)


def test_another_weight_decay_is_noticed(trained: uw.Run, ready: uw.Prepared, data: Data) -> None:
    with pytest.raises(uw.MethodError, match="belongs to another objective"):
        uw.unlearn(trained.model, data, uw.draw("edges:0.05", data), weight_decay=1e-2, prepared=ready)


def test_the_state_goes_on_with_the_next_request(trained: uw.Run, ready: uw.Prepared, data: Data) -> None:
    first = uw.unlearn(trained.model, data, uw.draw("edges:0.02", data), weight_decay=DECAY, prepared=ready)
    assert first.prepared is not None
    assert first.prepared.age == 1
    request = uw.draw("edges:0.02", first.data, seed=1)
    second = uw.unlearn(first.model, first.data, request, weight_decay=DECAY, prepared=first.prepared)
    assert second.receipt.passes <= 10 + 2 * TUNING.step.halvings, "a step that leaves too much is halved"
    assert second.receipt.details["prepared"] == "after training, 1 request ago"
    with pytest.raises(uw.MethodError, match="belongs to other parameters"):
        uw.unlearn(first.model, first.data, request, weight_decay=DECAY, prepared=ready)


def test_running_statistics_that_moved_are_noticed(data: Data) -> None:
    class Normalised(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = GCNConv(data.num_features, data.num_classes), BatchNorm(data.num_classes)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.norm(self.conv(x, edge_index))  # type: ignore[no-any-return]

    run = uw.train(Normalised(), data, epochs=20)
    ready = uw.prepare(run.model, data, weight_decay=DECAY)
    assert not ready.serves(run.model, data, DECAY, run.loss, run.forward), "its statistics are those of the graph"
    run.model.norm.module.running_mean += 1
    with pytest.raises(uw.MethodError, match="belongs to another objective"):
        uw.unlearn(run.model, data, uw.draw("edges:0.05", data), weight_decay=DECAY, prepared=ready)


def test_another_function_of_the_same_name_is_noticed(trained: uw.Run, data: Data) -> None:
    plain, negated = (lambda model, data, sign=sign: sign * model(data.x, data.edge_index) for sign in (1, -1))
    ready = uw.prepare(trained.model, data, weight_decay=DECAY, forward=plain)
    assert ready.serves(trained.model, data, DECAY, trained.loss, plain)
    with pytest.raises(uw.MethodError, match="belongs to another objective"):
        uw.unlearn(
            trained.model, data, uw.draw("edges:0.05", data), weight_decay=DECAY, forward=negated, prepared=ready
        )


def test_what_is_no_tensor_is_noticed_too(trained: uw.Run, data: Data) -> None:
    own = copy.copy(data)
    own.temperature = 1.0

    def forward(model: torch.nn.Module, graph: Data) -> torch.Tensor:
        return model(graph.x, graph.edge_index) * graph.temperature  # type: ignore[no-any-return]

    ready = uw.prepare(trained.model, own, weight_decay=DECAY, forward=forward)
    assert ready.serves(trained.model, own, DECAY, trained.loss, forward)
    own.temperature = 3.0
    with pytest.raises(uw.MethodError, match="belongs to another objective"):
        uw.unlearn(trained.model, own, uw.draw("edges:0.05", own), weight_decay=DECAY, forward=forward, prepared=ready)
    model = uw.models.SGC(data.num_features, data.num_classes)
    uw.train(model, data, epochs=20)
    ready = uw.prepare(model, data, weight_decay=DECAY)
    model.propagate.K = 5
    assert not ready.serves(model, data, DECAY, trained.loss, trained.forward)


def test_a_forward_that_does_not_use_its_graph_is_refused_all_the_same(trained: uw.Run, data: Data) -> None:
    def forward(model: torch.nn.Module, graph: Data) -> torch.Tensor:
        return model(data.x, data.edge_index)  # type: ignore[no-any-return]

    ready = uw.prepare(trained.model, data, weight_decay=DECAY, forward=forward)
    with pytest.raises(uw.ModelError, match="does forward= use the graph"):
        uw.unlearn(
            trained.model, data, uw.draw("edges:0.05", data), weight_decay=DECAY, forward=forward, prepared=ready
        )


def test_after_another_method_the_state_is_judged_anew(data: Data) -> None:
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    run = uw.train(model, data, forgettable=True, weight_decay=1e-2)
    assert run.prepared is not None
    assert run.prepared.at_minimum
    tuned = run.forget(uw.draw("edges:0.1", data), "finetune")
    assert tuned.prepared is not None
    assert not tuned.prepared.at_minimum
    request = uw.Request(edges=[tuple(tuned.data.edge_index[:, 10].tolist())])
    step = tuned.forget(request).receipts[-1].step_norm
    alone = uw.unlearn(tuned.model, tuned.data, request, weight_decay=1e-2).receipt.step_norm
    assert step == pytest.approx(alone, rel=1e-3)


def test_a_model_that_hardly_follows_its_steps_is_warned_of(trained: uw.Run, ready: uw.Prepared, data: Data) -> None:
    request = uw.draw("edges:0.02", data)
    for worse in ({"raised": 100.0}, {"left": 0.9}):
        done = uw.unlearn(trained.model, data, request, weight_decay=DECAY, prepared=replace(ready, **worse))
        assert any("beyond what an influence step reproduces" in warning for warning in done.receipt.warnings)


def test_the_rehearsed_damping_is_at_least_what_spectrum_and_training_allow(
    trained: uw.Run, ready: uw.Prepared, data: Data
) -> None:
    least = least_damping(ready.curvature.values, flatten(trained.model), ready.gradient)
    assert ready.damping >= least > 0
    bare = copy.copy(data)
    bare.edge_index = data.edge_index[:, :0]
    alone = uw.prepare(trained.model, bare, weight_decay=DECAY)
    assert alone.damping == pytest.approx(least_damping(alone.curvature.values, flatten(trained.model), alone.gradient))


def test_a_state_that_is_worn_is_said_to_be_and_a_run_computes_it_anew(trained: uw.Run, data: Data) -> None:
    run = trained.prepare()
    assert run.prepared is not None
    once = run.forget(uw.draw("edges:0.3", data))
    assert once.prepared is not None
    assert (run.prepared.age, once.prepared.age) == (0, 1)
    request = uw.draw("edges:0.01", once.data, seed=1)
    told = uw.unlearn(once.model, once.data, request, weight_decay=DECAY, prepared=once.prepared)
    assert any("call unweave.prepare anew" in warning for warning in told.receipt.warnings)
    twice = once.forget(request)
    assert twice.prepared is not None
    assert twice.receipts[-1].details["prepared"] == f"anew for this request, {twice.prepared.passes} passes"
    assert twice.receipts[-1].passes >= twice.prepared.passes + 10
    assert twice.receipts[-1].seconds["prepare"] == twice.prepared.seconds
    assert not any("prepare anew" in warning for warning in twice.receipts[-1].warnings)
    assert twice.prepared is not None
    assert twice.prepared.edges == once.data.edge_index.size(1)

"""Retrace: the path of training walked again by one gradient a checkpoint, and the end of it trained again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

import unweave as uw
from tests.training.test_checkpoints import MODELS, Normed
from unweave._core.cost import Meter
from unweave.curvature.solvers import LowRank
from unweave.methods.retrace import _Walk
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.testing import small_graph
from unweave.training.adam import reinitialise
from unweave.training.checkpoints import read_checkpoints, write_checkpoints
from unweave.training.path import motion_at, weights_at

PATH = (0.05, 0.1, 0.25, 0.4, 0.6, 0.8)


def trained(name: str = "gcn", data: Data | None = None, **options: Any) -> uw.Run:
    options = {"seed": 3, "epochs": 40, "weight_decay": 1e-3, "checkpoints": PATH, **options}
    run = uw.train(MODELS[name](), small_graph() if data is None else data, **options)
    return run if run.prepared is not None else run.prepare()


def share_closed(run: uw.Run, done: uw.Run, retrained: uw.Run) -> float:
    target, near, start = (log_probabilities(r.model, retrained.data) for r in (retrained, done, run))
    kept = torch.ones(target.size(0), dtype=torch.bool)
    found = closed(gap(target, near, kept), gap(target, start, kept))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def demo() -> uw.Run:
    data = uw.load("demo", seed=0)
    model = uw.models.GCN(data.num_features, data.num_classes)
    shares = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
    return uw.train(model, data, seed=0, weight_decay=1e-4, checkpoints=shares).prepare()


@pytest.mark.parametrize("spec", ["edges:0.05", "nodes:0.1", "features:0.1"])
def test_it_comes_nearer_than_an_influence_step_or_the_end_of_training_alone(demo: uw.Run, spec: str) -> None:
    run = demo
    request = uw.draw(spec, run.data, seed=1)
    retrained = run.forget(request, "retrain")
    walked = run.forget(request, "retrace", share=0.95, end=0.05)
    near, step, end = (
        share_closed(run, done, retrained)
        for done in (walked, run.forget(request, "gif"), run.forget(request, "replay", share=0.05))
    )
    assert near > max(step, end) + 0.05
    assert walked.receipts[-1].details["steps"] == 7


def gradient_by_hand(model: nn.Module, data: Data, decay: float) -> torch.Tensor:
    model.eval()
    loss = F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
    found = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([g.flatten() for g in found]) + decay * flatten(model)


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_a_checkpoint_knows_what_pulled_training_on_from_there(name: str) -> None:
    run = trained(name)
    for state in run.checkpoints:
        model = MODELS[name]()
        model.load_state_dict(dict(state.model))
        assert state.gradient is not None
        torch.testing.assert_close(state.gradient, gradient_by_hand(model, run.data, 1e-3), rtol=1e-3, atol=1e-6)
    request = uw.draw("edges:0.1", run.data)
    for method, at in (("retrain", 0), ("replay", 4)):
        done = run.forget(request, method)
        for state in done.checkpoints[at:]:
            model.load_state_dict(dict(state.model))
            assert state.gradient is not None
            torch.testing.assert_close(state.gradient, gradient_by_hand(model, done.data, 1e-3), rtol=1e-3, atol=1e-6)


def test_forgettable_models_need_no_path() -> None:
    run = trained(weight_decay=1e-2, forgettable=True, checkpoints=(0.25,))
    assert all(state.gradient is None for state in run.checkpoints)


def test_it_is_kept_on_disk_and_older_files_open_without(tmp_path: Path) -> None:
    run = trained()
    again = uw.Run.open(run.save(tmp_path / "run"), data=run.data)
    for one, other in zip(run.checkpoints, again.checkpoints, strict=True):
        assert one.gradient is not None
        assert other.gradient is not None
        assert torch.equal(one.gradient, other.gradient)
    bare = tuple(replace(state, gradient=None) for state in run.checkpoints)
    files = write_checkpoints(bare)
    files["checkpoints.json"] = files["checkpoints.json"].replace(b'"gradient": null,', b"")
    assert b"gradient" not in files["checkpoints.json"]
    assert all(state.gradient is None for state in read_checkpoints(files))
    with pytest.raises(uw.MethodError, match="trace_path"):
        run.replace(checkpoints=bare).forget(uw.draw("edges:0.1", run.data), "retrace", share=0.8)
    told = uw.trace_path(bare, run.model, run.data, weight_decay=1e-3)
    for one, other in zip(run.checkpoints, told, strict=True):
        torch.testing.assert_close(one.gradient, other.gradient)


def by_sgd(model: nn.Module, data: Data, start: uw.Checkpoint | None = None, until: int = 40) -> uw.Checkpoint:
    """A small step an epoch, so that the path hardly bends between two of them."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, weight_decay=1e-3)
    if start is None:
        torch.manual_seed(0)
        reinitialise(model)
    else:
        start.restore(model, optimiser)
    model.train()
    for _ in range(start.epoch if start else 0, until):
        optimiser.zero_grad()
        torch.autograd.backward(
            F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        )
        optimiser.step()
    return uw.Checkpoint.take(until, model, optimiser)


def test_with_a_checkpoint_every_epoch_it_is_the_path_without_what_is_removed() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, dropout=0.0)
    states = [by_sgd(model, data, None, 1)]
    for epoch in range(2, 41):
        states.append(by_sgd(model, data, states[-1], epoch))
    recipe = uw.Recipe(seed=0, epochs=40, weight_decay=1e-3)
    path = uw.trace_path(states[:-1], model, data, weight_decay=1e-3)
    run = uw.Run(model.eval(), data, recipe=recipe, checkpoints=path).prepare()
    request = uw.draw("edges:0.1", data)
    retrained = run.forget(request, "retrain", trainer=by_sgd)
    errors = []
    for every in (13, 4, 1):
        some = run.replace(checkpoints=(*path[:-1:every], path[-1]))
        done = some.forget(request, "retrace", share=0.975, end=0.026, trainer=by_sgd)
        distance = (flatten(done.model) - flatten(retrained.model)).norm()
        errors.append(float(distance / (flatten(run.model) - flatten(retrained.model)).norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.15


def test_the_next_request_walks_the_same_path_for_itself_and_all_before_it() -> None:
    run = trained()
    first, second = uw.draw("edges:0.05", run.data, seed=1), uw.draw("nodes:0.1", run.data, seed=2)
    parts = run.forget(first, "retrace", share=0.8).forget(second, "retrace", share=0.8)
    whole = run.forget(uw.Request.merged([first, second]), "retrace", share=0.8)
    torch.testing.assert_close(flatten(parts.model), flatten(whole.model), rtol=1e-4, atol=1e-5)
    assert parts.checkpoints == run.checkpoints
    assert "the checkpoints of epoch" in str(parts.receipts[-1]), "they remember"


def test_fewer_gradients_are_spread_over_the_path() -> None:
    run, request = trained(), uw.draw("edges:0.1", small_graph())
    all_of_them, few = (run.forget(request, "retrace", share=0.8, **how).receipts[-1] for how in ({}, {"steps": 2}))
    assert (all_of_them.details["steps"], few.details["steps"]) == (5, 2)
    assert all_of_them.passes - few.passes == 6
    by_hand = run.replace(checkpoints=[run.checkpoints[n] for n in (0, 2, 5)]).forget(request, "retrace", share=0.8)
    assert by_hand.receipts[-1].parameters["digest_after"] == few.parameters["digest_after"]
    more = run.forget(request, "retrace", share=0.8, steps=50).receipts[-1]
    assert more.parameters["digest_after"] == all_of_them.parameters["digest_after"]


def test_what_changes_nothing_leaves_the_path_where_it_was() -> None:
    data = small_graph()
    lonely = int((~data.train_mask).nonzero()[0])
    away = (data.edge_index == lonely).any(dim=0)
    data.edge_index = data.edge_index[:, ~away]
    run, request = trained(data=data), uw.Request(nodes=[lonely])
    walked, replayed = run.forget(request, "retrace", share=0.8), run.forget(request, "replay", share=0.05)
    assert walked.receipts[-1].details["moved"] < 1e-4
    torch.testing.assert_close(flatten(walked.model), flatten(replayed.model), rtol=1e-4, atol=1e-4)


def walk(size: int, rank: int) -> tuple[_Walk, torch.Tensor, torch.Tensor]:
    run = trained()
    objective = Objective(
        run.model, run.data, cross_entropy, decay_vector(run.model, 1e-3), call, Meter(run.data.x.device)
    )
    problem: Any = type("Problem", (), {"remaining": objective, "original": objective, "theta": torch.zeros(size)})
    vectors, _ = torch.linalg.qr(torch.randn(size, rank, generator=torch.Generator().manual_seed(0)))
    values = torch.linspace(9, 1, rank)
    dense = vectors @ torch.diag(values / objective.nodes.numel()) @ vectors.T
    return _Walk(problem, LowRank(values, vectors), objective.nodes.numel(), most=4), dense, vectors


def test_the_step_solves_its_system() -> None:
    found, dense, _ = walk(30, 5)
    stiffness = torch.linspace(0.1, 3, 30)
    pull = torch.randn(30, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found._solve(pull, stiffness), torch.linalg.solve(dense + torch.diag(stiffness), pull))
    step = torch.randn(30, generator=torch.Generator().manual_seed(2))
    more = torch.diag(torch.linspace(1, 2, 30)) @ step + dense @ step
    found._add(step, more)
    known = found._rows[: found._rank].T @ torch.diag(found._values[: found._rank]) @ found._rows[: found._rank]
    torch.testing.assert_close(known @ step, more, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        found._solve(pull, stiffness), torch.linalg.solve(known + torch.diag(stiffness), pull), rtol=1e-4, atol=1e-4
    )
    rank = found._rank
    found._add(step, -more)
    assert found._rank == rank, "curvature below zero is not believed"


def test_a_step_that_went_too_far_is_taken_back_to_where_it_would_have_stopped() -> None:
    found, _, _ = walk(4, 2)
    step, before = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([-1.0, 0.0, 0.0, 1.0])
    found.u = step.clone()
    pull = found._learnt(step, before, before + torch.tensor([4.0, 0.0, 0.0, 2.0]))
    torch.testing.assert_close(found.u, step / 4)
    torch.testing.assert_close(pull, torch.tensor([0.0, 0.0, 0.0, 1.5]))
    assert (found.pulled_back, found.caution) == (1, 8.0)
    assert torch.equal(found._learnt(step, before, before), before)
    assert found.caution == pytest.approx(8 / 1.5)


def optimised(make: Any) -> tuple[uw.Checkpoint, Objective, torch.optim.Optimizer]:
    data, model = small_graph(), uw.models.GCN(8, 3)
    optimiser = make(model)
    for _ in range(3):
        optimiser.zero_grad()
        torch.autograd.backward(
            F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
        )
        optimiser.step()
    decay = decay_vector(model, {"conv1.bias": 1e-2, "conv2.lin": 1e-2})
    objective = Objective(model, data, cross_entropy, decay, call, Meter(data.x.device))
    return uw.Checkpoint.take(3, model, optimiser), objective, optimiser


def test_rates_are_those_of_the_optimiser() -> None:
    def grouped(model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        some = ("conv1.bias", "conv2.lin.weight")
        groups = [
            {"params": [named[n] for n in some], "weight_decay": 1e-2, "lr": 0.05},
            {"params": [p for n, p in named.items() if n not in some], "weight_decay": 0.0},
        ]
        return torch.optim.Adam(groups, lr=0.01)

    state, objective, optimiser = optimised(grouped)
    expected = []
    for parameter in objective.model.parameters():
        known = optimiser.state[parameter]
        lr = next(g["lr"] for g in optimiser.param_groups if any(p is parameter for p in g["params"]))
        expected.append(lr / ((known["exp_avg_sq"] / (1 - 0.999**3)).sqrt() + 1e-8))
    torch.testing.assert_close(motion_at(state, objective).rates, torch.cat([e.flatten() for e in expected]))
    torch.testing.assert_close(weights_at(state, objective.model), flatten(objective.model))
    state, objective, _ = optimised(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
    torch.testing.assert_close(motion_at(state, objective).rates, torch.full_like(objective.decay, 1.0))
    assert bool(motion_at(state, objective).lengths.isinf().all())
    damped, objective, _ = optimised(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.9))
    torch.testing.assert_close(motion_at(damped, objective).rates, torch.full_like(objective.decay, 0.1))
    for make, words in (
        (lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1), "Adagrad"),
        (lambda m: torch.optim.RMSprop(m.parameters(), lr=0.1, momentum=0.5), "RMSprop"),
        (lambda m: torch.optim.Adam(list(m.parameters())[::-1], lr=0.1), "in another order"),
        (lambda m: torch.optim.SGD([{"params": [p]} for p in m.parameters()], lr=0.1), "groups of the optimiser"),
    ):
        state, objective, _ = optimised(make)
        with pytest.raises(uw.MethodError, match=words):
            motion_at(state, objective)
    with pytest.raises(uw.MethodError, match="the optimiser: none"):
        motion_at(replace(state, parts=()), objective)
    with pytest.raises(uw.ModelError, match="another model"):
        weights_at(state, Normed())


def test_statistics_of_the_whole_graph_are_not_walked() -> None:
    run = trained("normed")
    assert all(state.gradient is None for state in run.checkpoints)
    request = uw.draw("edges:0.1", run.data)
    for refused in (
        lambda: run.forget(request, "retrace", share=0.8),
        lambda: run.preview(request, "retrace", share=0.8),
        lambda: uw.trace_path(run.checkpoints, run.model, run.data, weight_decay=1e-3),
    ):
        with pytest.raises(uw.MethodError, match="running statistics"):
            refused()
    assert run.forget(request, "auto", budget=0.6).receipts[-1].details["rung"].startswith("replay")


def test_no_step_is_longer_than_adam_could_have_taken() -> None:
    run = trained()
    pulled = tuple(
        replace(state, gradient=None if state.gradient is None else 1e4 + state.gradient) for state in run.checkpoints
    )
    done = run.replace(checkpoints=pulled).forget(uw.draw("edges:0.1", run.data), "retrace", share=0.8, steps=1)
    farthest = (38 - 8) * run.recipe.lr
    assert done.receipts[-1].details["moved"] <= farthest * flatten(run.model).numel() ** 0.5


def test_after_a_replay_the_state_it_began_at_knows_the_new_pull() -> None:
    run = trained()
    request = uw.draw("edges:0.2", run.data)
    done = run.forget(request, "replay", share=0.25)
    at = [state.epoch for state in done.checkpoints].index(30)
    for number, data in ((at - 1, run.data), (at, done.data)):
        model = MODELS["gcn"]()
        model.load_state_dict(dict(done.checkpoints[number].model))
        expected = gradient_by_hand(model, data, 1e-3)
        torch.testing.assert_close(done.checkpoints[number].gradient, expected, rtol=1e-3, atol=1e-6)


def test_what_cannot_be_walked_is_refused() -> None:
    run, request = trained(), uw.draw("edges:0.1", small_graph())
    for given, words in (
        ({"share": 0.1, "end": 0.2}, "end must be"),
        ({"share": 1}, "share below 1"),
        ({"share": 0.9}, "no checkpoint lies before"),
        ({"share": 0.05}, "two checkpoints or more"),
        ({"prepared": "yes"}, "prepared must be"),
        ({"share": 0.8, "steps": 0}, "steps must be"),
    ):
        with pytest.raises(uw.MethodError, match=words):
            run.forget(request, "retrace", **given)
        with pytest.raises(uw.MethodError, match=words):
            run.preview(request, "retrace", **given)
    with pytest.raises(uw.MethodError, match="prepare the run"):
        run.replace(prepared=None).forget(request, "retrace", share=0.8)


def test_a_walk_that_goes_astray_is_an_error_and_changes_nothing() -> None:
    run = trained()
    before = flatten(run.model).clone()
    request = uw.draw("edges:0.1", run.data)
    for factor in (1e3, float("inf")):
        astray = tuple(
            replace(state, gradient=None if state.gradient is None else factor * state.gradient)
            for state in run.checkpoints
        )
        with pytest.raises(uw.DivergenceError):
            run.replace(checkpoints=astray).forget(request, "retrace", share=0.8)
    assert torch.equal(flatten(run.model), before)


@pytest.mark.slow
def test_the_ladder_walks() -> None:
    run = trained().calibrate(9)
    assert run.calibration is not None
    rungs = [rung for rung in run.calibration.rungs if rung.method == "retrace"]
    walks = [str(rung) for rung in rungs]
    assert set(walks) == {
        "retrace(share=0.8, end=0.05)",
        "retrace(share=0.8, end=0.1)",
    }
    request = uw.draw("edges:0.05", run.data)
    best = tuple(
        replace(d, rungs={rung: replace(f, closed=0.95 if rung == rungs[-1] else 0.1) for rung, f in d.rungs.items()})
        for d in run.calibration.deletions
    )
    sure = run.replace(calibration=replace(run.calibration, deletions=best))
    done = sure.forget(request, "auto", at_least=0.9)
    assert done.receipts[-1].details["rung"] == walks[-1]
    again = done.forget(uw.draw("nodes:0.1", done.data), "auto", at_least=0.9)
    assert again.receipts[-1].details["rung"] == walks[-1], (
        "it goes back to before all requests, so that nothing adds up"
    )

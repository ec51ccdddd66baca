"""On a CUDA device everything gives what the CPU gives. Needs nothing but pytest beside the package."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import unweave as uw
from tests.cases import CASES, Case
from unweave._core.cost import Meter
from unweave.curvature.products import GaussNewton, Hessian
from unweave.inspection.bends import eigh_of_many
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_gpu(objective: Objective) -> Objective:
    model = copy.deepcopy(objective.model).cuda()
    data = objective.data.clone().cuda()
    meter = Meter(torch.device("cuda"))
    return Objective(model, data, objective.loss, objective.decay.cuda(), objective.forward, meter)


@pytest.mark.parametrize("case", [c for c in CASES if c.request == "mixed"], ids=lambda c: c.name)
def test_gradients_and_products_agree(case: Case) -> None:
    built = case.build()
    here, there = built.after.at(built.theta), on_gpu(built.after).at(built.theta.cuda())
    torch.testing.assert_close(there.gradient().cpu(), here.gradient(), rtol=1e-9, atol=1e-10)
    for operator in (Hessian, GaussNewton):
        v = built.theta
        torch.testing.assert_close(operator(there)(v.cuda()).cpu(), operator(here)(v), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["gcn", "sgc", "gin", "gat"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_built_in_models_agree(name: str, dense: bool) -> None:
    data = small_graph()
    keep = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) < (2 if dense else 0.04)
    data.x = (data.x * keep).double()
    model = uw.models.build(name, 8, 3).double().eval()
    there = copy.deepcopy(model).cuda()
    torch.testing.assert_close(there(data.x.cuda(), data.edge_index.cuda()).cpu(), model(data.x, data.edge_index))


def trained() -> tuple[torch.nn.Module, Data]:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4, dropout=0.0)
    uw.train(model, data, seed=1, epochs=30, weight_decay=1e-3)
    return model, data


@pytest.mark.parametrize("method", ["none", "if", "gif", "finetune"])
def test_methods_agree(method: str) -> None:
    model, data = trained()
    request = uw.draw("edges:0.05", data)
    how = {"weight_decay": 1e-3, "recipe": uw.Recipe(weight_decay=1e-3)}
    here = uw.unlearn(model, data, request, method, **how)
    there = uw.unlearn(copy.deepcopy(model).cuda(), data.clone().cuda(), request, method, **how)
    torch.testing.assert_close(flatten(there.model).cpu(), flatten(here.model), rtol=1e-2, atol=1e-3)
    assert there.receipt.environment["device"].startswith("cuda")
    assert there.receipt.peak_mib > 0


@pytest.mark.parametrize("method", ["eraser-blpa", "eraser-bekm"])
def test_shards_are_set_up_and_retrained_on_the_device(method: str) -> None:
    model, data = (part.cuda() for part in trained())
    recipe = uw.Recipe(seed=1, epochs=30, weight_decay=1e-3)
    how = uw.methods.make(method, {"shards": 4, "aggregation": "learned"}, recipe)
    shards = how.setup(model, data, recipe)
    request = uw.Request(nodes=[int(data.train_mask.nonzero()[0])])
    done, again = (uw.unlearn(shards, data, request, how, weight_decay=1e-3, recipe=recipe) for _ in range(2))
    touched = int(shards.members[request.nodes[0]])
    for number, (old, new) in enumerate(zip(shards.models, done.model.models, strict=True)):
        assert torch.equal(flatten(old), flatten(new)) == (number != touched)
    torch.testing.assert_close(flatten(again.model), flatten(done.model), rtol=1e-2, atol=1e-3)
    assert done.model.weights.is_cuda


def test_training_is_repeatable_and_the_generator_is_left_alone() -> None:
    data = small_graph().cuda()
    state = torch.cuda.get_rng_state()
    models = [uw.models.GCN(8, 3).cuda() for _ in range(2)]
    for model in models:
        uw.train(model, data, seed=4, epochs=10)
    torch.testing.assert_close(flatten(models[0]), flatten(models[1]), rtol=1e-3, atol=1e-4)
    assert torch.equal(torch.cuda.get_rng_state(), state)


class OnPyG(torch.nn.Module):
    """PyG's own layers, which add self-loops anew in every call and so wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(8, 4), GCNConv(4, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv2(torch.tanh(self.conv1(x, edge_index)), edge_index)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["gcn", "sgc", "gin", "gat", "pyg"])
def test_what_is_recorded_gives_what_is_run(name: str) -> None:
    data = small_graph().cuda()
    model = (OnPyG() if name == "pyg" else uw.models.build(name, 8, 3)).cuda().eval()
    decay = torch.full_like(flatten(model), 1e-3)
    plain = Objective(model, data, cross_entropy, decay, call, Meter(torch.device("cuda")))
    fast = Objective(model, data, cross_entropy, decay, call, Meter(torch.device("cuda")))
    plain._recorded = None  # nor borrowed
    theta = flatten(model)
    whether = fast.record(theta)
    assert (whether == "yes") == (name != "pyg"), whether
    for factor in (1.0, 0.5):
        expected, found = plain.look(factor * theta), fast.look(factor * theta)
        torch.testing.assert_close(found.outputs, expected.outputs)
        torch.testing.assert_close(found.gradient(), expected.gradient(), rtol=1e-4, atol=1e-4)
        assert found.value == pytest.approx(expected.value, rel=1e-5)
    for kind in (GaussNewton, Hessian):
        once, again = kind(plain.at(theta)), kind(plain.at(theta))
        assert again.record() == "yes"  # a product runs along a graph that exists already
        for v in (theta, torch.ones_like(theta)):
            torch.testing.assert_close(again(v), once(v), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["gcn", "sgc"])
def test_one_recording_serves_every_graph_that_lost_edges(name: str) -> None:
    data = small_graph().cuda()
    model = uw.models.build(name, 8, 3).cuda().eval()
    decay = torch.full_like(flatten(model), 1e-3)
    whole = Objective(model, data, cross_entropy, decay, call, Meter(torch.device("cuda")))
    theta = flatten(model)
    assert whole.record(theta) == "yes"
    parts = [whole.without(uw.draw("edges:0.05", data, seed=seed)) for seed in range(2)]
    for factor in (1.0, 0.5):
        for part in (*parts, whole):  # in turns: each must load its own values
            assert part.recorded
            plain = Objective(model, part.data.clone(), cross_entropy, decay, call, part.meter)
            assert not plain.recorded
            expected, found = plain.look(factor * theta), part.look(factor * theta)
            torch.testing.assert_close(found.outputs, expected.outputs)
            torch.testing.assert_close(found.gradient(), expected.gradient(), rtol=1e-4, atol=1e-4)
    labels = whole.without(uw.Request(labels=(int(whole.nodes[0]),)))
    assert not labels.recorded  # other training nodes


def test_a_receipt_says_whether_it_was_recorded() -> None:
    data = small_graph().cuda()
    for model, start in ((uw.models.GCN(8, 3), "yes"), (OnPyG(), "no: ")):
        run = uw.train(model.cuda(), data, forgettable=True, weight_decay=1e-2)
        done = run.forget(uw.draw("edges:0.05", data), steps=10)
        assert done.receipts[-1].details["recorded"].startswith(start)


def test_a_prepared_state_serves_an_ordinary_model_on_the_gpu() -> None:
    model, data = trained()
    there, graph = copy.deepcopy(model).cuda(), data.clone().cuda()
    ready = uw.prepare(there, graph, weight_decay=1e-3)
    request = uw.draw("edges:0.05", data)
    done = uw.unlearn(there, graph, request, weight_decay=1e-3, prepared=ready)
    here = uw.unlearn(model, data, request, weight_decay=1e-3, prepared=uw.prepare(model, data, weight_decay=1e-3))
    assert done.receipt.passes == here.receipt.passes  # what was recorded for the graph costs a request nothing
    assert done.receipt.details["recorded"] == "yes"
    assert done.receipt.residual_influence is not None


def test_a_checkpoint_brings_back_the_random_numbers_of_the_device() -> None:
    model = uw.models.GCN(8, 3).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    state = uw.Checkpoint.take(3, model, optimiser)
    assert state.device == "cuda"
    assert all(value.device.type == "cpu" for value in state.model.values())
    drawn = torch.rand(5, device="cuda")
    state.restore(model, optimiser)
    assert torch.equal(torch.rand(5, device="cuda"), drawn)


def test_replay_resumes_on_the_device_and_says_where_chance_differs() -> None:
    data = small_graph().to("cuda")
    run = uw.train(uw.models.GCN(8, 3).cuda(), data, epochs=40, checkpoints=(0.2,))
    request = uw.draw("edges:0.1", data)
    whole, retrained = run.forget(request, "replay", share=1), run.forget(request, "retrain")
    torch.testing.assert_close(flatten(whole.model), flatten(retrained.model), rtol=1e-3, atol=1e-3)
    part = run.forget(request, "replay")
    assert part.receipts[-1].details["resumed_at"] == 32
    assert len(part.receipts[-1].warnings) == 1
    elsewhere = run.to(torch.device("cpu")).forget(request, "replay")
    assert "made on cuda and replayed on cpu" in elsewhere.receipts[-1].warnings[-1]


def ladder_run() -> uw.Run:
    """A run with a path of training, prepared and calibrated, on the device."""
    data = small_graph().cuda()
    model = uw.models.GCN(8, 3, hidden=4, dropout=0.0).cuda()
    shares = (0.1, 0.2, 0.4, 0.6, 0.8)
    run = uw.train(model, data, seed=1, epochs=30, weight_decay=1e-3, checkpoints=shares)
    return run.calibrate(9)


def test_a_walk_along_the_path_agrees() -> None:
    run = uw.train(
        uw.models.GCN(8, 3, hidden=4, dropout=0.0),
        small_graph(),
        seed=1,
        epochs=30,
        weight_decay=1e-3,
        checkpoints=(0.1, 0.2, 0.4, 0.6, 0.8),
    ).prepare()
    request = uw.draw("edges:0.05,nodes:0.1", small_graph())
    expected = run.forget(request, "retrace", share=0.8, end=0.1)
    there = run.replace(model=copy.deepcopy(run.model).cuda(), data=run.data.clone().cuda())
    found = there.forget(request, "retrace", share=0.8, end=0.1)
    torch.testing.assert_close(flatten(found.model).cpu(), flatten(expected.model), rtol=2e-2, atol=2e-3)


def test_the_ladder_climbs_streams_and_purges_on_the_device() -> None:
    run = ladder_run()
    assert run.calibration is not None
    assert any(rung.method == "retrace" for rung in run.calibration.rungs)
    requests = [uw.draw("edges:0.05", small_graph(), seed=seed) for seed in range(3)]
    done = run.forget(requests, budget=0.9)
    assert len(done.receipts) == 3
    assert all(receipt.ladder is not None and receipt.verdict for receipt in done.receipts)
    assert next(done.model.parameters()).is_cuda
    purged = done.purge()
    assert not purged.checkpoints
    best = done.forget(uw.draw("nodes:0.1", small_graph(), seed=9), "auto", at_least=0.999)
    assert best.receipts[-1].details["rung"] == "retrain"


def test_certificates_agree() -> None:
    data, model = small_graph(), uw.models.SGC(8, 3)
    uw.train(model, data, seed=1, epochs=30, weight_decay=1e-2)
    request = uw.draw("edges:0.05", data)
    here = uw.unlearn(model, data, request, "gif", weight_decay=1e-2).receipt.certificate
    there = uw.unlearn(
        copy.deepcopy(model).cuda(), data.clone().cuda(), request, "gif", weight_decay=1e-2
    ).receipt.certificate
    assert here is not None
    assert there is not None
    assert here.keys() == there.keys()
    assert there["distance"] == pytest.approx(here["distance"], rel=0.2)
    run = uw.train(uw.models.SGC(8, 3).cuda(), data.clone().cuda(), seed=1, certify=(1.0, 1e-3))
    assert run.forget(request).receipts[-1].method["name"] == "certified"


def test_a_recording_outlives_what_others_remember() -> None:
    """Graphs before and after a request share tensors: what one of them lets go of, the other may still read."""
    draw = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.arange(40).repeat_interleave(8), torch.randint(0, 30, (320,), generator=draw)], dim=1)
    task = uw.tasks.Recommendation.of(pairs, users=40, items=30, negatives=4).to("cuda")
    model = uw.models.LightGCN(70, 8).cuda()
    whole = Objective(model, task, cross_entropy, torch.full((560,), 1e-3, device="cuda"), call, Meter(task.x.device))
    left = whole.without(uw.draw("edges:0.1", task))
    theta = flatten(model)
    plain = [objective.evaluate(theta) for objective in (whole, left)]
    for objective in (whole, left):
        assert objective.record(theta) == "yes"
    torch.cuda.empty_cache()
    rubbish = [torch.full((2**18,), -1, device="cuda") for _ in range(8)]
    for _ in range(3):
        for objective, (value, gradient) in zip((whole, left), plain, strict=True):
            again = objective.evaluate(theta)
            assert again[0] == pytest.approx(value, rel=1e-5)
            torch.testing.assert_close(again[1], gradient, rtol=1e-4, atol=1e-5)
    assert len(rubbish) == 8


def test_eigenvalues_of_more_matrices_than_cusolver_takes() -> None:
    draw = torch.Generator().manual_seed(0)
    matrices = torch.randn(70_000, 3, 3, generator=draw, dtype=torch.float64)
    matrices = matrices + matrices.mT
    values, vectors = eigh_of_many(matrices.cuda())
    whole = vectors @ torch.diag_embed(values) @ vectors.mT
    torch.testing.assert_close(whole.cpu(), matrices)

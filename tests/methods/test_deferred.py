"""Deferred requests: from the region alone, without a look at the graph, and verified later."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from tests.cli.test_cli import refused, unweave
from unweave._core.cost import Meter
from unweave.graph.view import GraphView
from unweave.methods.deferred import cautious_damping
from unweave.objective.decay import decay_vector
from unweave.objective.losses import cross_entropy
from unweave.objective.objective import Objective, call
from unweave.objective.parameters import flatten
from unweave.objective.scores import closed, gap, log_probabilities
from unweave.training.recipe import Training

pytestmark = pytest.mark.usefixtures("part")

DECAY = 1e-2


def edge(data: Data, number: int) -> uw.Request:
    u, v = data.edge_index[:, number].tolist()
    return uw.Request(edges=[(u, v)])


@pytest.fixture(scope="module")
def data() -> Data:
    return uw.load("demo", seed=0)


@pytest.fixture(scope="module")
def run(data: Data) -> uw.Run:
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    return uw.train(model, data, seed=0, weight_decay=DECAY, forgettable=True)


@pytest.fixture(scope="module")
def ordinary(data: Data) -> uw.Run:
    model = uw.models.GCN(data.num_features, data.num_classes, hidden=8)
    trained = uw.train(model, data, seed=0, epochs=60)
    return trained.replace(prepared=uw.prepare(model, data, weight_decay=trained.recipe.weight_decay))


def evaluate(run: uw.Run) -> tuple[float, Tensor]:
    decay = decay_vector(run.model, run.recipe.weight_decay)
    return Objective(run.model, run.data, cross_entropy, decay, call, Meter(torch.device("cpu"))).evaluate(
        flatten(run.model)
    )


@pytest.mark.parametrize("kind", ["edge", "node", "mixed"])
@pytest.mark.parametrize("forgettable", [True, False])
def test_it_is_the_first_step_of_the_whole_graph(run: uw.Run, ordinary: uw.Run, kind: str, forgettable: bool) -> None:
    before = run if forgettable else ordinary
    ready, data = before.prepared, before.data
    assert ready is not None
    assert ready.at_minimum == forgettable
    node = int(data.train_mask.nonzero()[5])
    request = {
        "edge": edge(data, 10),
        "node": uw.Request(nodes=[node]),
        "mixed": uw.Request(nodes=[node], features={3: "all"}, labels=[int(data.train_mask.nonzero()[9])]),
    }[kind]
    after = before.forget(request, defer=True)
    theta = flatten(before.model)
    _, left = evaluate(before)
    _, right = evaluate(before.replace(data=after.data))
    v = left - right
    share = int(after.data.train_mask.sum()) / int(data.train_mask.sum())
    x = ready.curvature.solve(v if forgettable else v - (1 - share) * ready.gradient, cautious_damping(ready, theta))
    found = flatten(after.model) - theta
    assert float((found - x).norm()) < 1e-3 * float(x.norm())
    receipt = after.receipts[-1]
    assert receipt.status == receipt.grade == "unverified"
    assert receipt.residual_influence is None
    assert receipt.region["halo_nodes"] >= receipt.region["training_nodes"]
    assert 0 < receipt.passes <= 4
    assert "unverified: run `unweave verify RUN`" in str(receipt)
    assert uw.Receipt.from_json(receipt.to_json()) == receipt
    assert dict(after.metrics) == {}


@pytest.mark.parametrize("edges", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_single_edges_are_forgotten_in_part(run: uw.Run, data: Data, edges: int) -> None:
    """The mean over several edges; the gap of a single one is as small as what training leaves to chance."""
    found = []
    mask = torch.ones(data.num_nodes, dtype=torch.bool)
    for number in range(0, data.num_edges, data.num_edges // edges):
        after = run.forget(edge(data, number), defer=True)
        reference = run.forget(edge(data, number), "retrain")
        target = log_probabilities(reference.model, reference.data)
        distances = [gap(target, log_probabilities(m, reference.data), mask) for m in (after.model, run.model)]
        share = closed(*distances)
        assert share is not None
        found.append(share)
    assert sum(found) / len(found) > 0


@pytest.mark.parametrize("forgettable", [True, False])
def test_verifying_gives_the_figure_of_every_receipt(run: uw.Run, ordinary: uw.Run, forgettable: bool) -> None:
    before = run if forgettable else ordinary
    node = int(before.data.train_mask.nonzero()[7])
    after = before.forget(uw.Request(nodes=[node]), defer=True)
    assert after.pending == 1
    verified = after.verify()
    _, left = evaluate(before)
    _, right = evaluate(before.replace(data=after.data))
    value, now = evaluate(after)
    expected = float((now - left).norm() / (left - right).norm())
    receipt = verified.receipts[-1]
    assert receipt.kind == "verification"
    assert list(verified.receipts[:-1]) == list(after.receipts), "what was issued stays as it is"
    assert receipt.residual_influence == pytest.approx(expected, rel=1e-3)
    assert receipt.objective["local_change"] < 0
    start, _ = evaluate(before.replace(data=after.data))
    assert receipt.objective["remaining_before"] == pytest.approx(start)
    assert receipt.objective["remaining_after"] == pytest.approx(value)
    assert f"residual {expected:.3f}"[:-1] in str(receipt)
    assert verified.metrics["test_f1"] > 0.5
    assert verified.pending == 0
    assert verified.prepared is not None
    assert verified.prepared.age == 1
    torch.testing.assert_close(verified.prepared.gradient, now)
    assert verified.prepared.objective == pytest.approx(value)
    assert verified.verify().receipts == verified.receipts, "nothing is pending, and the last receipt holds"


def test_a_stream_and_one_verification(run: uw.Run, data: Data, tmp_path: Path) -> None:
    now, asked = run, []
    generator = torch.Generator().manual_seed(1)
    _, start = evaluate(run)
    pull = torch.zeros_like(start)
    for step in range(20):
        number = int(torch.randint(now.data.num_edges, (1,), generator=generator))
        label = uw.Request(labels=[int(now.data.train_mask.nonzero()[step])])
        asked.append(label if step % 5 == 4 else edge(now.data, number))
        before, now = now, now.forget(asked[-1], defer=True)
        assert isinstance(now.state.graph, GraphView)
        assert run.prepared is not None
        assert run.prepared.locality is not None
        assert run.prepared.locality.graph is not None
        assert now.state.graph.index is run.prepared.locality.graph.index, "nothing is rebuilt"
        pull += evaluate(before)[1] - evaluate(before.replace(data=now.data))[1]
    assert now.pending == 20
    assert now.prepared is not None
    assert now.prepared.age == 20
    assert [r.status for r in now.receipts] == ["unverified"] * 20
    again = uw.Run.open(now.save(tmp_path / "a"))
    assert again.pending == 20
    verified = again.verify()
    assert torch.equal(flatten(verified.model), flatten(now.model))
    expected = float((evaluate(now)[1] - start).norm() / pull.norm())
    receipt = verified.receipts[-1]
    assert receipt.speaks_of == [r.digest for r in now.receipts]
    assert receipt.residual_influence == pytest.approx(expected, rel=1e-2), "it belongs to all of them together"
    assert "of 20 requests together" in str(receipt)
    assert receipt.objective["local_change"] < 0
    graph = data
    for request in asked:
        graph = uw.unlearn(run.model, graph, request, "none", weight_decay=DECAY).data
    assert torch.equal(graph.edge_index, verified.data.edge_index)
    assert torch.equal(graph.train_mask, verified.data.train_mask)


def test_a_request_that_is_not_deferred_verifies_first(run: uw.Run, data: Data) -> None:
    after = run.forget(edge(data, 3), defer=True).forget(edge(data, 90))
    assert [r.kind for r in after.receipts] == ["request", "verification", "request"]
    assert after.pending == 0
    again = after.forget(edge(after.data, 11), defer=True)
    assert again.receipts[-1].details["prepared"] == "after training, 2 requests ago"


def test_a_stream_without_a_run(run: uw.Run, data: Data) -> None:
    one = uw.unlearn(run.model, data, edge(data, 3), weight_decay=DECAY, prepared=run.prepared, defer=True)
    two = [
        uw.unlearn(one.model, graph, edge(data, 90), weight_decay=DECAY, prepared=one.prepared, defer=True)
        for graph in (one.graph, one.data, one.data.clone())
    ]
    assert len({done.receipt.parameters["digest_after"] for done in two}) == 1
    with pytest.raises(uw.MethodError, match="not verified"):
        uw.unlearn(one.model, one.graph, edge(data, 90), weight_decay=DECAY, prepared=one.prepared)
    plain = uw.unlearn(one.model, one.graph, edge(data, 90), weight_decay=DECAY)
    assert plain.receipt.status == "done"


def test_nothing_that_trains_is_touched(run: uw.Run, data: Data) -> None:
    """Removing an edge between nodes that no training loss looks at moves nothing, and is verified as such."""
    lonely = data.clone()
    lonely.x = torch.cat([lonely.x, lonely.x[:2]])
    lonely.y = torch.cat([lonely.y, lonely.y[:2]])
    n = data.num_nodes
    for mask in ("train_mask", "val_mask", "test_mask"):
        lonely[mask] = torch.cat([lonely[mask], torch.zeros(2, dtype=torch.bool)])
    lonely.edge_index = torch.cat([lonely.edge_index, torch.tensor([[n, n + 1], [n + 1, n]])], dim=1)
    ready = uw.prepare(run.model, lonely, weight_decay=DECAY)
    own = run.replace(data=lonely, prepared=ready)
    after = own.forget(uw.Request(edges=[(n, n + 1)]), defer=True)
    assert torch.equal(flatten(after.model), flatten(run.model))
    assert "no training node's loss changes" in after.receipts[-1].warnings[0]
    verified = after.verify().receipts[-1]
    assert verified.residual_influence is None
    assert "there is no influence to measure" in str(verified)


def test_what_cannot_be_deferred_is_refused(run: uw.Run, data: Data) -> None:
    request = edge(data, 3)
    how: dict[str, Any] = {"weight_decay": DECAY, "prepared": run.prepared, "defer": True}

    def fails(
        error: type[Exception], says: str, model: nn.Module = run.model, graph: Data = data, **given: Any
    ) -> None:
        with pytest.raises(error, match=says):
            uw.unlearn(model, graph, given.pop("request", request), **(how | given))

    fails(uw.MethodError, "needs prepared=", prepared=None)
    fails(uw.MethodError, "damping does nothing when deferring", damping=1.0)
    fails(uw.ModelError, "hops does nothing", hops=2)
    fails(uw.MethodError, "weight_decay= is not what it was", weight_decay=1e-3)
    fails(uw.MethodError, "loss= is not what it was", loss=uw.losses.squared_error)
    fails(uw.MethodError, "forward= is not what it was", forward=lambda m, d: m(d.x, d.edge_index))
    fails(uw.MethodError, "other parameters", model=uw.models.GCN(data.num_features, data.num_classes, hidden=8))
    other = data.clone()
    other.x[0] += 1
    fails(uw.MethodError, "another graph", graph=other)
    fails(uw.RequestError, "not in the graph", request=uw.Request(nodes=[10_000]))
    fails(uw.MethodError, "before requests could be deferred", prepared=replace(run.prepared, locality=None))
    with pytest.raises(uw.MethodError, match="only method 'gif'"):
        run.forget(request, "retrain", defer=True)
    rare = [int(i) for i in data.train_mask.nonzero().flatten() if int(data.y[i]) == int(data.y[data.train_mask][0])]
    fails(uw.ClassLossError, "last training node of class", request=uw.Request(labels=rare))
    fails(
        uw.RequestError, "every training node", request=uw.Request(labels=data.train_mask.nonzero().flatten().tolist())
    )
    lost = run.forget(uw.Request(labels=rare), defer=True, allow_class_loss=True)
    assert lost.receipts[-1].graph["training_nodes_after"] == int(data.train_mask.sum()) - len(rare)


def test_a_graph_that_was_written_to_is_refused(run: uw.Run, data: Data) -> None:
    mine = data.clone()
    ready = uw.prepare(run.model, mine, weight_decay=DECAY)
    mine.x[3] = 0
    with pytest.raises(uw.DataError, match="written to"):
        uw.unlearn(run.model, mine, edge(data, 3), weight_decay=DECAY, prepared=ready, defer=True)


def test_verify_notices_a_model_that_is_not_the_receipts(run: uw.Run, data: Data) -> None:
    after = run.forget(edge(data, 3))
    with pytest.raises(uw.RunError, match="not those that the last receipt tells of"):
        run.forget(edge(data, 3), defer=True).replace(model=run.model).verify()
    with pytest.raises(uw.RunError, match="not those that the last receipt"):
        after.replace(model=run.model).verify()
    with pytest.raises(uw.RunError, match="the objective is"):
        after.replace(training=Training(1.0)).verify()
    assert run.verify() is run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run: uw.Run) -> Path:
    path = tmp_path_factory.mktemp("runs")
    run.save(path / "a")
    return path


def test_the_command_line(folder: Path, data: Data) -> None:
    u, v = data.edge_index[:, 10].tolist()
    (folder / "request.json").write_text(json.dumps({"edges": [[u, v]]}))
    done = unweave("forget", folder / "a", "--request", folder / "request.json", "--defer", "--out", folder / "b")
    assert done.exit_code == 0, done.stderr
    assert "unverified: run `unweave verify RUN`" in done.stdout
    assert "Test F1" not in done.stdout
    shown = unweave("show", folder / "b").stdout
    assert f"1 of them unverified: run `unweave verify {folder / 'b'}`" in shown
    assert "not taken" in shown
    (folder / "more.json").write_text(json.dumps({"labels": [int(data.train_mask.nonzero()[0])]}))
    more = "forget", folder / "b", "--request", folder / "more.json", "--out", folder / "c", "--defer", "--json"
    assert json.loads(unweave(*more).stdout)["receipt"]["status"] == "unverified"
    done = unweave("verify", folder / "c")
    assert done.exit_code == 0, done.stderr
    assert "2 requests" in done.stdout
    assert "together" in done.stdout
    again = uw.Run.open(folder / "c")
    assert [r.kind for r in again.receipts] == ["request", "request", "verification"]
    assert "test_f1" in again.metrics
    assert "The last receipt holds" in unweave("verify", folder / "c").stdout
    assert "forgotten nothing yet" in unweave("verify", folder / "a").stdout
    assert json.loads(unweave("verify", folder / "b", "--json").stdout)["verified"] == 1
    refused(
        unweave("forget", folder / "a", "--forget", "edges:0.01", "--defer", "--method", "none", "--out", folder / "d"),
        "only method 'gif' can be deferred",
    )
    assert not (folder / "d").exists()


def test_a_step_that_is_worth_nothing_is_said_to_be(run: uw.Run, data: Data, tmp_path: Path) -> None:
    """A curvature that is far too flat sends the parameters far away."""
    assert run.prepared is not None
    flat = replace(run.prepared.curvature, values=run.prepared.curvature.values / 100)
    after = run.replace(prepared=replace(run.prepared, curvature=flat)).forget(edge(data, 10), defer=True)
    path = after.save(tmp_path / "a")
    done = unweave("verify", path)
    assert done.exit_code == 1
    assert "without deferring" in done.stderr
    verified = uw.Run.open(path).receipts[-1]
    assert verified.grade == "worse", "it is written down all the same"
    assert verified.residual_influence is not None
    assert verified.residual_influence >= 1
    assert "worse than nothing" in verified.warnings[-1]


def test_a_folder_that_cannot_be_written_is_left_as_it_was(
    run: uw.Run, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.forget(edge(data, 10), defer=True).save(tmp_path / "a")
    files = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}

    def full(place: Path, content: bytes) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("unweave.run.folder._write", full)
    refused(unweave("verify", path), "no space left")
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == files
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    monkeypatch.undo()
    assert unweave("verify", path).exit_code == 0

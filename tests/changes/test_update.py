"""Models that follow their data: as near as a model trained anew, in runs, streams, receipts and on disk."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import unweave as uw
from unweave._core.tuning import tuned
from unweave.methods.posing import meter_for, pose
from unweave.objective.losses import as_loss, cross_entropy
from unweave.objective.objective import call
from unweave.objective.parameters import flatten
from unweave.objective.scores import log_probabilities
from unweave.testing import small_graph

LONG = {"evaluations": 400}
ROW = [0.5, -0.3, 2.0, 0.1, 0.0, 0.7, -1.0, 0.2]


def fit(data: Data, model: nn.Module | None = None) -> uw.Run:
    """A convex model in double precision, at its minimum."""
    with tuned(polish=LONG):
        model = uw.models.SGC(8, 3).double() if model is None else model
        return uw.train(model, data, forgettable=True, weight_decay=1e-2, epochs=30)


def trained_to_the_end(model: nn.Module, data: Data) -> Tensor:
    """Where training on a graph leads a convex model: Newton's method on the objective, written out densely."""
    nodes, theta = data.train_mask.nonzero().flatten(), flatten(model)
    weight = data.get("edge_weight")
    shape = next(model.parameters()).shape

    def objective(theta: Tensor) -> Tensor:
        outputs: Tensor = torch.func.functional_call(
            model, {"linear.weight": theta.reshape(shape)}, (data.x, data.edge_index, weight)
        )
        loss = nn.functional.cross_entropy(outputs[nodes], data.y[nodes], reduction="sum")
        total: Tensor = loss + 1e-2 * nodes.numel() * theta.square().sum() / 2
        return total

    for _ in range(4):  # from close by
        slope, bend = torch.func.grad(objective)(theta), torch.func.hessian(objective)(theta)
        theta = theta - torch.linalg.solve(bend, slope)
    assert float(slope.norm()) < 1e-9
    return theta.detach()


def exact() -> Data:
    data = small_graph(nodes=90)
    data.x = data.x.double()
    return data


@pytest.fixture(scope="module")
def run() -> uw.Run:
    return fit(exact())


@pytest.fixture(scope="module")
def ordinary() -> uw.Run:
    data = small_graph(nodes=90)
    return uw.train(uw.models.GCN(8, 3), data, weight_decay=1e-3, epochs=40)


def mixed(data: Data) -> uw.Change:
    train = data.train_mask.nonzero().flatten().tolist()
    edge = next((u, v) for u, v in data.edge_index.t().tolist() if u < v and train[0] not in (u, v))
    return uw.Change(
        add={
            "nodes": [{"features": ROW, "label": 1, "edges": [train[1], train[2]]}, {"features": ROW[::-1]}],
            "edges": [[90, 91]],
        },
        correct={"features": {train[3]: {0: 3.0}}, "labels": {train[4]: (int(data.y[train[4]]) + 1) % 3}},
        forget=uw.Request(nodes=train[:1], edges=[edge]),
        id="mixed",
    )


def new_node(**more: Any) -> uw.Change:
    return uw.Change(add={"nodes": [{"features": ROW, "label": 1, "edges": [3, 4]}]}, **more)


PARTS: dict[str, Any] = {
    "a node": lambda data: new_node(),
    "edges": lambda data: uw.Change(add={"edges": [absent(data)]}),
    "features": lambda data: uw.Change(correct={"features": {int(data.train_mask.nonzero()[5]): ROW}}),
    "labels": lambda data: uw.Change(
        correct={"labels": {(n := int(data.train_mask.nonzero()[6])): (int(data.y[n]) + 1) % 3}}
    ),
    "all of it": mixed,
}


def absent(data: Data) -> list[int]:
    there = set(map(tuple, data.edge_index.t().tolist()))
    train = data.train_mask.nonzero().flatten().tolist()
    return next([u, v] for u in train for v in train if u < v and (u, v) not in there)


@pytest.mark.parametrize("part", PARTS)
def test_an_update_is_a_training_on_the_new_graph(run: uw.Run, part: str) -> None:
    after = run.update(PARTS[part](run.data), steps=60)
    anew = trained_to_the_end(after.model, after.data)
    far, near = (float((flatten(each.model) - anew).norm()) for each in (run, after))
    assert far > 1e-2
    assert near < 1e-6
    assert after.receipts[-1].grade == "bounded"
    after.verify()


def test_the_pull_is_the_difference_of_the_gradients_on_both_graphs(ordinary: uw.Run) -> None:
    data, change = ordinary.data, mixed(ordinary.data)
    after = ordinary.update(change, "none").data
    gradients = []
    for graph in (data, after):
        model = copy.deepcopy(ordinary.model).eval()
        nodes, theta = graph.train_mask, list(model.parameters())
        loss = nn.functional.cross_entropy(model(graph.x, graph.edge_index)[nodes], graph.y[nodes], reduction="sum")
        decay = 1e-3 * int(nodes.sum()) * sum(p.square().sum() for p in theta) / 2
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss + decay, theta)]))
    meter = meter_for(ordinary.model, data, change)
    problem, region, _ = pose(
        ordinary.model, data, change, weight_decay=1e-3, loss=as_loss(cross_entropy), forward=call, meter=meter
    )
    assert torch.allclose(problem.forgotten_gradient, gradients[0] - gradients[1], atol=1e-4)
    assert region.mask[90:].all()


def test_a_node_that_came_and_went_leaves_nothing(run: uw.Run) -> None:
    grown = run.update(new_node(), steps=60)
    back = grown.forget(uw.Request(nodes=[90]), steps=60)
    before, after = log_probabilities(run.model, run.data), log_probabilities(back.model, back.data)
    moved = log_probabilities(grown.model, grown.data)[:90]
    assert float((moved - before).abs().max()) > 1e-3
    assert float((after[:90] - before).abs().max()) < 1e-4
    assert [receipt.kind for receipt in back.receipts] == ["change", "request"]
    back.verify()


def test_only_forgetting_is_what_forget_does(run: uw.Run) -> None:
    request = uw.Request(nodes=[3], id="a")
    one, other = run.forget(request), run.update(uw.Change(forget=request))
    assert torch.equal(flatten(one.model), flatten(other.model))
    assert one.receipts[-1].kind == other.receipts[-1].kind == "request"
    assert one.receipts[-1].request_digest == other.receipts[-1].request_digest
    assert other.receipts[-1].id == "a"


def test_without_a_prepared_state_it_is_the_same(run: uw.Run) -> None:
    change = mixed(run.data)
    done = uw.unlearn(run.model, run.data, change, weight_decay=1e-2, recipe=run.recipe, steps=60)
    known = run.update(change, steps=60)
    assert float((flatten(done.model) - flatten(known.model)).norm()) < 1e-4
    assert done.data.num_nodes == 92
    assert done.receipt.kind == "change"


def test_receipts_tell_what_was_done_and_hold_no_value(run: uw.Run) -> None:
    change = new_node(correct={"features": {7: {0: 41.25}}}, note="by post")
    receipt = run.update(change).receipts[-1]
    assert receipt.request["add"] == {"nodes": [90], "edges": [[3, 90], [4, 90]]}
    assert receipt.request["correct"] == {"features": {"7": [0]}}
    assert receipt.request_digest == change.digest
    text = str(receipt)
    assert "Data changed in the graph: yes, 1 node and 2 edges added, 1 row of features corrected." in text
    assert "without it" not in receipt.verdict
    for value in ("41.25", "-0.3"):
        assert value not in text
        assert value not in receipt.to_json()
    assert any(found["what"] == "what was added or corrected" for found in receipt.remembers)


def test_a_stream_mixes_changes_and_requests(run: uw.Run, tmp_path: Path) -> None:
    stream: list[uw.Change | uw.Request] = [
        new_node(id="one"),
        uw.Change(add={"edges": [[90, 8]]}, correct={"labels": {90: 2}}, id="two"),
        uw.Request(nodes=[90], id="three"),
    ]
    after = run.update(stream, out=tmp_path / "a", graph=tmp_path / "a.pt")
    assert [receipt.kind for receipt in after.receipts] == ["change", "change", "request"]
    one_by_one = run
    for part in stream:
        one_by_one = one_by_one.update(part)
    assert torch.equal(flatten(after.model), flatten(one_by_one.model))
    again = after.update(stream)  # it was interrupted, perhaps
    assert [receipt.status for receipt in again.receipts[3:]] == ["nothing to do"] * 3
    assert torch.equal(flatten(again.model), flatten(after.model))
    with pytest.raises(uw.RequestError, match=r"change|request 2 of 2.*deleted by an earlier request"):
        run.update([uw.Request(nodes=[5]), uw.Change(correct={"labels": {5: 1}})])
    with pytest.raises(uw.RequestError, match="90: deleted by an earlier request"):
        after.update(uw.Change(add={"edges": [[90, 9]]}))
    kept = run.update([uw.Change(add={"edges": [[0, 400]]}), new_node()], skip_invalid=True)
    assert [receipt.status for receipt in kept.receipts] == ["refused", "done"]
    assert [receipt.kind for receipt in kept.verify().receipts] == ["change", "change"]


def test_what_came_back_can_go_again(run: uw.Run) -> None:
    u, v = (int(end) for end in run.data.edge_index[:, 0])
    gone = run.forget(uw.Request(edges=[(u, v)], labels=[int(run.data.train_mask.nonzero()[8])]))
    label = int(run.data.train_mask.nonzero()[8])
    back = gone.update(uw.Change(add={"edges": [[u, v]]}, correct={"labels": {label: int(run.data.y[label])}}))
    assert bool(back.data.train_mask[label])
    assert float((flatten(back.model) - flatten(run.model)).norm()) < 1e-2
    again = back.forget(uw.Request(edges=[(u, v)], labels=[label]))
    assert again.receipts[-1].status == "done"
    again.verify()


def test_a_run_opens_with_the_graph_as_it_is_now(run: uw.Run, tmp_path: Path) -> None:
    after = run.update(mixed(run.data), out=tmp_path / "a")
    opened = uw.Run.open(tmp_path / "a", data=after.data)
    assert torch.equal(flatten(opened.model), flatten(after.model))
    opened.verify()
    further = opened.update(uw.Change(correct={"labels": {91: 2}}), out=tmp_path / "b").forget(uw.Request(nodes=[90]))
    further.save(tmp_path / "c")
    uw.Run.open(tmp_path / "c", data=further.data).verify()
    after_the_last_change = opened.update(uw.Change(correct={"labels": {91: 2}})).data
    uw.Run.open(tmp_path / "c", data=after_the_last_change).verify()
    for data, wrong in ((None, "a run does not hold it; pass as data="), (run.data, "as it is now")):
        with pytest.raises(uw.RunError, match=wrong):
            uw.Run.open(tmp_path / "c", data=data)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "b").rglob("*") if path.is_file())
    assert torch.tensor(ROW, dtype=torch.double).numpy().tobytes() not in stored


def test_a_dry_run_changes_nothing(run: uw.Run) -> None:
    plan = run.preview(mixed(run.data))
    assert plan.removed["added_nodes"] == 2
    assert "To add     2 nodes and 3 edges" in str(plan)
    assert plan.passes["least"] is not None
    with pytest.raises(uw.RequestError, match="not in the graph"):
        run.preview(uw.Change(add={"edges": [[0, 400]]}))
    assert run.preview(new_node(), "retrain").how.startswith("train from scratch")


@pytest.mark.parametrize("method", ["auto", "if", "replay", "eraser-blpa", "gif-published"])
def test_methods_of_deletions_refuse_before_any_work(run: uw.Run, method: str) -> None:
    with pytest.raises(uw.MethodError, match="deletions alone"):
        run.update(new_node(), method)


@pytest.mark.parametrize("method", ["retrain", "finetune", "none"])
def test_what_uses_objectives_alone_answers_changes(ordinary: uw.Run, method: str) -> None:
    after = ordinary.update(mixed(ordinary.data), method)
    assert after.data.num_nodes == 92
    assert after.receipts[-1].kind == "change"
    after.verify()


class Pooled(nn.Module):
    """Mixes all nodes: a blank one changes everybody's prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x - x.mean(dim=0))
        return outputs


class Table(nn.Module):
    """Has a row for every node."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.layer = nn.Embedding(90, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x + self.rows.weight)
        return outputs


@pytest.mark.parametrize(("model", "wrong"), [(Pooled, "mixes all nodes"), (Table, "has it a row for every node")])
def test_a_model_that_a_blank_node_changes_is_refused(model: type[nn.Module], wrong: str) -> None:
    data = small_graph(nodes=90)
    run = uw.train(model(), data, weight_decay=1e-2, epochs=20)
    for ready in (run, run.prepare()):
        with pytest.raises(uw.ModelError, match=wrong):
            ready.update(new_node())
    assert run.update(uw.Change(correct={"features": {3: ROW}})).receipts[-1].carried_out


def test_edge_weights_are_put_right() -> None:
    data = small_graph(nodes=90)
    data.x = data.x.double()
    data.edge_weight = torch.ones(data.edge_index.size(1), dtype=torch.double)
    run = fit(data)
    u, v = (int(end) for end in data.edge_index[:, 0])
    after = run.update(uw.Change(correct={"edge_weights": [[u, v, 5.0]]}), steps=60)
    assert float((flatten(after.model) - trained_to_the_end(after.model, after.data)).norm()) < 1e-4
    assert after.receipts[-1].removed["corrected_weights"] == 1


def test_a_grown_graph_wears_the_curvature_out(run: uw.Run) -> None:
    assert run.prepared is not None
    before, edges = run.prepared, int(run.data.edge_index.size(1))
    after = run.update(new_node()).prepared
    assert after is not None
    assert (after.came, after.joined) == (4, 1)
    assert after.worn(edges + 4, before.nodes + 1) == pytest.approx(max(4 / edges, 1 / before.nodes))

"""The forces behind a step: their balance, every node's part against a dense float64 reference, how they are told."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

import unweave as uw
from tests.cases import DECAY, LOSSES, OUTPUTS, REQUESTS, Built, Case, dense_outputs
from tests.curvature.test_products import dense_gauss_newton
from unweave.experiments.plots import plot_explanation
from unweave.inspection.explain import PULLS, RESISTANCES
from unweave.objective.objective import Objective
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

DAMPING = 0.3
CASES = [
    Case(layer, loss, request, directed)
    for layer, loss in [("sgc", "cross-entropy"), ("gcn", "cross-entropy"), ("gcn", "squared"), ("gat", "bce")]
    for request in REQUESTS
    for directed in (False, True)
]


def explain(case: Case, built: Built, **options: Any) -> uw.Explanation:
    options = {"damping": DAMPING, **options}
    request = case.forget(built.data)
    return uw.explain(built.model, built.data, request, weight_decay=DECAY, loss=LOSSES[case.loss], **options)


def node_gradients(objective: Objective, theta: Tensor) -> Tensor:
    """∇ℓ_i, a row for each node of the graph; zero outside the training set."""
    outputs, y = dense_outputs(objective), objective.data.y[objective.data.train_mask]
    rows = torch.zeros(objective.data.num_nodes, theta.numel(), dtype=theta.dtype)
    rows[objective.data.train_mask] = jacrev(lambda t: objective.loss(outputs(t), y))(theta)
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_force_is_the_dense_one(case: Case) -> None:
    built = case.build()
    theta, touched = built.theta, built.removal.touched
    found = explain(case, built)
    pull = node_gradients(built.before, theta) - node_gradients(built.after, theta)
    decay = (built.before.mu - built.after.mu) * theta
    parts = {"touched": pull[touched].sum(dim=0), "neighbourhood": pull[~touched].sum(dim=0), "decay": decay}
    matrix = dense_gauss_newton(built.after, theta) + DAMPING * torch.eye(theta.numel(), dtype=theta.dtype)
    x = torch.linalg.solve(matrix, sum(parts.values()))  # type: ignore[arg-type]

    torch.testing.assert_close(found.node_pulls, pull @ x, rtol=1e-7, atol=1e-10)
    for name, part in parts.items():
        assert found.pulls[name] == pytest.approx(float(part @ x), rel=1e-7, abs=1e-10)
    assert found.work == pytest.approx(float(x @ matrix @ x), rel=1e-8)
    assert sum(found.resistances.values()) == pytest.approx(found.work, rel=1e-8), "the forces balance"

    outputs = dense_outputs(built.after)
    z, y = outputs(theta), built.after.data.y[built.after.data.train_mask]
    moved = (jacrev(outputs)(theta) @ x).reshape(-1, OUTPUTS)
    bend = [
        torch.func.hessian(lambda row, i=i: built.after.loss(row[None], y[i][None])[0])(z[i]) for i in range(len(z))
    ]
    expected = torch.zeros_like(found.node_resistances)
    expected[built.after.data.train_mask] = torch.stack([m @ b @ m for m, b in zip(moved, bend, strict=True)])
    torch.testing.assert_close(found.node_resistances, expected, rtol=1e-7, atol=1e-10)
    assert found.resistances["decay"] == pytest.approx(float(built.after.mu @ x.square()), rel=1e-7)
    assert found.resistances["damping"] == pytest.approx(DAMPING * float(x @ x), rel=1e-7)

    at = 0
    for row, (name, parameter) in zip(found.parameters, built.model.named_parameters(), strict=True):
        piece, at = slice(at, at + parameter.numel()), at + parameter.numel()
        assert (row["name"], row["count"]) == (name, parameter.numel())
        assert row["moves"] == pytest.approx(float(x[piece].norm()), rel=1e-6, abs=1e-10)
        for force, part in parts.items():
            alone = torch.linalg.solve(matrix, part)[piece]
            assert row[force] == pytest.approx(float(alone.norm()), rel=1e-6, abs=1e-8)


def test_the_nodes_named_are_those_of_largest_size() -> None:
    case = Case("gcn", "cross-entropy", "mixed", False)
    built = case.build()
    found = explain(case, built, top=3)
    touched = built.removal.touched
    for side, values in (
        ("touched", found.node_pulls * touched),
        ("neighbourhood", found.node_pulls * ~touched),
        ("nodes", found.node_resistances),
    ):
        named = found.hardest[side]
        assert [n.node for n in named] == values.abs().argsort(descending=True)[:3].tolist()
        assert [n.work for n in named] == [float(values[n.node]) for n in named]
        assert [n.label for n in named] == [int(built.data.y[n.node]) for n in named]
        assert all(n.share == pytest.approx(n.work / found.work) for n in named)
    assert all(n.hops == 0 for n in found.hardest["touched"])
    assert all(n.hops is None or n.hops > 0 for n in found.hardest["neighbourhood"])


@pytest.mark.parametrize("forget", ["nodes:0.1", "edges:0.1"])
def test_the_damping_is_the_one_gif_chooses_for_one_step(forget: str) -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, epochs=60)
    request = uw.draw(forget, data)
    gif = uw.unlearn(model, data, request, weight_decay=1e-4, steps=1).receipt
    found = uw.explain(model, data, request, weight_decay=1e-4)
    assert gif.solve is not None
    assert found.damping == gif.solve["settings"]["damping"]
    assert sum(found.resistances.values()) == pytest.approx(found.work, rel=1e-3), "in float32 too"
    assert not found.warnings


def test_a_hub_that_goes_is_named_first_and_its_neighbourhood_pulls() -> None:
    """A node linked to all others, with the features of another class than its own."""
    data = small_graph()
    hub, *rest = data.train_mask.nonzero().flatten().tolist()
    others = torch.tensor([i for i in range(60) if i != hub])
    spokes = torch.stack([torch.full_like(others, hub), others])
    data.edge_index = torch.unique(torch.cat([data.edge_index, spokes, spokes.flip(0)], dim=1), dim=1)
    data.x[hub] = 0
    data.x[hub, (int(data.y[hub]) + 1) % 3] = 20
    model = uw.models.SGC(8, 3)
    uw.train(model, data, weight_decay=1e-2)
    found = uw.explain(model, data, uw.Request(nodes=[hub, *rest[:3]]), weight_decay=1e-2)
    assert found.hardest["touched"][0].node == hub
    assert found.pulls["neighbourhood"] > 0
    assert {n.hops for n in found.hardest["neighbourhood"]} == {1}


def test_it_reads_as_text_and_as_json_and_as_a_picture(tmp_path: Path) -> None:
    case = Case("gcn", "cross-entropy", "mixed", False)
    found = explain(case, case.build())
    text = str(found)
    for word in (*PULLS.values(), *RESISTANCES.values(), "nats", "layers.0.lin.weight", "damping 0.3", "class"):
        assert word in text
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["format"] == "unweave-explanation-1"
    assert sum(document["pulls"].values()) == pytest.approx(document["work"])
    assert uw.Request.from_dict(document["request"]).nodes == (3,)
    assert plot_explanation(found, tmp_path / "deep" / "explain.png").stat().st_size > 10_000
    plain = Case("gcn", "squared", "labels", True)
    found = explain(plain, plain.build(), top=1)
    assert "of loss" in str(found)
    assert all(n.label is None for nodes in found.hardest.values() for n in nodes)
    assert plot_explanation(found, tmp_path / "explain.svg").exists()
    with pytest.raises(uw.UnweaveError, match="cannot draw"):
        plot_explanation(found, tmp_path / "explain.doc")


def test_test_labels_never_matter_and_nothing_of_the_callers_is_touched() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, epochs=30)
    model.train()
    request = uw.draw("nodes:0.1", data)
    theta, graph, random = flatten(model), copy.deepcopy(data.to_dict()), torch.random.get_rng_state()
    found = uw.explain(model, data, request, weight_decay=1e-4)
    assert model.training
    assert torch.equal(flatten(model), theta)
    assert torch.equal(random, torch.random.get_rng_state())
    assert all(torch.equal(v, graph[k]) for k, v in data.to_dict().items() if isinstance(v, Tensor))
    data.y[~data.train_mask] = (data.y[~data.train_mask] + 1) % 3
    with torch.no_grad():
        assert uw.explain(model, data, request, weight_decay=1e-4).to_dict() == found.to_dict()


def test_the_last_node_of_a_class_can_be_explained() -> None:
    data = small_graph()
    model = uw.models.SGC(8, 3)
    uw.train(model, data, epochs=30)
    members = (data.train_mask & (data.y == 1)).nonzero().flatten().tolist()
    assert uw.explain(model, data, uw.Request(labels=members), weight_decay=1e-4).work > 0


def averaged(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One number for all nodes, which is not what is asked for."""
    return torch.nn.functional.cross_entropy(outputs, labels)


def test_what_cannot_be_explained_is_refused() -> None:
    data = Case("gcn", "cross-entropy", "edges", True).graph()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[12], [13]])], dim=1)
    data.train_mask[[12, 13]] = False
    model = Case("sage", "cross-entropy", "edges", True).model()
    for request, options, error, says in (
        (uw.Request(edges=[(12, 13)]), {}, uw.RequestError, "nothing pulls at the parameters"),
        (uw.Request(nodes=[99]), {}, uw.RequestError, "not in the graph"),
        ({"nodes": [3]}, {}, uw.RequestError, "must be an unweave.Request"),
        (uw.Request(nodes=[3]), {"damping": -1.0}, uw.MethodError, "damping must be"),
        (uw.Request(nodes=[3]), {"top": 0}, uw.UnweaveError, "top must be"),
        (
            uw.Request(nodes=[3]),
            {"loss": averaged},
            uw.ModelError,
            "one number for each",
        ),
    ):
        with pytest.raises(error, match=says):
            uw.explain(model, data, request, weight_decay=DECAY, **options)  # type: ignore[arg-type]
    with pytest.raises(uw.NoProgressError, match="curvature is flat; give more damping"):
        uw.explain(model, data, uw.Request(nodes=[3]), weight_decay=0.0, loss=lambda z, y: z.sum(dim=1), damping=0.0)
    with pytest.raises(uw.ModelError, match="a model is a torch"):
        uw.explain("gcn", data, uw.Request(nodes=[3]), weight_decay=DECAY)  # type: ignore[arg-type]


def test_who_feels_a_request_is_told_predicted_and_actual(tmp_path: Path) -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(data.num_features, data.num_classes), data, weight_decay=1e-2, forgettable=True)
    assert run.recipe is not None
    request = uw.draw("nodes:0.1", data, seed=0)
    after = run.forget(request, "gif")
    found = uw.explain(run.model, data, request, weight_decay=run.recipe.weight_decay, after=after.model)
    before, now = (run.model(data.x, data.edge_index), after.model(after.data.x, after.data.edge_index))
    before, now = before.softmax(dim=1).detach(), now.softmax(dim=1).detach()
    size = (now - before).gather(1, before.argmax(dim=1)[:, None]).flatten().abs()
    size[list(request.nodes)] = 0
    assert {node.node for node in found.changed[:3]} <= set(size.argsort(descending=True)[:5].tolist())
    for node in found.changed:
        assert node.label == int(before[node.node].argmax())
        assert node.before == pytest.approx(float(before[node.node, node.label]), abs=1e-5)
        assert node.actual == pytest.approx(float(now[node.node, node.label]), abs=1e-5)
    missed, moved = (sum(abs(getattr(n, key) - n.actual) for n in found.changed) for key in ("predicted", "before"))
    assert missed < moved, "nearer than nothing"
    assert f"{found.changed[0].actual:.3f} actual" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["changed"][0]["node"] == found.changed[0].node
    assert plot_explanation(found, tmp_path / "explain.png").stat().st_size > 10_000

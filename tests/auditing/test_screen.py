"""Screening: damage by its formula, random requests left alone, attacks flagged, refused and accounted for."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.cli.test_cli import refused, unweave
from tests.scripts import small_demo
from unweave.auditing.before.damage import OTHERS, VALIDATION, Probe
from unweave.auditing.limits import limits_of
from unweave.curvature.preparation import checked_objective
from unweave.graph.index import distinct_edges
from unweave.graph.lookalikes import Resampler
from unweave.graph.removal import remove
from unweave.methods.deferred import cautious_damping
from unweave.models import GCN, Shards
from unweave.objective.parameters import flatten
from unweave.testing import small_graph

GROUPS = {VALIDATION: "val_mask", OTHERS: "test_mask"}


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph, large enough to hold an attack, is all of it."""
    with small_demo(1300):
        yield


@pytest.fixture(scope="module")
def run() -> uw.Run:
    data = uw.load("demo")
    return uw.train(GCN(data.num_features, data.num_classes), data, seed=0).prepare()


def probe_of(run: uw.Run) -> Probe:
    decay = run.recipe.weight_decay
    return Probe(checked_objective(run.model, run.data, decay, run.loss, run.forward), run.prepared)


@pytest.fixture(scope="module")
def attacks(run: uw.Run) -> dict[str, uw.Request]:
    """Nodes or edges beside the nodes of a group, each tried alone, and the worst of them taken together."""
    found, probe = {}, probe_of(run)
    for name, kind in ((VALIDATION, "nodes"), (OTHERS, "edges")):
        source, target = run.data.edge_index
        near = run.data[GROUPS[name]][target] & run.data.train_mask[source]
        pairs = [(min(u, v), max(u, v)) for u, v in run.data.edge_index[:, near].t().tolist()]
        if kind == "nodes":
            requests = [uw.Request(nodes=[node]) for node in torch.unique(source[near])[:160].tolist()]
        else:
            requests = [uw.Request(edges=[pair]) for pair in dict.fromkeys(pairs[:160])]
        alone = [probe.damage(request)[name].total for request in requests]
        found[name] = uw.Request.merged([requests[i] for i in np.argsort(alone)[-40:]])
    return found


def test_the_damage_is_what_the_formula_says() -> None:
    data = small_graph()
    run = uw.train(GCN(8, 3, hidden=4).double(), _double(data), seed=0, epochs=30).prepare()
    ready, model, data = run.prepared, run.model, run.data
    assert ready is not None
    request = uw.draw("nodes:0.1,edges:0.1", data)
    left = remove(data, request).data
    labels = torch.where(data.test_mask, model(data.x, data.edge_index).argmax(dim=-1), data.y)

    def loss(graph: Data, mask: torch.Tensor, reduction: str) -> torch.Tensor:
        outputs = model(graph.x, graph.edge_index)[mask]
        return torch.nn.functional.cross_entropy(outputs, labels[mask], reduction=reduction)

    def slope(value: torch.Tensor) -> torch.Tensor:
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])

    theta, share = flatten(model), int(left.train_mask.sum()) / int(data.train_mask.sum())
    decay = run.recipe.weight_decay * int(data.train_mask.sum()) * theta
    before = slope(loss(data, data.train_mask, "sum")) + decay
    after = slope(loss(left, left.train_mask, "sum")) + share * decay
    found = probe_of(run).damage(request)
    assert list(found) == [VALIDATION, OTHERS]
    for name, mask in GROUPS.items():
        held = data[mask]
        structural = (loss(left, held, "mean") - loss(data, held, "mean")).detach()
        step = ready.curvature.solve(share * before - after, cautious_damping(ready, theta))
        assert found[name].structural == pytest.approx(float(structural), rel=1e-9, abs=1e-12)
        assert found[name].step == pytest.approx(float(slope(loss(data, held, "mean")) @ step), rel=1e-6)
        assert found[name].total == found[name].structural + (found[name].step or 0)


def _double(data: Data) -> Data:
    data.x = data.x.double()
    return data


@pytest.mark.parametrize("request_of", ["nodes:0.02", "labels:0.02"])
def test_random_requests_are_flagged_about_as_often_as_stated(run: uw.Run, request_of: str) -> None:
    probe, rng = probe_of(run), np.random.default_rng(0)
    others = Resampler(uw.draw(request_of, run.data), run.data)
    drawn = [probe.damage(others.draw(rng)) for _ in range(100)]
    totals = np.array([[damage[name].total for name in GROUPS] for damage in drawn])
    flagged = []
    for _ in range(300):
        order = rng.permutation(100)
        limits = [limits_of(column).upper(0.05 / 2) for column in totals[order[:40]].T]
        flagged.append((totals[order[40:]] > limits).any(axis=1).mean())
    assert 0.02 < float(np.mean(flagged)) < 0.09


@pytest.mark.parametrize("name", GROUPS)
def test_an_attack_is_flagged_and_refused(run: uw.Run, attacks: dict[str, uw.Request], name: str) -> None:
    found = run.screen(attacks[name])
    effect = found.effects[name]
    assert found.flagged
    assert effect.flagged
    assert effect.damage > effect.high
    assert effect.damage > effect.largest
    assert effect.chance < found.rate / 2
    assert found.statement.startswith("abnormal")
    with pytest.raises(
        uw.AbnormalRequestError, match=rf"{name} nodes by \+.* random requests like it.*leave screen=True"
    ):
        found.refuse()


def test_a_random_request_is_usual_and_test_labels_do_not_matter(run: uw.Run) -> None:
    request = uw.draw("nodes:0.02,edges:0.01", run.data, seed=5)
    before = flatten(run.model).clone()
    found = run.screen(request, draws=12)
    assert not found.flagged
    assert found.statement.startswith("usual")
    found.refuse()
    assert torch.equal(flatten(run.model), before)
    hidden = run.data.clone()
    hidden.y[hidden.test_mask] = (hidden.y[hidden.test_mask] + 1) % hidden.num_classes
    again = run.replace(data=hidden).screen(request, draws=12)
    assert again.effects == found.effects, "the same seed, and no test label"
    assert run.screen(request, draws=12, seed=1).effects != found.effects
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["effects"]["validation"]["flagged"] is document["flagged"] is False
    assert document["draws"] == 12


def test_without_a_prepared_state_the_curvature_is_computed_for_it(run: uw.Run, attacks: dict[str, uw.Request]) -> None:
    plain, request = run.replace(prepared=None), attacks[VALIDATION]
    alone, ready = (r.screen(request, draws=10) for r in (plain, run))
    assert "20 products" in alone.how
    assert "prepared" in ready.how
    assert alone.passes == pytest.approx(ready.passes + 2 * 20, abs=8)
    ours, theirs = (r.effects[VALIDATION].damage for r in (alone, ready))
    assert ours == pytest.approx(theirs, rel=0.1)
    assert alone.flagged
    with pytest.raises(uw.MethodError, match="other parameters"):
        uw.screen(GCN(600, 6), run.data, request, weight_decay=1e-4, prepared=run.prepared)
    for wrong in ({"draws": 3}, {"rate": 0.0}, {"seed": -1}):
        with pytest.raises(uw.MethodError, match="draws must be"):
            run.screen(request, **wrong)  # type: ignore[arg-type]


def test_a_model_without_a_gradient_is_screened_by_its_graph_alone() -> None:
    data = small_graph()
    model = Shards([GCN(8, 3, hidden=4) for _ in range(3)], torch.zeros(60, dtype=torch.long), "majority")
    found = uw.screen(model, data, uw.draw("edges:0.2", data), weight_decay=0.0, draws=10)
    assert "no step is known" in str(found)
    assert all(effect.step is None for effect in found.effects.values())
    assert not uw.screen(model, data, uw.Request(labels=[0, 1]), weight_decay=0.0, draws=10).flagged


def test_without_validation_nodes_it_says_so() -> None:
    data = small_graph()
    run = uw.train(GCN(8, 3, hidden=4), data, seed=0, epochs=5)
    every = data.val_mask.nonzero().flatten().tolist()
    with pytest.raises(uw.DataError, match="takes every validation node"):
        run.screen(uw.Request(labels=every))
    bare = data.clone()
    bare.val_mask[:] = False
    for graph in (bare, run.replace(data=bare).forget(uw.draw("edges:0.1", bare), "none").data):
        with pytest.raises(uw.DataError, match="the graph has none"):
            run.replace(data=graph).screen(uw.draw("nodes:0.1", graph))


def test_a_screened_request_is_in_the_receipt_with_its_cost(run: uw.Run, tmp_path: Path) -> None:
    edges = [(u, v) for u, v in distinct_edges(run.data)[::400].tolist()]
    request = uw.Request(edges=edges)
    plain, done = run.forget(request), run.forget(request, screen=True)
    receipt = done.receipts[-1]
    assert receipt.screening is not None
    assert receipt.passes == plain.receipts[-1].passes + receipt.screening["passes"]
    assert receipt.seconds["screen"] == receipt.screening["seconds"] > 0
    phases = sum(seconds for phase, seconds in receipt.seconds.items() if phase != "total")
    assert receipt.seconds["total"] == pytest.approx(phases)
    assert "Screened   usual" in str(receipt)
    assert torch.equal(flatten(done.model), flatten(plain.model))
    done.save(tmp_path / "b")
    assert uw.Run.open(tmp_path / "b").receipts[-1] == receipt
    with pytest.raises(uw.EmptyRequestError, match="nothing to forget of this request"):
        done.screen(request)
    more = uw.Request(edges=[*edges, tuple(distinct_edges(run.data)[1].tolist())])
    assert len(done.screen(more, draws=10).request["edges"]) == 1
    deferred = run.forget(request, defer=True, screen=True).receipts[-1]
    assert deferred.screening is not None
    with pytest.raises(uw.MethodError, match="the whole graph at once"):
        run.forget(request, screen=True, memory_mib=100)


def test_a_stream_stops_at_an_attack(run: uw.Run, attacks: dict[str, uw.Request]) -> None:
    stream = [uw.draw("labels:0.005", run.data), attacks[OTHERS]]
    with pytest.raises(uw.AbnormalRequestError, match=r"request 2 of 2: the request is out of the ordinary"):
        run.forget(stream, "none", screen=True)
    assert len(run.forget(stream, "none").receipts) == 2


def test_on_the_command_line(run: uw.Run, attacks: dict[str, uw.Request], tmp_path: Path) -> None:
    run.save(tmp_path / "a")
    (tmp_path / "attack.json").write_text(attacks[VALIDATION].to_json())
    (tmp_path / "one.json").write_text('{"labels": [3]}')
    for name, found in (("attack", "abnormal"), ("one", "usual")):
        shown = unweave("forget", tmp_path / "a", "--request", tmp_path / f"{name}.json", "--dry-run")
        assert shown.exit_code == 0, shown.stderr
        assert f"Screened   {found}: the loss is predicted to change by" in shown.stdout
    asked = ("forget", tmp_path / "a", "--request", tmp_path / "attack.json")
    document = json.loads(unweave(*asked, "--dry-run", "--json").stdout)
    assert document["screening"]["flagged"] is True
    told = unweave(*asked, "--dry-run", "--memory-mib", 400)
    assert "Screened   not possible: it looks at the whole graph" in told.stdout
    refused(unweave(*asked, "--screen", "--out", tmp_path / "b"), "the request is out of the ordinary")
    assert not (tmp_path / "b").exists()
    done = unweave("forget", tmp_path / "a", "--request", tmp_path / "one.json", "--screen", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert "Screened   usual" in done.stdout

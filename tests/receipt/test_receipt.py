"""Receipts: complete, stable, and readable."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import torch

import unweave as uw
from unweave.receipt.receipt import Receipt
from unweave.receipt.words import GRADES
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def done() -> uw.Unlearned:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, seed=1, epochs=30)
    return uw.unlearn(model, data, uw.draw("edges:0.03,features:0.05", data), weight_decay=1e-4)


def test_it_holds_everything(done: uw.Unlearned) -> None:
    document = json.loads(done.receipt.to_json())
    assert document["format"] == "unweave-receipt-2"
    assert set(document) == {
        "format", "kind", "status", "time", "version", "id", "note", "asked", "request_digest", "request", "reason",
        "speaks_of", "previous", "removed", "graph", "region", "method", "details", "solve", "objective",
        "residual_influence", "step_norm", "anew", "parameters", "seconds", "passes", "peak_mib", "seed", "environment",
        "warnings", "nearness", "certificate", "remembers", "ladder", "screening", "verdict", "grade",
    }  # fmt: skip
    assert document["request_digest"] == uw.Request.from_dict(document["asked"]).digest
    assert document["version"] == uw.__version__
    assert datetime.fromisoformat(document["time"]).utcoffset() == timedelta(0)
    assert document["grade"] in GRADES
    assert set(document["solve"]["settings"]) == {"damping", "tolerance", "iterations"}
    assert document["solve"]["converged"]
    assert document["solve"]["smallest_curvature"] <= document["solve"]["largest_curvature"]
    assert set(document["seconds"]) == {"validate", "graph", "region", "evaluate", "forget", "verify", "total"}
    assert document["seconds"]["total"] == pytest.approx(
        sum(v for k, v in document["seconds"].items() if k != "total"), rel=1e-9
    )
    assert sum(document["region"]["sizes"]) == document["region"]["nodes"]
    assert {"torch", "torch_geometric", "python", "device", "dtype", "threads"} <= set(document["environment"])
    assert document["parameters"]["digest_before"] != document["parameters"]["digest_after"]
    assert document["objective"]["local_change"] < 0


def test_json_is_stable(done: uw.Unlearned) -> None:
    text = done.receipt.to_json()
    assert Receipt.from_json(text).to_json() == text
    with pytest.raises(uw.RunError, match="not a receipt"):
        Receipt.from_json('{"format": "else"}')


def test_what_was_edited_is_no_receipt(done: uw.Unlearned) -> None:
    """Whoever can write a folder can write anything into it: no traceback, and nothing for the terminal."""
    document = done.receipt.to_dict()
    for name, value in (
        ("warnings", [3]), ("details", []), ("passes", "many"), ("kind", "other"), ("status", ""), ("remembers", [{}]),
        ("residual_influence", "0"), ("asked", None), ("anew", 1),
    ):  # fmt: skip
        with pytest.raises(uw.RunError, match="not what a receipt has there"):
            Receipt.from_dict(document | {name: value})
    del document["solve"]
    with pytest.raises(uw.RunError, match="lacks 'solve'"):
        Receipt.from_dict(document)
    with pytest.raises(uw.RunError, match="not valid JSON"):
        Receipt.from_json("{")
    evil = replace(done.receipt, warnings=["\x1b[2Jgone"], note="a\x07b")
    assert "\x1b" not in str(evil)
    assert "\x07" not in str(evil)


def test_it_reads_well(done: uw.Unlearned) -> None:
    text = str(done.receipt)
    assert text.startswith("Verdict    Data removed from the graph: yes. Model: ")
    first, details = text.split("Details")
    assert "krylov" not in first, "what only an expert needs comes last"
    assert "krylov" in details
    for word in ("Forgotten", "Affected", "Method", "Solved", "Moved", "How near", "Cost"):
        assert word in text
    assert "nan" not in text.lower().replace("finance", "")
    assert done.receipt.request_digest[:12] in text


def test_residual_influence_is_what_it_says(done: uw.Unlearned) -> None:
    """‖∇Q(θ̂)‖ / ‖∇Q(θ0)‖, computed here from scratch with autograd."""
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, seed=1, epochs=30)

    def gradient(module: torch.nn.Module, graph: object) -> torch.Tensor:
        module.eval()
        mask = graph.train_mask  # type: ignore[attr-defined]
        out = module(graph.x, graph.edge_index)  # type: ignore[attr-defined]
        loss = torch.nn.functional.cross_entropy(out[mask], graph.y[mask], reduction="sum")  # type: ignore[attr-defined]
        loss = loss + 1e-4 * int(mask.sum()) / 2 * sum(p.square().sum() for p in module.parameters())
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])

    start = gradient(model, data)
    left = gradient(done.model, done.data) - start
    whole = gradient(model, done.data) - start
    assert done.receipt.residual_influence == pytest.approx(float(left.norm() / whole.norm()), rel=1e-3)


def test_ids_and_notes_travel_with_a_request() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=3)
    request = uw.Request(nodes=[3], id="DSR-1042", note="by mail")
    receipt = run.forget(request, "none").receipts[-1]
    assert (receipt.id, receipt.note) == ("DSR-1042", "by mail")
    assert receipt.request_digest == uw.Request(nodes=[3]).digest, "they are no part of it"
    assert "DSR-1042: 1 node" in str(receipt)


FIGURES: list[tuple[str, dict[str, Any], str]] = [
    ("retrained", {"anew": True}, "this is exact"),
    ("certified", {"certificate": {"kind": "removal", "epsilon": 1.0, "delta": 1e-5}}, "certified; no test tells it"),
    ("not needed", {"objective": {"local_change": 0.0}, "step_norm": 0.0}, "need not change"),
    (
        "bounded",
        {"certificate": {"kind": "bound", "distance": 0.1}, "residual_influence": 0.0},
        "proved to be within 0.01",
    ),
    (
        "at a minimum",
        {"details": {"objective": "L'"}, "residual_influence": 4.0},
        "without it, which is where retraining leads if it has no other",
    ),
    (
        "influence",
        {"details": {"agreement": -1.3}, "residual_influence": 0.4},
        "trainings of this model end at different ones",
    ),
    (
        "worse",
        {"details": {"objective": "L'"}, "objective": {"remaining_before": 1.0, "remaining_after": 1.1}},
        "do not use",
    ),
    ("trained on", {"method": {"name": "finetune"}, "residual_influence": 9.0}, "trained on for a while"),
    ("influence", {"residual_influence": 0.4, "objective": {"local_change": -1.0}}, "took back 60% of the pull"),
    (
        "unchanged",
        {"residual_influence": 0.95, "objective": {"local_change": -1.0}, "step_norm": 0.01},
        "practically unchanged; do not rely",
    ),
    (
        "doubtful",
        {"residual_influence": 0.95, "objective": {"local_change": -1.0}, "step_norm": 1.0},
        "no sign that it came nearer",
    ),
    (
        "doubtful",
        {
            "objective": {"local_change": 0.0},
            "step_norm": 0.0,
            "region": {"steps": 0},
            "remembers": [{"what": "a buffer", "where": "adj", "state": "kept", "remedy": ""}],
        },
        "it may compute with what it keeps itself",
    ),
    ("unchanged", {"step_norm": 0.0, "residual_influence": 1.0}, "do not rely on it"),
    (
        "at a minimum",
        {
            "details": {"objective": "L'", "agreement": 0.95, "luck": 1e-3},
            "objective": {"function_change": 2e-4},
        },
        "to within 0.001 nats, as far as another seed shows; it moved by 0.0002",
    ),
    (
        "at a minimum",
        {
            "details": {"objective": "L'", "agreement": 0.95, "luck": 1e-3},
            "objective": {"function_change": 2e-2},
        },
        "which is where every training leads, as far as another seed shows",
    ),
    (
        "at a minimum",
        {"details": {"objective": "L'", "agreement": 0.95, "ended": "after 4.4% of the passes of training"}},
        "on its way to a minimum again without it (it ended early, see the warnings), which is where every training",
    ),
    ("doubtful", {"details": {"objective": "L'", "agreement": -0.2}}, "as far from each other as a deletion moves it"),
    ("doubtful", {"residual_influence": 1.2, "objective": {"local_change": -0.1}}, "no sign that it came nearer"),
    ("worse", {"residual_influence": 1.2, "objective": {"local_change": 0.1}}, "worse than doing nothing"),
    ("told", {"nearness": "half of it was trained anew"}, "half of it was trained anew"),
    ("unverified", {"status": "unverified"}, "nobody has checked; verify the run"),
]


@pytest.mark.parametrize(("grade", "figures", "says"), FIGURES)
def test_every_receipt_says_in_one_line_what_became_of_data_and_model(
    grade: str, figures: dict[str, Any], says: str
) -> None:
    given: dict[str, Any] = {"step_norm": 1.0, "method": {"name": "gif"}, "parameters": {"norm_before": 10.0}}
    receipt = Receipt(asked={"nodes": [1]}, request={"nodes": [1]}, **(given | figures))
    assert receipt.grade == grade
    assert receipt.verdict.startswith("Data removed from the graph: yes. Model: ")
    assert says in receipt.verdict
    assert "\n" not in receipt.verdict


def test_what_the_model_itself_keeps_is_said_in_the_verdict() -> None:
    kept = [{"what": "frozen parameters", "where": "w", "state": "kept", "why": "not trained"}]
    receipt = Receipt(asked={"nodes": [1]}, request={"nodes": [1]}, anew=True, remembers=kept)
    assert receipt.verdict.endswith("but frozen parameters in it may still hold some of it.")


def test_receipts_form_a_chain_that_nothing_rewrites() -> None:
    data = small_graph()
    run = uw.train(uw.models.SGC(8, 3), data, epochs=3).prepare()
    edges = [(u, v) for u, v in data.edge_index.t().tolist() if u < v]
    deferred = run.forget([uw.Request(edges=[edges[0]]), uw.Request(edges=[edges[9]])], defer=True)
    done = deferred.verify().purge()
    assert [r.kind for r in done.receipts] == ["request", "request", "verification", "purge"]
    assert list(done.receipts[:2]) == list(deferred.receipts), "verified, and as they were issued"
    assert done.receipts[2].speaks_of == [r.digest for r in deferred.receipts]
    assert done.receipts[3].speaks_of == [deferred.receipts[1].digest]
    assert [r.previous for r in done.receipts] == [None, *(r.digest for r in done.receipts[:-1])]
    assert Receipt.from_json(done.receipts[2].to_json()).digest == done.receipts[3].previous
    assert done.receipts[2].verdict.startswith("Checked on the whole graph: 2 requests that had been deferred. Model: ")
    assert done.receipts[3].verdict.startswith("Purged of what else was made with the data")


def test_features_that_are_zero_already_are_done_with_nothing_to_do() -> None:
    data = small_graph()
    data.x[4] = 0
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=3)
    request = uw.Request(features={4: [1, 2]}, id="DSR-5")
    after = run.forget(request)
    assert (after.receipts[-1].status, after.receipts[-1].id) == ("nothing to do", "DSR-5")
    assert after.model is run.model
    assert run.preview(request).status == "nothing to do"
    assert "nothing to do" in str(run.preview(request))
    done = uw.unlearn(run.model, data, request, weight_decay=1e-4)
    assert done.receipt.status == "nothing to do"
    assert done.receipt.verdict.startswith("Nothing to do: ")


def test_strict_refuses_what_is_not_to_be_relied_on() -> None:
    data = small_graph()
    run = uw.train(uw.models.GCN(8, 3, hidden=4), data, epochs=3)
    request = uw.Request(nodes=data.train_mask.nonzero().flatten().tolist()[:1])
    with pytest.raises(uw.StrictError, match="practically unchanged"):
        run.forget(request, "none", strict=True)
    with pytest.raises(uw.StrictError, match="practically unchanged"):
        uw.unlearn(run.model, data, request, "none", weight_decay=1e-4, strict=True)
    with pytest.raises(uw.MethodError, match="until it is verified"):
        run.prepare().forget(request, defer=True, strict=True)
    assert run.forget(request, "retrain", strict=True).receipts[-1].grade == "retrained"

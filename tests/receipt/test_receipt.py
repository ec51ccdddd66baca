"""Receipts: complete, stable, and readable."""

import json

import pytest
import torch

import unweave as uw
from unweave.receipt.receipt import Receipt
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def done() -> uw.Unlearned:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    uw.train(model, data, seed=1, epochs=30)
    return uw.unlearn(model, data, uw.draw("edges:0.03,features:0.05", data), weight_decay=1e-4)


def test_it_holds_everything(done: uw.Unlearned) -> None:
    document = json.loads(done.receipt.to_json())
    assert document["format"] == "unweave-receipt-1"
    assert set(document) == {
        "format", "request", "request_digest", "removed", "graph", "region", "method", "details", "solve", "objective",
        "residual_influence", "step_norm", "parameters", "seconds", "passes", "peak_mib", "seed", "environment",
        "warnings", "nearness", "verified", "certificate", "remembers", "ladder", "screening",
    }  # fmt: skip
    assert document["request_digest"] == uw.Request.from_dict(document["request"]).digest
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


def test_receipts_from_before_certificates_can_be_read(done: uw.Unlearned) -> None:
    document = done.receipt.to_dict()
    assert document.pop("certificate")["kind"] == "none"
    old = Receipt.from_dict(document)
    assert old.certificate is None
    assert "Certified" not in str(old)


def test_it_reads_well(done: uw.Unlearned) -> None:
    text = str(done.receipt)
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


def test_the_retrained_model_is_called_by_its_name() -> None:
    data = small_graph()
    model = uw.models.GCN(8, 3, hidden=4)
    run = uw.train(model, data, epochs=3)
    assert "this is the retrained model itself" in str(run.forget(uw.draw("edges:0.1", data), "retrain").receipts[-1])

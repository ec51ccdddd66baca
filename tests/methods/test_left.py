"""What training left of its gradient: kept where a request is small beside it, and never followed in its place."""

import pytest
import torch
from torch_geometric.data import Data

import unweave as uw
from tests.production import production
from unweave._core.tuning import tuned
from unweave.testing import small_graph


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def run(data: Data) -> uw.Run:
    torch.manual_seed(0)
    return production(data)


def risen(receipt: uw.Receipt) -> float:
    return receipt.objective["remaining_after"] - receipt.objective["remaining_before"]


def test_what_training_left_is_kept_where_a_request_is_small_beside_it(run: uw.Run, data: Data) -> None:
    few = [uw.Request(nodes=[node]) for node in uw.draw("nodes:0.2", data).nodes[:4]]
    some = [run.forget(request).receipts[-1] for request in few]
    small = [receipt for receipt in some if "kept_gradient" in receipt.details]
    assert small
    assert len(small) < len(some)
    assert run.prepared is not None
    assert max(receipt.details["kept_gradient"] for receipt in small) <= float(run.prepared.gradient.norm())
    assert "kept_gradient" not in run.forget(uw.draw("edges:0.1", data)).receipts[-1].details


def test_steps_that_follow_what_training_left_are_taken_back(run: uw.Run, data: Data) -> None:
    """L' less a gradient falls without end where L' hardly bends; what the request pulls does not lead there."""
    edges = [uw.Request(edges=[edge]) for edge in uw.draw("edges:0.2", data).edges[14:17]]
    with tuned(step={"astray": 1e9}):
        there = [run.forget(request).receipts[-1] for request in edges]
    lost = [n for n, receipt in enumerate(there) if risen(receipt) > 0.1]
    assert lost
    for n in lost:
        receipt = run.forget(edges[n]).receipts[-1]
        assert "kept_gradient" not in receipt.details
        assert risen(receipt) < 0
        assert receipt.details["dropped_gradients"] > 0
        assert receipt.passes <= there[n].passes
